"""Why a request could not be answered by an upstream."""

from __future__ import annotations

from enum import StrEnum


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
TIMEOUTS = frozenset((Failure.CONNECT_TIMEOUT, Failure.FIRST_BYTE_TIMEOUT, Failure.IDLE_TIMEOUT, Failure.TRY_TIMEOUT))


class UpstreamError(Exception):
    """An upstream has failed. `failure`: what went wrong; `detail`: a sentence for people, without bytes of the
    upstream. `upstream`: its address, once that is known."""

    def __init__(self, failure: Failure, detail: str) -> None:
        super().__init__(detail)
        self.failure = failure
        self.detail = detail
        self.upstream = ""

    @property
    def status(self) -> int:
        """The status of the answer: 504 for a deadline, else 502."""
        return 504 if self.failure in TIMEOUTS else 502


class Overloaded(Exception):  # noqa: N818, named after what happened
    """A request has waited for an upstream for too long. `detail`: a sentence for people."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail
