"""The error of an operation whose deadline has passed; an error that is kept to be raised later."""

from __future__ import annotations

import math
from typing import Any, Final, NoReturn

_MOVE_IT_WITH = {
    "read": "set_read_deadline()",
    "write": "set_write_deadline()",
    "accept": "set_deadline()",
    "connect": "a later deadline=",
}


class DeadlineExceeded(TimeoutError):  # noqa: N818, Go's name, and the subclass says Error already
    """An operation had not finished at its deadline. The connection is not broken: move the deadline and continue.

    `op`        "read", "write", "accept" or "connect".
    `deadline`  the absolute time that passed, on the event loop's clock; `-inf` or any past time if it was set to
                cancel.
    `sent`      bytes that the kernel took before a write deadline; it is unknown whether the peer received them.

    It is a TimeoutError and so an OSError, with `errno` None. Code that filters `except OSError` by errno does not
    catch it; code that catches every OSError does.
    """

    def __init__(self, op: str, deadline: float = -math.inf, sent: int = 0) -> None:
        taken = f" after {sent} bytes were sent" if sent else ""
        remedy = _MOVE_IT_WITH[op]
        super().__init__(
            f"{op} deadline exceeded{taken} (it was {deadline:.6g} on the event loop's clock); to go on, use {remedy}"
        )
        self.op = op
        self.deadline = deadline
        self.sent = sent

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.op, self.deadline, self.sent), vars(self)


class Kept:
    """An error that was caught, to be raised later in another frame.

    An error refers to the frame that raises it, by its traceback. If the frame still refers to the error, by a variable
    or through an object, both are in a reference cycle, with all else that the frame refers to. So this object gives up
    the error that it raises.
    """

    __slots__ = ("_error",)

    def __init__(self, error: Exception) -> None:
        self._error: Final = [error]

    def reraise(self) -> NoReturn:
        """Raise the error, once."""
        raise self._error.pop()
