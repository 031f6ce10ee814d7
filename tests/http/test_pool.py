"""Which workers a pool calls, and when: with tasks that are parked, as on trio, and with those that are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from deadlined.http.connection import Connection
from deadlined.http.pool import PoolWorker, WorkerPool
from deadlined.poll import Poller
from deadlined.runtime import ContainedTasks
from deadlined.timers import COMPILED

pytestmark = pytest.mark.skipif(COMPILED, reason="compiled: the workers of a pool cannot be played")


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
    """A pool whose workers do nothing but count."""

    def __init__(self, parks: bool) -> None:
        self.called = 0
        self.tasks = Tasks(parks)
        self.pool = WorkerPool(self.tasks, cast(Poller, None), self.new_worker)

    def new_worker(self, pool: WorkerPool) -> PoolWorker:
        return Called(self)

    def schedule(self, number: int) -> None:
        for name in range(number):
            self.pool.schedule(cast(Connection, name))

    def begin(self) -> Any:
        """Let a new worker run, and return the connection that it serves."""
        self.pool.begun(Called(self))
        return self.pool.next()


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
