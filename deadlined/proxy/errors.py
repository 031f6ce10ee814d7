"""Why a request could not be answered by an upstream, and whether it may be sent again."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeVar


class Failure(StrEnum):
    """What went wrong at an upstream. The log, the metrics and the body of the answer use these names."""

    CONNECT = "upstream_connect_failed"
    CONNECT_TIMEOUT = "upstream_connect_timeout"
    CLOSED = "upstream_closed"
    RESET = "upstream_reset"
    MALFORMED = "upstream_malformed"
    FIRST_BYTE_TIMEOUT = "upstream_first_byte_timeout"
    IDLE_TIMEOUT = "upstream_idle_timeout"
    TRY_TIMEOUT = "upstream_per_try_timeout"


# failures that are answered with 504; the others with 502
_TIMEOUTS: Final = frozenset(
    (Failure.CONNECT_TIMEOUT, Failure.FIRST_BYTE_TIMEOUT, Failure.IDLE_TIMEOUT, Failure.TRY_TIMEOUT)
)

# failures before the upstream has seen the request
UNSEEN: Final = frozenset((Failure.CONNECT, Failure.CONNECT_TIMEOUT))

# RFC 9110, 9.2.2: doing it twice is like doing it once
IDEMPOTENT: Final = frozenset(("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"))

# how often a request is sent at most
TRIES: Final = 3


class UpstreamError(Exception):
    """An upstream has failed. `failure`: what went wrong; `detail`: a sentence for people, without bytes of the
    upstream. `upstream`: its address, once that is known.

    `stale`: it has closed an idle connection in the moment of the request, which says nothing about the upstream.
    `started`: something of its response was sent back.
    """

    def __init__(self, failure: Failure, detail: str) -> None:
        super().__init__(detail)
        self.failure = failure
        self.detail = detail
        self.upstream = ""
        self.stale = False
        self.started = False

    @property
    def status(self) -> int:
        """The status of the answer: 504 for a deadline, else 502."""
        return 504 if self.failure in _TIMEOUTS else 502


class Overloaded(Exception):  # noqa: N818, named after what happened
    """A request has waited for an upstream for too long. `detail`: a sentence for people."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


_Kept = TypeVar("_Kept", bound=Exception)


def bare(error: _Kept) -> _Kept:
    """Return `error`, which the caller keeps or returns, without what refers to the frames that have raised it: they
    refer to who keeps it, and since Python 3.12 also to who called them."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def may_repeat(error: UpstreamError, method: str, has_body: bool, tries: int, repeated: bool) -> bool:
    """Return True if a request that was sent `tries` times, and has failed with `error`, may be sent again: nothing was
    sent back, and either no upstream has seen this try, or the request is idempotent, has no body, and was not waited
    for in vain already for as long as a client may wait. `repeated`: an upstream may have seen it before this try,
    which was a retry then. A retry that fails is not retried (RFC 9110, 9.2.2): the request may be what breaks the
    upstreams."""
    if error.started or tries >= TRIES:
        return False
    if error.failure in UNSEEN:
        return True
    return not repeated and method in IDEMPOTENT and not has_body and error.failure is not Failure.FIRST_BYTE_TIMEOUT
