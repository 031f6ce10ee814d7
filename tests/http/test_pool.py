"""Which workers a pool calls, and when: with tasks that are parked, as on trio, and with those that are not."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from deadlined.http.base import ConnectionBase
from deadlined.http.connection import Connection
from deadlined.http.pool import PoolWorker, WorkerPool
from deadlined.poll import Poller
from deadlined.runtime import ContainedTask, ContainedTasks
from tests.support.builds import interpreted_only

pytestmark = interpreted_only


class Tasks(ContainedTasks):
    """Keeps what is to be called at the end of the turn."""

    def __init__(self, parks: bool) -> None:
        self.parks = parks
        self.due: list[Callable[[], object]] = []

    def call_soon(self, function: Callable[[], object]) -> None:
        self.due.append(function)

    def end_turn(self) -> None:
        due, self.due = self.due, []
        for call in due:
            call()


class Site:
    """A pool whose workers do nothing but count, and a clock that stands still."""

    def __init__(self, parks: bool) -> None:
        self.called = 0
        self.now = 100.0
        self.tasks = Tasks(parks)
        poller = SimpleNamespace(clock=SimpleNamespace(now=lambda: self.now))
        self.pool = WorkerPool(self.tasks, cast(Poller, poller), self.new_worker)

    def respond(self) -> bool:
        """Make a response. Return True if it waits for the end of the turn."""
        return self.pool.flush_later(
            cast(ConnectionBase, Flushed()), cast(ContainedTask, SimpleNamespace(runs_now=True))
        )

    def new_worker(self, pool: WorkerPool) -> PoolWorker:
        return Called(self)

    def schedule(self, number: int) -> None:
        for name in range(number):
            self.pool.schedule(cast(Connection, name))

    def begin(self) -> Any:
        """Let a new worker run, and return the connection that it serves."""
        self.pool.begun(Called(self))
        return self.pool.next()


class Flushed:
    """A connection that can be flushed."""

    peer = "somebody"

    def flush(self) -> None:
        pass


class Called(PoolWorker):
    """A worker that never runs by itself."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def start(self) -> None:
        self._site.called += 1

    def call_others(self) -> None:
        self._site.pool.call_workers()


def test_one_worker_is_called_for_all_that_are_ready() -> None:
    site = Site(parks=True)
    site.schedule(5)
    assert site.called == 1
    assert site.begin() == 0


def test_when_it_suspends_each_of_the_others_gets_one_at_the_end_of_the_turn() -> None:
    site = Site(parks=True)
    site.schedule(5)
    site.begin()
    site.pool.leave_others()
    assert site.called == 1
    site.tasks.end_turn()
    assert site.called == 5
    assert [site.begin() for _ in range(4)] == [1, 2, 3, 4]


@pytest.mark.parametrize("taken", range(5))
def test_none_is_called_for_what_others_have_taken_by_then(taken: int) -> None:
    site = Site(parks=True)
    site.schedule(5)
    site.begin()
    site.pool.leave_others()
    for _ in range(taken):
        site.pool.next()
        # its handler suspends as well
        site.pool.leave_others()
    assert len(site.tasks.due) == 1
    site.tasks.end_turn()
    assert site.called == max(5 - taken, 1)


def test_those_that_are_coming_already_count() -> None:
    site = Site(parks=True)
    site.schedule(3)
    site.begin()
    site.pool.leave_others()
    site.tasks.end_turn()
    site.pool.leave_others()
    assert site.tasks.due == []
    assert site.called == 3


def test_a_pool_that_is_closed_meanwhile_calls_none() -> None:
    site = Site(parks=True)
    site.schedule(3)
    site.begin()
    site.pool.leave_others()
    site.pool.close()
    site.tasks.end_turn()
    assert site.called == 1


def test_where_no_task_is_parked_the_others_get_theirs_at_once() -> None:
    site = Site(parks=False)
    site.schedule(3)
    site.begin()
    site.pool.leave_others()
    assert site.called == 3


def test_where_no_task_is_parked_a_call_sees_whether_the_first_has_suspended() -> None:
    site = Site(parks=False)
    site.schedule(3)
    site.begin()
    assert site.called == 1
    site.tasks.end_turn()
    assert site.called == 3


@pytest.mark.parametrize("parks", [False, True])
def test_responses_wait_for_the_end_of_the_turn_while_no_handler_blocks(parks: bool) -> None:
    site = Site(parks)
    for _ in range(100):
        assert site.respond()
        assert site.respond()
        site.now += 0.004
        site.pool.flush()
        site.now += 3.0


@pytest.mark.parametrize("parks", [False, True])
def test_after_a_handler_that_blocks_each_response_is_sent_at_once_for_a_while(parks: bool) -> None:
    site = Site(parks)
    assert site.respond()
    site.now += 0.006
    # the response that ends the wait of the first; it is sent at once itself
    assert not site.respond()
    for _ in range(70):
        site.now += 0.004
        assert not site.respond()
    for _ in range(10):
        site.now += 0.004
        site.respond()
    assert site.respond(), "0.3 seconds after the block"


def test_a_short_block_behind_a_long_one_does_not_shorten_that() -> None:
    site = Site(parks=True)
    assert site.respond()
    site.now += 0.1
    assert not site.respond()
    site.now += 0.006
    assert not site.respond()
    # a second from the long block, and 0.3 from the short one
    site.now += 0.8
    assert not site.respond()


def test_it_goes_on_while_handlers_block_again_and_again() -> None:
    site = Site(parks=True)
    assert site.respond()
    site.now += 0.02
    site.pool.flush()
    for _ in range(500):
        assert not any(site.respond() for _ in range(10))
        site.now += 0.02
    assert not site.respond()
    for _ in range(250):
        site.now += 0.004
        site.respond()
    assert site.respond(), "a second after the last block"
