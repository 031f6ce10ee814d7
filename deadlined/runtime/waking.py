"""What a sleeper is woken with: trio sends it an `Outcome`, and makes a new one for each wake unless it is given one.

Interpreted, because a compiled class cannot derive from `Outcome`, which is not.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Final, TypeVar

import outcome

ResultT = TypeVar("ResultT")


class Woken(outcome.Outcome[None]):
    """It says nothing, so that one serves all; an `outcome.Value` can be unwrapped once only."""

    def unwrap(self) -> None:
        """Nothing went wrong."""

    def send(self, gen: Generator[ResultT, None, object]) -> ResultT:
        return gen.send(None)

    async def asend(self, agen: AsyncGenerator[ResultT, None]) -> ResultT:
        return await agen.asend(None)


WOKEN: Final = Woken()
