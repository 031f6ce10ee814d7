"""What the pump counts, waits that must end, and runs in threads and forked children."""

from __future__ import annotations

import math
import os
import signal
import threading
import warnings
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from deadlined import Conn, DeadlineExceeded, statistics
from deadlined.poll import Half
from deadlined.runtime import Host, RuntimeStatistics, current_host
from deadlined.runtime.on_trio.parking import TaskParker, TrioParking
from tests.support.poll import conn_pair

HOUR = 3600.0


SURELY = 60.0  # seconds of real time: by then, or something is broken


async def wait(half: Half) -> int:
    """Park in the half."""
    return await TrioParking(half)


def counts() -> RuntimeStatistics:
    found = statistics()
    assert found is not None
    return found


def seconds_to_next_deadline() -> float:
    """Return the seconds that trio would sleep, and an autojump clock would jump."""
    return trio.lowlevel.current_statistics().seconds_to_next_deadline


async def expect_timeout(conn: Conn, when: float) -> None:
    """Read until the read deadline ends it, exactly at `when`."""
    with pytest.raises(DeadlineExceeded):
        await conn.receive_some()
    assert trio.current_time() == when


def run_once(between: Callable[[], object] = bool) -> Host:
    """Run trio with a deadline and an echo; call `between` in the middle."""

    async def main() -> Host:
        start = trio.current_time()
        async with conn_pair() as (conn, peer):
            between()
            conn.set_read_deadline(start + 5)
            await expect_timeout(conn, start + 5)
            between()
            conn.set_read_deadline(math.inf)
            await peer.send_all(b"echo")
            assert await conn.receive_some() == b"echo"
        return current_host()

    return trio.run(main, clock=MockClock(autojump_threshold=0))


async def park(parker: TaskParker) -> None:
    await parker


# for a test that forks: from 3.12 on Python warns of it if a thread of an earlier test is left, as trio leaves some
forks = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


def exit_status_of(child: Callable[[], None]) -> int:
    """Fork, run `child` there, and wait for it."""
    with warnings.catch_warnings():
        # from 3.12 on a fork with threads is warned of; the child starts only new ones
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(int(SURELY))
            child()
            status = 0
        except BaseException as error:
            os.write(2, f"in the child: {error!r}\n".encode())
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def in_thread(work: Callable[[], object]) -> None:
    """Run `work` in a thread, and let its error through."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
