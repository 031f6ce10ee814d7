"""The exceptions of the HTTP layer, which end an exchange or a connection."""

from __future__ import annotations

from typing import Final

from .state import Reason

# what `Disconnected` says where it may be any of these
OVER: Final = "the request is over: the peer is gone, the server has ended the request, or the handler has returned"


class Disconnected(OSError):  # noqa: N818, ASGI calls it an event, not an error
    """The exchange has lost its peer: the peer has left, the connection was cut, or it has gone on without the handler.
    The operation cannot be repeated."""


class ResponseError(RuntimeError):
    """An error of the application in its response: calls in a wrong order, an invalid header, too much or too little
    body."""


class UnfinishedResponseError(ResponseError):
    """The handler has returned before its response was complete. In a drain this is how an endless stream ends that its
    application has stopped; at any other time it is an error."""


class ResponseCut(Exception):  # noqa: N818, named after what happened
    """Raised by a handler that cannot complete its response, for a reason outside of this process that it has logged:
    `status` is answered if nothing was sent, with `detail`; else the connection ends, so that the peer does not take
    the response for complete."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class BadRequest(Exception):  # noqa: N818, named after the status 400
    """An error of the peer in its request. It is answered with `status` if no response was started, and the connection
    is closed for `reason`. `detail` is the text of the answer."""

    def __init__(self, status: int, detail: str, reason: Reason = Reason.PROTOCOL_ERROR) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.reason = reason


class BadResponse(Exception):  # noqa: N818, the counterpart of BadRequest
    """An error of an upstream in its response. `detail`: what is wrong, without bytes of the upstream."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class TruncatedResponse(BadResponse):
    """An upstream has ended in the middle of its response."""


class UpgradeRefused(Exception):  # noqa: N818, named after what happened
    """The request for an upgrade is not valid. `status`, `headers` and `body` are the response to it."""

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        super().__init__(f"the upgrade was refused with {status}")
        self.status = status
        self.headers = headers
        self.body = body


def is_disconnect(error: BaseException) -> bool:
    """Return True if `error` is `Disconnected`, or an exception group that contains nothing else."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_disconnect(inner) for inner in error.exceptions)
    return isinstance(error, Disconnected)
