"""Awaiting foreign code from compiled code.

Facts      A compiled coroutine throws into what it awaits by `throw(type, value, traceback)`, which Python deprecates
           since 3.12.
Hazard     With warnings as errors (`-W error`) a cancelled application would get a DeprecationWarning in place of its
           cancellation.
Answer     This object passes steps on by hand, and throws the error alone.
Cost       A call per suspension. A coroutine that does not suspend is run by `for`, which makes no StopIteration.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any


class Foreign:
    """`await Foreign(function, argument)` awaits `function(argument)`."""

    __slots__ = ("_argument", "_function")

    def __init__(self, function: Callable[[Any], Awaitable[object]], argument: Any) -> None:
        self._function: Any = function
        self._argument: Any = argument

    def __await__(self) -> Generator[Any, Any, None]:
        steps = self._function(self._argument).__await__()
        # ends without raising StopIteration
        for first in steps:
            trap = first
            break
        else:
            return
        try:
            while True:
                try:
                    outcome = yield trap
                except BaseException as error:
                    trap = steps.throw(error)
                else:
                    try:
                        trap = steps.send(outcome)
                    finally:
                        # the name would keep an error, and through the error's frames this one: a cycle
                        del outcome
        except StopIteration:
            return
