"""The log as text: what a person reads on a terminal."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import time
from typing import Any

import pytest

from deadlined.http import ConnectionRecord, Phase, Reason, RequestRecord, Timeouts
from deadlined.service.log.entries import entry_of, own_entry
from deadlined.service.log.greeting import Facts, screen
from deadlined.service.log.style import Style
from deadlined.service.log.text_access import _CUT, _ENDED
from deadlined.service.log.text_lines import TextLines
from tests.service.log.test_access import CONNECTION, REQUEST

TIME = r"\d\d:\d\d:\d\d\.\d{3}"


def layout(worker: int | None = None, *, colour: bool = False) -> TextLines:
    return TextLines(Style(colour), worker)


def own(event: str, *, level: str = "info", **fields: Any) -> str:
    """Return what is shown of an event of the server's own, behind the time."""
    return without_time(layout().entry(own_entry(event, fields, level)))


def record(message: str, *args: object, error: BaseException | None = None, **extra: object) -> str:
    """Return what is shown of a record of the application's, behind the time."""
    exc_info = (type(error), error, error.__traceback__) if error is not None else None
    made = logging.getLogger("shop").makeRecord("shop", logging.WARNING, "", 0, message, args, exc_info, extra=extra)
    return without_time(layout().entry(entry_of(made)))


def without_time(text: str) -> str:
    found = re.match(rf"{TIME}  ", text)
    assert found, text
    assert text.endswith("\n")
    return text[found.end() : -1]


# lines of the application


def test_a_record_is_time_level_logger_message_and_fields() -> None:
    assert record("%d apples", 3, buyer=5, customer="Ann Bee", code="a") == (
        "warning   shop: 3 apples  buyer=5  customer='Ann Bee'  code=a"
    )


def test_the_time_is_local() -> None:
    entry = dataclasses.replace(own_entry("event", {}, "info"), at=1_700_000_000.25)
    assert layout().entry(entry).startswith(time.strftime("%H:%M:%S", time.localtime(1_700_000_000)) + ".250  ")


def test_a_worker_process_says_its_number() -> None:
    assert re.match(rf"{TIME}  \[3\]  info ", layout(3).entry(own_entry("event", {}, "info")))
    assert re.match(rf"{TIME}  \[3\]  127", layout(3).request(0.0, REQUEST))


def test_levels_have_one_width() -> None:
    lines = {own("event", level=level).index("event") for level in ("info", "warning", "critical", "debug")}
    assert lines == {len("critical") + 2}


def test_a_message_cannot_forge_a_line() -> None:
    lines = record("user %s", "x\n12:00:00.000  info      shop: all is well\x1b[2K").split("\n")
    assert lines == ["warning   shop: user x", r"    12:00:00.000  info      shop: all is well\x1b[2K"]


def test_a_field_cannot_forge_a_line() -> None:
    assert record("sold", code="a\x1b[2K").endswith(r"code='a\x1b[2K'")
    *_, last = record("sold", text="one\ntwo\x1b[2K").split("\n")
    assert last == r"    two\x1b[2K"


def test_an_exception_is_a_traceback_below_its_line() -> None:
    try:
        json.loads("{")
    except ValueError as error:
        first, header, place, source, *_, last = record("it failed", error=error).split("\n")
    assert first == "warning   shop: it failed"
    assert header == "    Traceback (most recent call last):"
    assert place.startswith(f'      File "{__file__}", line ')
    assert source == '        json.loads("{")'
    assert last.startswith("    json.decoder.JSONDecodeError: Expecting property name")


def test_colours_are_put_around_words_only() -> None:
    painted = layout(colour=True).request(0.0, REQUEST)
    assert "\x1b[32m200\x1b[0m" in painted
    assert re.sub("\x1b\\[[0-9;]*m", "", painted) == layout().request(0.0, REQUEST)


# requests and connections


def request(**changes: Any) -> str:
    return without_time(layout().request(0.0, dataclasses.replace(REQUEST, **changes)))


def connection(**changes: Any) -> str:
    text = layout().connection(0.0, dataclasses.replace(CONNECTION, **changes))
    return without_time(text) if text else ""


def test_a_request_is_client_method_path_status_time_and_bytes() -> None:
    assert request().split() == ["127.0.0.1:5000", "GET", "/a?b", "200", "1.5", "s", "20", "B"]


def test_requests_are_in_columns() -> None:
    lines = [request(), request(method="OPTIONS", target="/much/longer", sent=123456, handled=0.001, status=404)]
    assert lines[0].index("200") == lines[1].index("404")
    assert [line.rindex("B") for line in lines] == [len(lines[0]) - 1] * 2


def test_a_request_without_an_answer_has_no_status() -> None:
    line = request(status=0, reason=Reason.CLIENT_CLOSED)
    assert re.search(r"/a\?b +-  +1\.5 s .*  client left$", line)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"status": 504, "handled": 30.001, "reason": Reason.HANDLER_TIMEOUT},
            "handler: no answer from the application after 30 s",
        ),
        ({"status": 408, "handled": 20.0, "reason": Reason.BODY_RATE}, "body_grace: body came too slowly after 20 s"),
        ({"status": 500, "reason": Reason.SERVER_ERROR}, "the application failed"),
        ({"reason": Reason.WRITE_TIMEOUT}, "write_grace or write: client did not take the response after 1.5 s"),
        ({"status": 101, "reason": Reason.PROTOCOL_ERROR}, "closed: not valid websocket frames or text"),
        ({"status": 101, "reason": Reason.BODY_RATE}, "body_grace: message came too slowly after 1.5 s"),
        (
            {"status": 101, "reason": Reason.WRITE_TIMEOUT},
            "write_grace or write: client did not take what was sent after 1.5 s",
        ),
        ({"status": 101, "reason": Reason.READ_TIMEOUT}, "read: the client was silent after 1.5 s"),
        ({"status": 101, "reason": Reason.HANDLER_TIMEOUT}, "handler: the application did not end after 1.5 s"),
        ({"status": 101, "reason": Reason.CLIENT_CLOSED}, "client left"),
        ({"reason": Reason.DONE}, ""),
        ({"reason": Reason.CONNECTION_AGE}, ""),
        ({"reason": None}, ""),
    ],
)
def test_a_request_that_was_cut_says_why_in_words(changes: dict[str, Any], why: str) -> None:
    line = request(**changes)
    assert line.endswith(f" B  {why}" if why else " B")


def test_header_fields_come_last_and_cannot_look_like_others() -> None:
    fields = (("user-agent", "curl/8"), ("referer", "x  status=500"), ("x-id", ""), ("x-odd", "\x1b[2J\n"))
    line = request(reason=Reason.CLIENT_CLOSED, fields=fields)
    assert line.endswith(r"client left  user-agent=curl/8  referer='x  status=500'  x-id=''  x-odd='\x1b[2J\n'")


def test_a_head_that_did_not_come_is_a_408() -> None:
    line = connection(elapsed=10.0003)
    assert line.split("  ")[-1].strip() == "408 read_header: head not complete after 10 s"
    assert line.startswith("127.0.0.1:5000 ")


def test_the_age_of_a_connection_is_not_the_time_of_its_last_request() -> None:
    assert connection(requests=3, elapsed=1000.0).endswith("408 read_header: head not complete")


def test_a_handshake_that_was_not_done_has_no_status() -> None:
    line = connection(reason=Reason.HANDSHAKE_TIMEOUT, phase=Phase.HANDSHAKE, elapsed=10.0)
    assert line.endswith("  handshake: TLS handshake not complete after 10 s")
    assert "408" not in line


@pytest.mark.parametrize(
    "changes",
    [
        {"reason": Reason.DONE},
        {"reason": Reason.IDLE_TIMEOUT, "phase": Phase.IDLE},
        {"reason": Reason.CLIENT_CLOSED},
        {"reason": Reason.CLIENT_RESET, "phase": Phase.IDLE},
        # its request has told
        {"reason": Reason.HANDLER_TIMEOUT, "phase": Phase.HANDLER, "requests": 1},
        {"reason": Reason.SERVER_ERROR, "phase": Phase.WRITE, "requests": 1},
        # a browser that connects in advance
        {"reason": Reason.HEADER_TIMEOUT, "received": 0},
        {"reason": Reason.READ_TIMEOUT, "received": 0},
        {"reason": Reason.HANDSHAKE_TIMEOUT, "phase": Phase.HANDSHAKE, "received": 0},
    ],
)
def test_a_connection_that_ends_well_or_after_its_request_is_not_shown(changes: dict[str, Any]) -> None:
    assert connection(**changes) == ""


def test_what_was_no_request_is_told_by_its_connection() -> None:
    assert connection(reason=Reason.PROTOCOL_ERROR).endswith("  refused: not valid HTTP/1.1")
    no_tls = connection(reason=Reason.PROTOCOL_ERROR, phase=Phase.HANDSHAKE)
    assert no_tls.endswith("  refused: the TLS handshake has failed")
    assert connection(reason=Reason.HEADER_TOO_LARGE).endswith("  refused: head too large")


def test_every_reason_has_its_words_or_is_an_ordinary_end() -> None:
    ordinary = {Reason.DONE, Reason.IDLE_TIMEOUT, Reason.CONNECTION_AGE, Reason.KEEPALIVE_LIMIT}
    assert set(Reason) == {*_CUT, *_ENDED, *ordinary}
    assert not {*_CUT, *_ENDED} & ordinary


@pytest.mark.parametrize("field", ["peer", "method", "target"])
def test_a_client_cannot_move_the_cursor(field: str) -> None:
    made: RequestRecord = dataclasses.replace(REQUEST, **{field: "\x1b[2J\n"})  # type: ignore[arg-type]
    text = layout().request(0.0, made)
    assert "\x1b" not in text
    assert text.count("\n") == 1
    cut: ConnectionRecord = dataclasses.replace(CONNECTION, peer="\x1b[2J\n")
    assert "\x1b" not in layout().connection(0.0, cut)


# the server's own events


@pytest.mark.parametrize(
    ("event", "fields", "said"),
    [
        ("listening", {"url": "http://x:1", "loop": "trio"}, "listening on http://x:1"),
        (
            "draining",
            {"signal": "SIGTERM", "open": 1, "background": 2, "seconds": 30.0},
            "SIGTERM: draining for at most 30 s; 1 connection and 2 background handlers open.",
        ),
        (
            "draining",
            {"signal": "SIGINT", "open": 3, "background": 0, "seconds": None},
            "SIGINT: draining without a limit; 3 connections open. Ctrl-C again cuts them.",
        ),
        (
            "draining",
            {"signal": "SIGINT", "open": 0, "background": 0, "seconds": 5.0},
            "SIGINT: draining for at most 5 s; nothing is open.",
        ),
        (
            "still draining",
            {
                "open": 3,
                "background": 0,
                "phases": {"handler": 2, "write": 1},
                "paths": {"/events": 2, "/": 1},
                "left": 28.999,
            },
            "draining, 29 s left: 3 connections (2 waiting for the application, 1 taking a response); "
            "requests: 2 of /events, 1 of /",
        ),
        (
            "still draining",
            {"open": 0, "background": 1, "phases": {}, "paths": {}, "left": None},
            "draining: 1 background handler",
        ),
        (
            "stopped",
            {"requests": 120, "connections": 1, "reasons": {"done": 1}, "uptime": 123.4},
            "stopped after 2 min 3 s: 120 requests, 1 connection (1 done)",
        ),
        (
            "worker ended",
            {"number": 2, "pid": 77, "signal": "SIGKILL", "lived": 3.2, "replaced_in": 0.2},
            "worker process 2 (77) ended by SIGKILL after 3.2 s; it is replaced in 200 ms",
        ),
        (
            "worker ended",
            {"number": 2, "pid": 77, "signal": "SIGKILL", "hint": "why", "lived": 3.2, "replaced_in": 0},
            "worker process 2 (77) ended by SIGKILL after 3.2 s (why); it is replaced now",
        ),
        (
            "worker ended",
            {"number": 2, "pid": 77, "code": 1, "lived": 3600, "replaced_in": 0},
            "worker process 2 (77) ended with code 1 after 1 h; it is replaced now",
        ),
        ("stopping the workers", {"signal": "SIGTERM", "workers": 1}, "SIGTERM: stopping 1 worker process"),
        (
            "log lines lost",
            {"lost": 37, "why": "No space left on device"},
            "37 log lines were lost: No space left on device",
        ),
        ("log lines lost", {"lost": 1, "why": "Broken pipe"}, "1 log line was lost: Broken pipe"),
        # no sentence is known, or its fields are others
        ("something new", {"a": 1}, "something new  a=1"),
        ("stopped", {"a": 1}, "stopped  a=1"),
    ],
)
def test_the_servers_own_events_are_sentences(event: str, fields: dict[str, Any], said: str) -> None:
    assert own(event, **fields) == f"info      {said}"


def test_a_blocked_loop_is_shown_with_its_stack() -> None:
    stack = '  File "/srv/shop.py", line 3, in app\n    time.sleep(9)\n'
    lines = own("event loop blocked", level="warning", seconds=1.0, file="/srv/shop.py", function="app", stack=stack)
    assert lines.split("\n") == [
        "warning   event loop blocked for 1 s in app, /srv/shop.py",
        '      File "/srv/shop.py", line 3, in app',
        "        time.sleep(9)",
    ]


def test_a_worker_process_that_hangs_is_shown_with_what_blocks_it() -> None:
    fields: dict[str, Any] = {"number": 2, "pid": 77, "silent": 30.2}
    silent = "worker process 2 (77) has not answered for 30.2 s: killed"
    assert own("worker does not answer: killed", level="error", **fields) == f"error     {silent}"
    fields |= {"file": "/srv/shop.py", "function": "app"}
    blocked = f"error     {silent}; it was blocked in app, /srv/shop.py"
    assert own("worker does not answer: killed", level="error", **fields, stack="") == blocked
    stack = '  File "/srv/shop.py", line 3, in app\n    lock.acquire()\n'
    lines = own("worker does not answer: killed", level="error", **fields, stack=stack)
    assert lines.split("\n") == [blocked, '      File "/srv/shop.py", line 3, in app', "        lock.acquire()"]


def test_a_reload_says_until_when_the_certificate_is_valid_that_it_has_read() -> None:
    fields: dict[str, Any] = {"by": "SIGHUP", "changed": {}, "needs_restart": []}
    assert own("reloaded", **fields).endswith("SIGHUP: configuration reloaded: no setting has changed")
    said = own("reloaded", **fields, certificate_until="2028-01-01 09:47 UTC")
    assert said.endswith("no setting has changed; the certificate is valid until 2028-01-01 09:47 UTC")


def test_a_failed_startup_is_left_to_the_command() -> None:
    assert layout().entry(own_entry("startup failed", {"why": "port"}, "error")) == ""


def test_what_the_terminal_has_echoed_is_overwritten() -> None:
    entry = own_entry("stopping the workers", {"signal": "SIGINT", "workers": 1}, "info")
    assert TextLines(Style(colour=False, terminal=True)).entry(entry).startswith("\r")
    assert not layout().entry(entry).startswith("\r")


def test_a_raw_connection_has_a_line_in_any_case() -> None:
    raw = {"requests": 0, "phase": Phase.TUNNEL, "received": 1500, "sent": 2_000_000, "elapsed": 12.5}
    good = connection(reason=Reason.DONE, **raw)
    assert re.fullmatch(r"127\.0\.0\.1:5000 +TCP +received 1\.5 kB +12\.5 s +2 MB", good), good
    assert connection(reason=Reason.CLIENT_RESET, **raw) == f"{good}  client reset the connection"
    assert (
        connection(reason=Reason.UPSTREAM_FAILED, **{**raw, "phase": Phase.HANDLER}) == f"{good}  the upstream failed"
    )
    assert connection(reason=Reason.DRAIN_TIMEOUT, **raw).endswith("  drain: cut by the end of the drain")
    assert connection(reason=Reason.IDLE_TIMEOUT, **raw).endswith("  idle: no byte came from either end")
    # as columns of requests
    assert good.index("12.5 s") == request(handled=12.5).index("12.5 s")


# the first screen

FACTS = Facts(
    app="shop.web:app",
    urls=["http://127.0.0.1:8000", "http://[::1]:8000"],
    loop="trio",
    http="h11",
    workers=1,
    timeouts=Timeouts(handler=5.0),
)


def test_the_first_screen_says_what_is_served_where_and_how_to_stop_it() -> None:
    title, *rows = layout().greeting(FACTS).splitlines()
    assert re.fullmatch(r"deadlined \S+ \((not )?compiled\), Python \S+", title)
    assert dict(row.split(maxsplit=1) for row in rows) == {
        "serving": "shop.web:app",
        "on": "http://127.0.0.1:8000  http://[::1]:8000  Ctrl-C to stop",
        "with": "trio, h11, one process",
        "deadlines": "read_header 10 s, body 20 s + 500 B/s, send 10 s or 240 B/s, idle 75 s, handler 5 s, drain 30 s",
        "off": "read, write, connection_age",
    }
    assert len({len(row) - len(re.sub(r"^  \S+ +", "", row)) for row in rows}) == 1, "in columns"


def test_the_first_screen_of_a_proxy_for_tcp_says_nothing_of_http() -> None:
    facts = dataclasses.replace(FACTS, app="TCP proxy to a:1", urls=["tls://127.0.0.1:8000"], http="")
    rows = dict(row.split(maxsplit=1) for row in screen(facts, Style(colour=False)).splitlines()[1:])
    assert rows == {
        "serving": "TCP proxy to a:1",
        "on": "tls://127.0.0.1:8000  Ctrl-C to stop",
        "with": "trio, one process",
        "deadlines": "handshake 10 s, send 10 s or 240 B/s, idle 75 s, drain 30 s",
        "off": "connection_age",
    }


def test_the_first_screen_of_tls_workers_and_a_proxy() -> None:
    facts = dataclasses.replace(
        FACTS, app="proxy to [::1]:9000", urls=["https://127.0.0.1:8000"], workers=4, http="httptools"
    )
    text = screen(facts, Style(colour=False))
    assert "serving    proxy to [::1]:9000" in text
    assert "trio, httptools, 4 worker processes" in text
    assert "deadlines  handshake 10 s, read_header 10 s" in text
