"""Code that blocks the event loop is reported once, with its stack; a loop that is idle is left alone."""

from __future__ import annotations

import ctypes
import math
import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from deadlined import Conn, Timer
from deadlined.runtime import LOOPS, current_host, run
from deadlined.service.process.block_reports import BlockReports
from deadlined.service.process.pulse import Pulse, Step
from deadlined.service.process.stalls import StallWatch
from tests.support.command import Starter, assert_one_line
from tests.support.command import run as run_command
from tests.support.on_loops import PATIENCE

# seconds, more than a selector waits at once
MONTHS = 90 * 86_400.0

# the rule, in virtual time


def test_a_loop_that_answers_and_polls_is_asked_again() -> None:
    pulse = Pulse(1.0)
    assert [pulse.check(at / 10, at, True) for at in range(5)] == [Step.ASK] * 5


def test_a_loop_that_answers_and_has_not_polled_is_left_alone() -> None:
    pulse = Pulse(1.0)
    assert pulse.check(0.0, 7, False) is Step.ASK
    assert pulse.check(0.1, 7, True) is Step.ASK
    assert pulse.check(0.2, 7, True) is Step.SLEEP
    # it has polled again, or events wait for it
    assert pulse.check(9.0, 7, True) is Step.ASK
    assert pulse.check(9.1, 7, True) is Step.ASK
    assert pulse.check(9.2, 7, True) is Step.SLEEP


def test_one_that_answers_once_before_the_code_that_blocks_it_is_reported() -> None:
    """The latest poll has woken that code, and in the same turn the answer comes first."""
    pulse = Pulse(1.0)
    assert pulse.check(0.0, 7, False) is Step.ASK
    assert pulse.check(0.1, 7, True) is Step.ASK
    assert [pulse.check(at / 10, 7, False) for at in (2, 10, 11, 12)] == [Step.WAIT, Step.WAIT, Step.REPORT, Step.WAIT]


def test_one_that_polls_between_two_answers_is_not_idle() -> None:
    pulse = Pulse(1.0)
    steps = [pulse.check(at / 10, polls, True) for at, polls in enumerate([7, 7, 8, 8, 9, 9, 9])]
    assert steps == [Step.ASK] * 6 + [Step.SLEEP]


def test_a_loop_that_does_not_answer_is_reported_once_and_at_the_threshold() -> None:
    pulse = Pulse(1.0)
    steps = [pulse.check(at / 4, 7, False) for at in range(12)]
    assert steps == [Step.ASK, *[Step.WAIT] * 3, Step.REPORT, *[Step.WAIT] * 7]


def test_one_that_has_answered_late_is_reported_again_the_next_time() -> None:
    pulse = Pulse(1.0)
    steps = [pulse.check(at, at // 3, at % 3 == 0) for at in range(6)]
    assert steps == [Step.ASK, Step.REPORT, Step.WAIT] * 2


def test_a_block_that_has_kept_the_thread_from_checking_is_reported_once() -> None:
    pulse = Pulse(1.0)
    assert pulse.check(0.0, 7, False) is Step.ASK
    pulse.reported()
    assert pulse.check(3.0, 7, False) is Step.WAIT
    # the next one is another one
    assert [pulse.check(at, 7, at == 4.0) for at in (4.0, 5.0)] == [Step.ASK, Step.REPORT]


def test_the_next_check_is_not_later_than_the_threshold() -> None:
    pulse = Pulse(1.0)
    assert pulse.next_check(0.0, 0.4) == 0.4
    pulse.check(0.1, 7, False)
    assert pulse.next_check(0.9, 0.4) == 1.1
    assert pulse.next_check(1.1, 0.4) == 1.5


# the thread

Reports = SimpleQueue[dict[str, Any]]


def watched(loop: str, act: Callable[[Reports], object], threshold: float = 0.05) -> Reports:
    """Call `act` in a loop under a StallWatch, right after a poll. Return what was reported."""
    reports: Reports = SimpleQueue()

    async def main() -> None:
        def log(event: str, **fields: object) -> None:
            reports.put({"event": event, **fields})

        with StallWatch(current_host(), threshold, log):
            await next_poll()
            act(reports)

    run(loop, main)
    return reports


def block_until_reported(reports: Reports) -> None:
    reports.put(reports.get(timeout=PATIENCE))


@pytest.mark.parametrize("loop", LOOPS)
def test_code_that_blocks_is_reported_with_its_stack(loop: str) -> None:
    report = watched(loop, block_until_reported).get_nowait()
    assert report["event"] == "event loop blocked"
    assert (report["file"], report["function"]) == (__file__, "block_until_reported")
    assert "reports.put(reports.get(timeout=PATIENCE))" in report["stack"]
    # the frames that run the loop are not shown
    assert "def run(" not in report["stack"]
    assert "test_code_that_blocks" not in report["stack"]


@pytest.mark.parametrize("loop", LOOPS)
def test_code_that_blocks_the_interpreter_too_is_reported_afterwards(loop: str) -> None:
    def hold(reports: Reports) -> None:
        ctypes.PyDLL(None).usleep(300_000)
        block_until_reported(reports)

    assert watched(loop, hold).get_nowait()["seconds"] > 0.2


@pytest.mark.parametrize("loop", LOOPS)
def test_an_idle_loop_lets_the_thread_sleep(loop: str) -> None:
    async def main() -> None:
        poller = current_host().poller
        with StallWatch(current_host(), 0.05, lambda *_, **__: None):
            # the watch sets it only when it sleeps without a limit
            while poller.on_next_poll is None:
                await pause(loop)
            await next_poll()
            while poller.on_next_poll is None:
                await pause(loop)
        assert poller.on_next_poll is None

    run(loop, main)


async def next_poll() -> None:
    """Sleep in the poller's timer queue."""
    await Timer(0.001).wait()


async def pause(loop: str) -> None:
    """Sleep without the poller."""
    if loop == "trio":
        import trio

        await trio.sleep(0.005)
    else:
        import asyncio

        await asyncio.sleep(0.005)


@pytest.mark.parametrize("loop", LOOPS)
def test_an_idle_loop_that_is_blocked_is_noticed_when_a_client_comes(loop: str) -> None:
    from deadlined import open_tcp_listeners

    reports: Reports = SimpleQueue()

    async def main() -> None:
        (listener,) = await open_tcp_listeners(0, host="127.0.0.1")
        poller = current_host().poller
        with StallWatch(current_host(), 0.05, lambda event, **fields: reports.put({"event": event, **fields})):
            while poller.on_next_poll is None:
                await pause(loop)
            import socket

            with socket.create_connection(listener.socket.getsockname()):
                block_until_reported(reports)
        listener.close()

    run(loop, main)
    assert reports.get_nowait()["function"] == "block_until_reported"


def test_a_poll_that_was_heard_of_too_late_is_no_time_of_the_next_sleep() -> None:
    """The thread was awake already, because a client had come; the next one would be a stall as long as the pause."""

    async def main() -> None:
        watch = StallWatch(current_host(), math.inf, lambda *_, **__: None)
        watch._woken, watch._waker = os.pipe()
        watch._rouse()
        # its byte ends this sleep in place of a client
        asleep = time.monotonic()
        assert watch._sleep() >= asleep
        for end in (watch._woken, watch._waker):
            os.close(end)

    run("asyncio", main)


def reported_by(reports: BlockReports) -> None:
    """Let another thread report what this one does now."""
    thread = threading.Thread(target=reports.report, args=(1.0,))
    thread.start()
    thread.join()


def report_once_it_waits(reports: BlockReports, end: socket.socket) -> None:
    """Report in another thread, once this one waits in a selector or for trio's events; then send a byte to `end`."""
    watched = threading.get_ident()

    def report() -> None:
        while sys._current_frames()[watched].f_code.co_name not in ("select", "get_events"):
            time.sleep(0.001)
        reports.report(1.0)
        end.send(b"x")

    threading.Thread(target=report).start()


@pytest.mark.parametrize("loop", LOOPS)
def test_code_that_waits_in_a_selector_is_a_block(loop: str) -> None:
    """`subprocess.run` does, if it reads two pipes."""
    said: list[str] = []

    def read_pipe(reports: BlockReports) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs, selectors.DefaultSelector() as selector:
            selector.register(ours, selectors.EVENT_READ)
            report_once_it_waits(reports, theirs)
            selector.select()

    async def main() -> None:
        read_pipe(BlockReports(lambda _, **fields: said.append(fields["function"]), lambda *_: None))

    run(loop, main)
    assert said == ["read_pipe"]


@pytest.mark.parametrize("loop", ["trio", "asyncio"])
def test_a_loop_that_waits_for_events_is_not_blocked(loop: str) -> None:
    async def main() -> int:
        reports = BlockReports(lambda *_, **__: None, lambda *_: None)
        ours, theirs = socket.socketpair()
        async with Conn.from_socket(ours) as conn:
            with theirs:
                report_once_it_waits(reports, theirs)
                assert await conn.receive_some(1) == b"x"
        return reports.count

    assert run(loop, main) == 0


def test_a_place_is_reported_once_and_two_places_not_at_once() -> None:
    said: list[str] = []

    async def main() -> None:
        reports = BlockReports(lambda _, **fields: said.append(fields["function"]), lambda *_: None)

        def other() -> None:
            reported_by(reports)

        reported_by(reports)
        reported_by(reports)
        other()
        assert said == ["reported_by"]
        # what is not logged again is counted
        assert reports.count == 3
        # later
        reports._quiet_until = -math.inf
        reported_by(reports)
        assert said == ["reported_by"]

    run("trio", main)


def test_every_block_is_noted_also_one_that_is_not_logged_again() -> None:
    said: list[str] = []
    noted: list[tuple[str, str, str]] = []

    async def main() -> None:
        reports = BlockReports(lambda _, **fields: said.append(fields["stack"]), lambda *block: noted.append(block))
        reported_by(reports)
        reported_by(reports)

    run("trio", main)
    (stack,) = said
    assert noted[0] == (__file__, "reported_by", stack)
    assert [block[:2] for block in noted] == [(__file__, "reported_by")] * 2


def test_a_long_stack_is_cut_at_its_outer_end() -> None:
    said: list[str] = []

    async def main() -> None:
        reports = BlockReports(lambda _, **fields: said.append(fields["stack"]), lambda *_: None)

        def even(depth: int) -> None:
            if depth:
                odd(depth - 1)
            else:
                reported_by(reports)

        def odd(depth: int) -> None:
            even(depth - 1)

        even(200)

    run("trio", main)
    (stack,) = said
    assert len(stack) < 3100
    assert stack.startswith("...  ")
    assert "in reported_by" in stack


@pytest.mark.parametrize("threshold", [0.0, -1.0, math.nan])
def test_a_threshold_that_is_none(threshold: float) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="above 0"):
            StallWatch(current_host(), threshold, lambda *_, **__: None)

    run("trio", main)


def test_a_wait_of_months_is_no_error() -> None:
    async def main() -> None:
        watch = StallWatch(current_host(), 8 * MONTHS, lambda *_, **__: None)
        watch._woken, waker = os.pipe()
        os.write(waker, b"x")
        watch._poll([watch._woken], MONTHS)
        os.close(watch._woken)
        os.close(waker)

    run("trio", main)


def test_without_a_threshold_there_is_no_thread() -> None:
    before = threading.active_count()
    watched("trio", lambda _: None if threading.active_count() == before else pytest.fail("a thread"), math.inf)


def test_a_process_without_threads_is_served_unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    report = watched("trio", lambda _: None).get_nowait()
    assert report == {
        "event": "the event loop is not watched",
        "level": "warning",
        "why": "can't start new thread",
    }


# the command


@pytest.mark.parametrize("loop", LOOPS)
def test_the_log_says_once_where_the_application_blocks(start: Starter, tmp_path: Path, loop: str) -> None:
    process = start("apps:blocking", "--loop", loop, "--stall-log", "100ms", "--drain", "100ms")
    with process.begin():
        blocked = process.wait_for("event loop blocked")
    assert (Path(blocked["file"]).name, blocked["function"]) == ("apps.py", "blocking")
    assert "time.sleep(0.1)" in blocked["stack"]
    process.signal()
    # it is ended by the thread that waits for the drain
    assert process.end()[0] == 1
    assert len(process.events("event loop blocked")) == 1


def test_the_option_is_checked() -> None:
    assert_one_line(run_command("serve", "--stall-log", "0"), 2, "--stall-log")
    assert_one_line(run_command("serve", "--stall-log", "soon"), 2, "--stall-log")
