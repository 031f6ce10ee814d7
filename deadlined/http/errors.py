"""What ends an exchange or a connection from inside the HTTP rooms."""

from __future__ import annotations

from .state import Reason


class Disconnected(OSError):  # noqa: N818, an event more than an error, as ASGI has it
    """The exchange is over for its peer: it left, or it was cut. Nothing more can be sent or received."""


class ResponseError(RuntimeError):
    """The application broke the rules of a response: a wrong order, a bad header, too much or too little body."""


class BadRequest(Exception):  # noqa: N818, named for its status
    """The peer sent what cannot be served; it is answered with `status` and the connection is closed."""

    def __init__(self, status: int, detail: str, reason: Reason = Reason.PROTOCOL_ERROR) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.reason = reason


def is_disconnect(error: BaseException) -> bool:
    """Is it `Disconnected`, or a group of nothing else?"""
    if isinstance(error, BaseExceptionGroup):
        return all(is_disconnect(inner) for inner in error.exceptions)
    return isinstance(error, Disconnected)
