"""The access log for people: one line per request or raw connection, and one per connection that ended badly without a
request."""

from __future__ import annotations

from ...http import RULES, ConnectionRecord, Phase, Reason, Refusal, RequestRecord
from .figures import size_text, time_text
from .severity import is_raw, is_silent, told_by_request
from .style import Style, harmless, value_text

# columns; a longer value moves the rest of its line
_CLIENT = 21  # 255.255.255.255:65535
_METHOD = 7  # OPTIONS
_PATH = 30
_FIGURE = 8  # 2 min 3 s

# stands in place of the method
_TCP = "TCP"

# what was cut by a deadline: the deadline's option, and what did not happen in time
_CUT = {
    Reason.HANDSHAKE_TIMEOUT: ("handshake", "TLS handshake not complete"),
    Reason.HEADER_TIMEOUT: ("read_header", "head not complete"),
    Reason.READ_TIMEOUT: ("read", "request not complete"),
    Reason.BODY_RATE: ("body_grace", "body came too slowly"),
    Reason.WRITE_TIMEOUT: ("write_grace or write", "client did not take the response"),
    Reason.HANDLER_TIMEOUT: ("handler", "no answer from the application"),
    Reason.PONG_TIMEOUT: ("ws_pong", "client did not answer a ping"),
    Reason.CLOSE_TIMEOUT: ("ws_close", "client did not take or answer the close"),
    Reason.DRAIN_TIMEOUT: ("drain", "cut by the end of the drain"),
}

# other ends that are not ordinary
_ENDED = {
    Reason.CLIENT_CLOSED: "client left",
    Reason.CLIENT_RESET: "client reset the connection",
    Reason.PROTOCOL_ERROR: "refused: not valid HTTP/1.1",
    Reason.HEADER_TOO_LARGE: "refused: head too large",
    Reason.MESSAGE_TOO_LARGE: "closed: message too large",
    Reason.SERVER_ERROR: "the application failed",
    Reason.UPSTREAM_FAILED: "the upstream failed",
}

# the same of websockets, where the words differ
_WEBSOCKET_CUT = {
    Reason.BODY_RATE: ("body_grace", "message came too slowly"),
    Reason.WRITE_TIMEOUT: ("write_grace or write", "client did not take what was sent"),
    Reason.READ_TIMEOUT: ("read", "the client was silent"),
    Reason.HANDLER_TIMEOUT: ("handler", "the application did not end"),
}
_WEBSOCKET_ENDED = {Reason.PROTOCOL_ERROR: "closed: not valid websocket frames or text"}

# requests that got no turn
_REFUSED = {
    Refusal.QUEUE_FULL: "max_waiting: too many requests wait",
    Refusal.QUEUE_TIMEOUT: "request_queue: no turn",
    Refusal.CLIENT_LEFT: "client left before its turn",
}

# of raw connections
_RAW_ENDED = {
    Reason.IDLE_TIMEOUT: "idle: no byte came from either end",
    Reason.CONNECTION_AGE: "connection_age: old enough",
    Reason.SERVER_ERROR: "the proxy failed",
}

# clients that leave between requests are ordinary
_UNREMARKABLE = (Reason.CLIENT_CLOSED, Reason.CLIENT_RESET)


def request_text(record: RequestRecord, style: Style) -> str:
    """Return client, method, path, status, duration, bytes, why its connection ended with it, and header fields."""
    status = record.status
    kind = "bad" if status >= 500 or not status else "warn" if status >= 400 else "note" if status >= 300 else "good"
    line = (
        f"{harmless(record.peer):<{_CLIENT}}  {style.paint('bold', f'{harmless(record.method):<{_METHOD}}')} "
        f"{harmless(record.target):<{_PATH}}  {style.paint(kind, str(status) if status else '  -')}"
        f"  {time_text(record.handled):>{_FIGURE}}  {size_text(record.sent):>{_FIGURE}}"
    )
    why = "" if record.reason is None else _why(record.reason, record.handled, websocket=status == 101)
    if record.refused is not None:
        why = _REFUSED[record.refused]
    fields = "".join(f"  {style.paint('dim', f'{name}=')}{value_text(value)}" for name, value in record.fields)
    return (f"{line}  {style.paint('warn', why)}" if why else line) + fields


def connection_text(record: ConnectionRecord, style: Style) -> str:
    """Return client and reason of a connection that ended badly; "" for one that ended well, or whose last request's
    line says why. A raw connection has a line in any case."""
    if is_raw(record):
        return _raw_text(record, style)
    if is_silent(record) or told_by_request(record) or record.reason in _UNREMARKABLE:
        return ""
    # the time since its last request is not known
    why = _no_tls(record) or _why(record.reason, None if record.requests else record.elapsed)
    if not why:
        return ""
    rule = RULES.get(_CUT.get(record.reason, ("",))[0])
    status = None if rule is None else rule.status
    return f"{harmless(record.peer):<{_CLIENT}}  {style.paint('warn', f'{status} {why}' if status else why)}"


def _no_tls(record: ConnectionRecord) -> str:
    """Return what is said of a handshake that has failed, of a client that speaks plain HTTP, for example; else ""."""
    failed = record.phase is Phase.HANDSHAKE and record.reason is Reason.PROTOCOL_ERROR
    return "refused: the TLS handshake has failed" if failed else ""


def _raw_text(record: ConnectionRecord, style: Style) -> str:
    """Return client, duration, bytes both ways, and why the connection ended."""
    line = (
        f"{harmless(record.peer):<{_CLIENT}}  {style.paint('bold', f'{_TCP:<{_METHOD}}')} "
        f"{f'received {size_text(record.received)}':<{_PATH}}       {time_text(record.elapsed):>{_FIGURE}}"
        f"  {size_text(record.sent):>{_FIGURE}}"
    )
    why = _RAW_ENDED.get(record.reason) or _why(record.reason, None, websocket=True)
    return f"{line}  {style.paint('warn', why)}" if why else line


def _why(reason: Reason, seconds: float | None, *, websocket: bool = False) -> str:
    cut, ended = _CUT, _ENDED
    if websocket:
        cut, ended = cut | _WEBSOCKET_CUT, ended | _WEBSOCKET_ENDED
    if reason in cut:
        option, words = cut[reason]
        return f"{option}: {words}" + ("" if seconds is None else f" after {time_text(seconds)}")
    return ended.get(reason, "")
