"""The outcome that wakes a task: trio sends one to the task, and makes a new one for each wake unless it is given one.

This module is interpreted, because a compiled class cannot derive from `Outcome`, which is not compiled.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Final, TypeVar

import outcome

ResultT = TypeVar("ResultT")


class Woken(outcome.Outcome[None]):
    """An outcome without a value that can be used any number of times; an `outcome.Value` can be unwrapped only
    once."""

    def unwrap(self) -> None:
        """Return None."""

    def send(self, gen: Generator[ResultT, None, object]) -> ResultT:
        return gen.send(None)

    async def asend(self, agen: AsyncGenerator[ResultT, None]) -> ResultT:
        return await agen.asend(None)


WOKEN: Final = Woken()
