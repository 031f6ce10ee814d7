"""Garbage: collected when the process has grown, the youngest first, and never without need."""

from __future__ import annotations

import gc
import http.client
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deadlined import after_func
from deadlined.runtime import LOOPS
from deadlined.service.process import garbage
from deadlined.service.process.garbage import AFTER, EVERY, GROWTH, PERIOD, SHARE, GarbageWatch, tune_gc, watch_garbage
from tests.support.command import PATIENCE, Starter

MB = 1_000_000

APPS = """
async def keeping(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    body = bytearray()
    more = True
    while more:
        message = await receive()
        body += message["body"]
        more = message["more_body"]
    try:
        raise ValueError("kept")
    except ValueError as error:
        kept = error
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})

held = 0

async def events():
    global held
    held += 1
    try:
        while True:
            yield b"event"
    finally:
        held -= 1

async def streaming(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/held":
        await send({"type": "http.response.body", "body": b"%d" % held})
        return
    generator = events()
    # frameworks make such a cycle of the error that ends a request
    cycle = [generator]
    cycle.append(cycle)
    try:
        async for event in generator:
            await send({"type": "http.response.body", "body": event, "more_body": True})
    except OSError:
        pass
"""


class Memory:
    """A process's memory: what is used, and garbage of each generation."""

    def __init__(self, used: int = 40 * MB) -> None:
        self.used = used
        self.garbage = [0, 0, 0]
        self.freed = 0
        self.collected: list[int] = []
        # a clock, and by how much a collection advances it
        self.seconds = self.takes = 0.0
        # what was asked to be called later, in how many seconds
        self.later: list[tuple[float, Callable[[], object]]] = []
        self.watch = GarbageWatch(
            self.resident, self.collect, self.trim, lambda *call: self.later.append(call), self.perf_counter
        )

    def resident(self) -> int:
        return self.used + sum(self.garbage) + self.freed

    def perf_counter(self) -> float:
        return self.seconds

    def collect(self, generation: int) -> None:
        self.seconds += self.takes
        self.collected.append(generation)
        self.freed += sum(self.garbage[: generation + 1])
        self.garbage[: generation + 1] = [0] * (generation + 1)

    def trim(self) -> None:
        self.freed = 0

    def check(self) -> list[int]:
        """Return the generations that a check collects."""
        self.collected.clear()
        self.watch.check()
        return list(self.collected)


@pytest.mark.parametrize("generation", [0, 1, 2])
def test_garbage_is_collected_by_the_first_collection_that_finds_it(generation: int) -> None:
    memory = Memory()
    memory.garbage[generation] = GROWTH[generation]
    expected = [each for each in range(generation) if GROWTH[each] < GROWTH[generation]]
    assert memory.check() == expected
    memory.garbage[generation] += GROWTH[-1]
    memory.check()
    assert memory.garbage[generation] == 0
    assert memory.check() == []


def test_a_process_that_does_not_grow_is_left_alone() -> None:
    memory = Memory()
    memory.used += GROWTH[0]
    assert memory.check() == []


def test_growth_that_is_no_garbage_costs_few_collections_of_everything() -> None:
    memory = Memory()
    collected = []
    for _ in range(10_000):
        memory.used += MB
        collected += memory.check()
    assert collected.count(0) <= 10_000 * MB / GROWTH[0] + 1
    # each half as much again as the one before
    assert collected.count(2) <= 15


def test_what_survived_a_young_collection_is_bounded() -> None:
    memory = Memory()
    most = 0
    for _ in range(10_000):
        # half of the requests run while the youngest generation is collected
        memory.garbage[0] += MB // 2
        memory.garbage[1] += MB // 4
        memory.garbage[2] += MB // 4
        most = max(most, memory.resident())
        memory.check()
    assert most <= memory.used + GROWTH[2] + GROWTH[1] + MB


def test_limits_follow_a_process_that_has_shrunk() -> None:
    memory = Memory(1000 * MB)
    memory.used = 40 * MB
    memory.garbage[2] = 2 * GROWTH[2]
    memory.watch.check()
    memory.garbage[0] = 1000 * MB
    assert memory.check() == [0]
    memory.garbage[2] += 2 * GROWTH[2]
    assert memory.check() == [0, 1, 2]


def test_everything_is_collected_once_soon_after_handlers_were_cut() -> None:
    memory = Memory()
    for _ in range(10):
        memory.watch.note_cut()
    ((seconds, collect),) = memory.later
    assert (seconds, memory.collected) == (AFTER, [])
    collect()
    assert memory.collected == [2]
    memory.watch.note_cut()
    assert len(memory.later) == 2


def test_the_end_does_not_wait_for_a_collection() -> None:
    memory = Memory()
    memory.watch.end()
    assert memory.collected == []
    memory.watch.note_cut()
    memory.watch.end()
    assert memory.collected == [2]
    ((_, collect),) = memory.later
    collect()
    assert memory.collected == [2]


def test_a_collection_that_takes_long_is_not_repeated_soon() -> None:
    memory = Memory()
    memory.takes = 0.2
    for pause in (AFTER, 0.2 * SHARE, 0.2 * SHARE):
        memory.watch.note_cut()
        seconds, collect = memory.later[-1]
        assert seconds == pytest.approx(pause)
        collect()


@pytest.mark.parametrize(("seconds", "expected"), [(PERIOD, 10), (PERIOD / 3, 4), (0.0, 1)])
def test_the_size_is_read_before_one_request_in_some_and_not_too_often(seconds: float, expected: int) -> None:
    """`seconds` pass in EVERY requests."""
    memory = Memory()
    reads = 0

    def resident() -> int:
        nonlocal reads
        reads += 1
        return memory.used

    watch = GarbageWatch(resident, memory.collect, memory.trim, after_func, memory.perf_counter)
    reads = 0
    handled = []

    async def handle(request: int) -> None:
        handled.append(request)

    watched = watch.watching(handle)
    for number in range(10 * EVERY):
        watched(number).close()
        memory.seconds += seconds * (number % EVERY == 0)
    assert reads == expected
    assert handled == []


@pytest.fixture
def collector_as_before() -> Iterator[None]:
    before = gc.get_threshold()
    # what the tests' own process has frozen
    gc.unfreeze()
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("collector_as_before")
def test_what_exists_is_frozen_and_the_thresholds_are_high() -> None:
    tune_gc()
    assert gc.get_freeze_count() > 1000
    assert gc.get_threshold()[0] >= 10_000


def test_this_process_is_watched() -> None:
    with watch_garbage() as watch:
        size = watch._resident()
        assert 5 * MB < size < 100_000 * MB
        held = bytearray(os.urandom(1)) * (50 * MB)
        assert watch._resident() >= size + 40 * MB
        del held
        watch._collect(0)
        watch._trim()
        watch.check()


def test_without_proc_the_process_is_watched_by_its_largest_size(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(garbage, "_STATM", str(tmp_path / "statm"))
    with watch_garbage() as watch:
        size = watch._resident()
        assert 5 * MB < size < 100_000 * MB
        watch.check()
        assert watch._resident() >= size


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("parser", ["h11", "httptools"])
def test_requests_that_leave_their_bodies_in_cycles_do_not_pile_up(start: Starter, tmp_path: Path, parser: str) -> None:
    (tmp_path / "cycles.py").write_text(APPS)
    process = start("cycles:keeping", "--no-access-log", "--http", parser)
    statm = Path(f"/proc/{process.pid}/statm")

    def resident() -> int:
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    before = resident()
    client = http.client.HTTPConnection("127.0.0.1", process.port, timeout=PATIENCE)
    for _ in range(200):
        client.request("POST", "/", b"x" * MB)
        assert client.getresponse().read() == b""
        assert resident() < before + GROWTH[0] + 50 * MB
    client.close()


@pytest.mark.parametrize("loop", LOOPS)
def test_what_handlers_hold_that_were_cut_is_freed_without_any_growth(
    start: Starter, tmp_path: Path, loop: str
) -> None:
    (tmp_path / "cycles.py").write_text(APPS)
    process = start("cycles:streaming", "--no-access-log", "--loop", loop)
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", process.port), timeout=PATIENCE) as leaving:
            leaving.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            assert b"event" in leaving.recv(65536) + leaving.recv(65536)

    def held() -> bytes:
        client = http.client.HTTPConnection("127.0.0.1", process.port, timeout=PATIENCE)
        client.request("GET", "/held")
        answer = client.getresponse().read()
        client.close()
        return answer

    # the test's own time limit ends this
    while held() != b"0":
        time.sleep(0.05)
