"""Which lines of the access log say that something has failed here or was cut: their level is `warning`.

Of the two lines about one failure, that of the request and that of its connection, one has this level.
"""

from __future__ import annotations

from ...http import ConnectionRecord, Phase, Reason, RequestRecord

# what a deadline has cut, and failures on this side. What a client does wrong, or does not wait for, is neither
_FAILURES = frozenset(
    {
        Reason.HANDSHAKE_TIMEOUT,
        Reason.HEADER_TIMEOUT,
        Reason.READ_TIMEOUT,
        Reason.BODY_RATE,
        Reason.WRITE_TIMEOUT,
        Reason.HANDLER_TIMEOUT,
        Reason.PONG_TIMEOUT,
        Reason.CLOSE_TIMEOUT,
        Reason.DRAIN_TIMEOUT,
        Reason.SERVER_ERROR,
        Reason.UPSTREAM_FAILED,
    }
)

# what cuts a client that has sent nothing
_SILENT = (Reason.HANDSHAKE_TIMEOUT, Reason.HEADER_TIMEOUT, Reason.READ_TIMEOUT)

# the line of a request says nothing of a connection that ends in one of these phases
_WITHOUT_REQUEST = (Phase.HANDSHAKE, Phase.HEADER, Phase.IDLE, Phase.DRAIN)


def request_failed(record: RequestRecord) -> bool:
    """Return True for a request that was answered with 500 or above, was cut, or whose response has broken off."""
    return record.status >= 500 or (record.reason is not None and record.reason in _FAILURES)


def connection_failed(record: ConnectionRecord) -> bool:
    """Return True for a connection that was cut or has failed, and of which no line of a request says so."""
    return record.reason in _FAILURES and not told_by_request(record) and not is_silent(record)


def told_by_request(record: ConnectionRecord) -> bool:
    """Return True if the line of its last request says why the connection has ended."""
    return record.requests > 0 and record.phase not in _WITHOUT_REQUEST


def is_raw(record: ConnectionRecord) -> bool:
    """Return True for a connection of another protocol, which has no requests."""
    return not record.requests and record.phase not in _WITHOUT_REQUEST


def is_silent(record: ConnectionRecord) -> bool:
    """Return True for a connection on which nothing was ever received: browsers open some to have them."""
    return record.reason in _SILENT and not record.received
