"""`python -m loadtest check` against servers whose deadlines are known: on real sockets, in a few seconds each.

What is found depends on when bytes and ends come, so these tests are marked `timed`: beside others a client that is
held up takes a deadline for another one. Whatever runs beside them by chance can still make any end late. So nothing
may come early in any attempt, and the kinds must be right in one of three.
"""

from __future__ import annotations

import math
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("hdrh", reason="the load test's extra is not installed: pip install .[bench]")

from loadtest.check.grade import Outcome, Report
from loadtest.check.run import Plan, check
from loadtest.target import UnusableTargetError, ask, resolve
from tests.support.command import Starter
from tests.support.net import certificates
from tests.support.slow_servers import Rule, slow_server

pytestmark = pytest.mark.timed

ATTEMPTS = 3
LIMIT = 1.6
ROOT = Path(__file__).parents[2]

PHASES = frozenset({"silent", "slow-header", "endless-header", "slow-body", "stalled-body"})


def checked(url: str, *names: str, limit: float = LIMIT, connections: int = 0) -> dict[str, Outcome]:
    """Check and return the outcomes by name."""
    return {
        outcome.attack.name: outcome for outcome in report(url, *names, limit=limit, connections=connections).outcomes
    }


def report(url: str, *names: str, limit: float = LIMIT, connections: int = 0) -> Report:
    return check(Plan(resolve(url), frozenset(names), limit, connections), lambda *_: None)


def kinds(found: dict[str, Outcome]) -> dict[str, tuple[str, str, int | None]]:
    return {name: (one.deadline.kind, one.deadline.close, one.deadline.status) for name, one in found.items()}


def until_right(url: str, expected: dict[str, tuple[str, str, int | None]], least: float) -> dict[str, Outcome]:
    """Check until the kinds are right, three times at most. Nothing may be early in any attempt."""
    for _ in range(ATTEMPTS):
        found = checked(url, *expected)
        for outcome in found.values():
            seconds = outcome.deadline.seconds
            assert seconds is None or seconds > least - 0.01
        if kinds(found) == expected:
            return found
    assert kinds(found) == expected
    return found


@pytest.mark.parametrize(
    ("end", "close", "status"), [("fin", "fin", None), ("rst", "rst", None), ("408", "response", 408)]
)
def test_an_absolute_deadline_and_how_it_ends(end: str, close: str, status: int | None) -> None:
    with slow_server(Rule("absolute", 0.5, end=end)) as server:
        found = until_right(server.url, dict.fromkeys(PHASES, ("absolute", close, status)), 0.5)
    assert {outcome.verdict for outcome in found.values()} == {"pass"}


def test_an_idle_timeout_is_no_defence_against_what_drips() -> None:
    with slow_server(Rule("idle", 0.5)) as server:
        found = until_right(server.url, dict.fromkeys(PHASES, ("idle", "fin", None)), 0.5)
    verdicts = {name: outcome.verdict for name, outcome in found.items()}
    assert verdicts == {"silent": "pass", "slow-header": "fail", "endless-header": "fail", "slow-body": "fail",
                        "stalled-body": "pass"}  # fmt: skip


def test_a_minimum_rate_is_found() -> None:
    expected: dict[str, tuple[str, str, int | None]] = dict.fromkeys(
        ["slow-body", "stalled-body"], ("min-rate", "fin", None)
    )
    with slow_server(Rule("min-rate", 0.5, rate=400)) as server:
        for _ in range(ATTEMPTS):
            least, most = until_right(server.url, expected, 0.5)["slow-body"].deadline.min_rate or (0.0, 0.0)
            if 200 <= least <= most <= 800:
                break
    # a busy machine delays pieces, which widens what is found
    assert 200 <= least <= most <= 800


def test_a_minimum_rate_in_windows_is_looked_at_more_closely() -> None:
    # a piece comes each tenth of a second: five of them in the first window, and none at its end
    with slow_server(Rule("windows", 0.55, rate=650)) as server:
        for _ in range(ATTEMPTS):
            found = checked(server.url, "slow-body", limit=5.0)
            least, most = found["slow-body"].deadline.min_rate or (0.0, math.inf)
            if most <= 1.5 * least:
                break
    # the first round knows that it lies between 500 and 1000, of which one that was open may have been about to end
    assert 400 <= least < most <= 1130
    assert most <= 1.5 * least


def test_no_deadline_is_said_after_the_limit_only() -> None:
    with slow_server(Rule("none")) as server:
        found = checked(server.url, *PHASES, "idle", "pipelined", limit=1.0)
    assert {outcome.deadline.kind for outcome in found.values()} == {"none"}
    assert {outcome.verdict for outcome in found.values()} == {"fail"}
    assert all(outcome.deadline.watched >= 1.0 for outcome in found.values())


def test_idle_connections_and_half_closed_ones() -> None:
    with slow_server(Rule("none", idle=0.4)) as server:
        found = until_right(server.url, {"idle": ("idle", "fin", None), "half-close": ("absolute", "fin", None)}, 0.0)
    assert found["idle"].deadline.seconds is not None
    assert found["idle"].deadline.seconds > 0.39


def test_the_deadline_of_a_second_head_is_measured_from_its_own_beginning() -> None:
    with slow_server(Rule("absolute", 0.5)) as server:
        until_right(server.url, {"pipelined": ("absolute", "fin", None)}, 0.5)


@pytest.mark.parametrize("end", ["fin", "rst"])
def test_a_client_that_does_not_read_sees_its_end_all_the_same(end: str) -> None:
    with slow_server(Rule("absolute", 0.5, end=end, large=1 << 20)) as server:
        found = checked(server.url, "slow-read")["slow-read"].deadline
    assert found.seconds is not None
    assert found.seconds > 0.49
    assert found.close == "rst" if end == "rst" else found.close in ("fin", "rst")


def test_a_server_without_keep_alive_ends_the_idle_at_once() -> None:
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
    with slow_server(Rule("absolute", 0.5, raw=raw)) as server:
        found = checked(server.url, "idle", limit=1.0)["idle"]
    assert (found.verdict, found.deadline.close) == ("pass", "fin")
    assert found.deadline.seconds is not None
    # well before the server's deadline
    assert found.deadline.seconds < 0.4


def test_a_websocket_that_is_never_pinged_is_held() -> None:
    with slow_server(Rule("none", fields="websocket")) as server:
        found = checked(server.url, "websocket-silent", limit=0.8)["websocket-silent"]
    assert (found.deadline.kind, found.verdict) == ("none", "fail")


def test_a_websocket_that_answers_no_ping_is_ended_and_one_that_does_is_not() -> None:
    with slow_server(Rule("idle", 0.5, fields="websocket")) as server:
        found = until_right(server.url, {"websocket-silent": ("idle", "fin", None)}, 0.5)
    assert found["websocket-silent"].verdict == "pass"


def test_a_server_that_is_too_slow_without_any_attack_cannot_be_graded() -> None:
    with slow_server(Rule(delay=1.5)) as server, pytest.raises(UnusableTargetError, match="answers 0 of 30 honest"):
        report(server.url, "silent", limit=0.6, connections=1)


def test_a_server_that_answers_no_more_in_the_end_fails() -> None:
    with slow_server(Rule("absolute", 0.2, breaks=4)) as server:
        whole = report(server.url, "half-close", limit=0.6)
    assert whole.grade == "F"
    assert "answers 500" in whole.gone


def test_a_server_that_refuses_is_not_said_to_have_ended_a_connection() -> None:
    with slow_server(Rule()) as server:
        target = resolve(server.url)
    with pytest.raises(UnusableTargetError, match=r"/ gives no answer: .*Connection refused"):
        ask(target)


def test_a_server_that_does_not_recover_from_a_crowd_is_not_attacked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtest.check.run.RECOVERY", 0.2)
    # one that sees if anybody listens, the first request, 30 of calm, 21 that are measured, and some of the crowd's
    with slow_server(Rule("absolute", 0.2, breaks=60)) as server:
        whole = report(server.url, "silent", "connection-flood", limit=0.6, connections=20)
    first, second = whole.outcomes
    assert whole.grade == "F"
    assert "after silent" in whole.gone
    assert (first.crowd >= 20, second.crowd, second.honest) == (True, 0, None)


def test_what_does_not_apply_says_why_and_does_not_count() -> None:
    with slow_server(Rule("absolute", 0.3)) as server:
        whole = report(server.url, "silent", "websocket-silent", "tls-silent", "handshake-flood", limit=1.0)
    verdicts = {outcome.attack.name: outcome.verdict for outcome in whole.outcomes}
    assert verdicts.pop("silent") == "pass"
    assert set(verdicts.values()) == {"not applicable"}
    assert whole.grade == "A"


def test_tls_silence_is_told_from_silence_before_the_handshake() -> None:
    with slow_server(Rule("absolute", 0.5), certificates().server) as server:
        url = server.url.replace("http:", "https:")
        for _ in range(ATTEMPTS):
            found = checked(url, "tls-silent", "silent")
            if kinds(found)["tls-silent"][0] == "absolute":
                break
    assert kinds(found)["tls-silent"][0] == "absolute"
    # asyncio's own handshake timeout is a minute
    assert found["silent"].deadline.kind == "none"


def test_honest_clients_are_heard_while_a_crowd_attacks() -> None:
    with slow_server(Rule("absolute", 0.5)) as server:
        whole = report(server.url, "silent", "connection-flood", limit=0.6, connections=20)
    for outcome in whole.outcomes:
        assert outcome.honest is not None
        assert outcome.honest.ok + outcome.honest.failed == 30
        assert outcome.crowd >= 20 if outcome.attack.enough else outcome.crowd > 0
    assert whole.calm.ok > 0


def test_a_server_that_serves_one_at_a_time_is_taken_away_by_silence() -> None:
    with one_at_a_time() as url:
        whole = report(url, "silent", limit=0.6, connections=10)
    honest = whole.outcomes[0].honest
    assert honest is not None
    assert honest.failed > honest.ok
    assert whole.grade == "F"


@contextmanager
def one_at_a_time() -> Iterator[str]:
    """Serve one connection after the other, as gunicorn's simplest worker does."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                try:
                    while connection.recv(65536):
                        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
                        break
                except OSError:
                    continue

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def test_deadlined_keeps_its_short_deadlines(start: Starter) -> None:
    server = start(
        "loadtest.apps:target",
        "--read-header",
        "500ms",
        "--body-grace",
        "500ms",
        "--body-min-rate",
        "400",
        "--idle",
        "100ms",
    )
    expected: dict[str, tuple[str, str, int | None]] = {
        "silent": ("absolute", "fin", None),
        "slow-header": ("absolute", "response", 408),
        "endless-header": ("absolute", "response", 408),
        "slow-body": ("min-rate", "response", 408),
        "stalled-body": ("min-rate", "response", 408),
        "idle": ("idle", "fin", None),
    }
    found = until_right(server.url, expected, 0.5)
    assert {outcome.verdict for outcome in found.values()} == {"pass"}


UVICORN = "uvicorn", "--port", "0", "--timeout-keep-alive", "1", "--no-access-log"
HYPERCORN = "hypercorn", "--bind", "127.0.0.1:0", "--keep-alive", "1"


@contextmanager
def peer(*command: str) -> Iterator[str]:
    """Run another server with the load test's application; give its URL."""
    module, *arguments = command
    process = subprocess.Popen(
        [sys.executable, "-m", module, "loadtest.apps:hello", *arguments],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                break
        else:
            pytest.fail(f"{module} does not listen")
        yield f"{found[0]}/"
    finally:
        process.terminate()
        process.stdout.close()
        process.wait()


def test_uvicorn_ends_nothing_but_idle_connections() -> None:
    pytest.importorskip("uvicorn")
    expected = {"silent": "none", "slow-header": "none", "idle": "idle"}
    with peer(*UVICORN) as url:
        whole = until_right_kinds(url, expected)
    found = {outcome.attack.name: outcome for outcome in whole.outcomes}
    assert whole.server == "uvicorn"
    assert "no such option" in found["silent"].advice
    assert found["idle"].advice == ""


def test_hypercorn_ends_silence_and_slow_heads_by_its_keep_alive() -> None:
    pytest.importorskip("hypercorn", reason="the extra test has it")
    with peer(*HYPERCORN) as url:
        until_right_kinds(url, {"silent": "absolute", "slow-header": "absolute", "idle": "idle"})


def until_right_kinds(url: str, expected: dict[str, str]) -> Report:
    """Check a server whose ends are its own affair until the kinds are right, three times at most."""
    for _ in range(ATTEMPTS):
        whole = report(url, *expected, limit=2.5)
        if found_kinds(whole) == expected:
            break
    assert found_kinds(whole) == expected
    return whole


def found_kinds(whole: Report) -> dict[str, str]:
    return {outcome.attack.name: outcome.deadline.kind for outcome in whole.outcomes}


@pytest.mark.parametrize("kind", ["absolute", "idle", "min-rate"])
def test_the_deadline_is_right_within_ten_milliseconds(kind: str) -> None:
    # a minimum rate counts the bytes of the head, too
    names = ["silent", "stalled-body", "idle", *(["slow-header"] if kind != "min-rate" else [])]
    for _ in range(ATTEMPTS):
        with slow_server(Rule(kind, 0.5, rate=400, idle=0.7)) as server:
            found = checked(server.url, *names, limit=2.0)
        seconds = {name: outcome.deadline.seconds for name, outcome in found.items()}
        error = max(outcome.deadline.clock_error for outcome in found.values())
        right = {name: pytest.approx(0.7 if name == "idle" else 0.5, abs=0.01) for name in names}
        if seconds == right and error < 0.01:
            break
    assert seconds == right
    assert error < 0.01
