"""The clients of `python -m loadtest check`, one turn of their loop at a time."""

from __future__ import annotations

import select
import socket
import struct
import time
from itertools import pairwise

import pytest

from loadtest.check.probe import Probe, State
from loadtest.check.scripts import CLOSER, FILLING, POKE, Facts, Script, Seen, closer, fills, scripts
from loadtest.loop import Loop
from loadtest.target import Target, resolve
from tests.support.slow_servers import Rule, slow_server


class Clock:
    """A clock that says what it is told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_error_of_an_event_that_came_while_the_process_worked_is_the_time_since_it_looked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr("loadtest.loop.monotonic", clock)
    seen: list[tuple[float, float]] = []
    one, other = socket.socketpair()
    with one, other:
        loop = Loop()
        loop.watch(one.fileno(), 1, lambda mask, now, error: seen.append((now, error)))
        loop.turn(100.0)
        other.send(b"x")
        clock.now = 100.25
        loop.turn(100.25)
        loop.close()
    assert seen == [(100.25, 0.25)]


@pytest.mark.parametrize("gulp", [None, 0])
def test_a_reset_that_a_piece_runs_into_is_not_taken_for_a_fin(gulp: int | None) -> None:
    seen: list[Seen] = []
    loop = Loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = resolve(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        listener.accept()[0].close()
        script = Script("slow-read", "poked", opening=b"x", piece=b"a", interval=0.01, gulp=gulp)
        probe = Probe(script, target, None, loop, 20.0, seen.append)
        probe.start(0.0)
        accepted, _ = listener.accept()
        while not probe.attacks:
            loop.turn(0.0)

        def reset(_: float) -> None:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            accepted.close()

        # in one turn: the reset, and then the piece that is due
        time.sleep(0.02)
        loop.at(0.0, reset)
        while not seen:
            loop.turn(0.0)
    loop.close()
    assert [one.close for one in seen] == ["rst"]


def test_a_response_that_was_read_late_is_an_error_of_the_time_that_counts_from_it() -> None:
    seen: list[Seen] = []
    loop = Loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = resolve(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        listener.accept()[0].close()
        probe = Probe(Script("idle", "stalled", opening=b"x", answers=1), target, None, loop, 20.0, seen.append)
        probe.start(0.0)
        accepted, _ = listener.accept()
        with accepted:
            while probe.state is State.OPENING:
                loop.turn(0.0)
            assert accepted.recv(1) == b"x"
            accepted.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
            # the client has other work
            time.sleep(0.05)
            while not probe.attacks:
                loop.turn(0.0)
        while not seen:
            loop.turn(time.monotonic() + 1.0)
    loop.close()
    assert seen[0].close == "fin"
    assert seen[0].error >= 0.05


def test_a_late_client_sends_what_was_due_meanwhile() -> None:
    seen: list[Seen] = []
    loop = Loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = resolve(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        probe = Probe(Script("slow-body", "dripped", piece=b"a", interval=0.01), target, None, loop, 20.0, seen.append)
        probe.start(0.0)
        while not probe.attacks:
            loop.turn(0.0)
        time.sleep(0.5)
        loop.turn(0.0)
        probe.stop(0.0)
    loop.close()
    # at the same speed as if it had been in time
    assert seen[0].went >= 49


def test_timers_run_in_the_order_of_their_times(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("loadtest.loop.monotonic", clock)
    loop, ran = Loop(), []
    for when in (103.0, 101.0, 102.0, 105.0):
        loop.at(when, lambda now, when=when: ran.append((when, now)))  # type: ignore[misc]
    clock.now = 104.0
    loop.turn(104.0)
    loop.close()
    assert ran == [(101.0, 104.0), (102.0, 104.0), (103.0, 104.0)]


def test_the_rates_that_are_tried_between_two_are_as_far_apart() -> None:
    with slow_server(Rule()) as server:
        facts = Facts(resolve(server.url), 1_000, websocket=False, limit=10.0)
    found = closer(facts, "slow-body", (100.0, 400.0))
    assert {(one.attack, one.role) for one in found} == {("slow-body", "closer")}
    rates = sorted({one.rate for one in found})
    assert len(rates) == CLOSER
    steps = [fast / slow for slow, fast in pairwise([100.0, *rates, 400.0])]
    assert steps == pytest.approx([steps[0]] * len(steps))


@pytest.mark.parametrize(
    ("size", "most", "enough"),
    [
        (50_000, 5000, True),
        (50_000, 1, False),
        (FILLING - 1, 1, False),
        (FILLING, 1, True),
        (9, 5000, False),
        (FILLING // 100, 99, False),
        (FILLING // 100, 100, True),
    ],
)
def test_a_server_that_closes_fills_its_buffers_by_the_responses_before_that_or_not_at_all(
    size: int, most: int, enough: bool
) -> None:
    target = Target("http://127.0.0.1/", 2, ("127.0.0.1", 80), "127.0.0.1", "127.0.0.1", "/", False)
    facts = Facts(target, size, websocket=False, limit=10.0, most=most)
    assert fills(facts) is enough
    asked = {one.opening.count(b"\r\n\r\n") for one in scripts(facts, frozenset({"slow-read"}))}
    assert max(asked) <= most, "what it does not answer is not asked for"


@pytest.mark.parametrize("size", [20, 121, 20_000])
def test_a_server_whose_client_reads_nothing_has_to_wait_whatever_the_size_of_its_responses(size: int) -> None:
    seen: list[Seen] = []
    loop = Loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = resolve(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        listener.accept()[0].close()
        probe = Probe(Script("slow-read", "stalled", gulp=0), target, None, loop, 20.0, seen.append)
        probe.start(0.0)
        accepted, _ = listener.accept()
        with accepted:
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            taken = 0
            while taken < FILLING and select.select([], [accepted], [], 0.2)[1]:
                taken += accepted.send(bytes(size))
    probe.stop(0.0)
    loop.close()
    assert taken < FILLING / 2


def test_what_is_poked_is_poked_until_the_longest_watch_ends() -> None:
    target = Target("http://127.0.0.1/", 2, ("127.0.0.1", 80), "127.0.0.1", "127.0.0.1", "/", False)
    found = scripts(Facts(target, 121, websocket=False, limit=3600.0), frozenset({"slow-read"}))
    poked = [one for one in found if one.role == "poked"]
    assert poked
    assert all(one.cap - len(one.opening) > 3600.0 / POKE for one in poked)
