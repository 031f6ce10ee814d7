"""The port of macOS and the BSDs, against a kernel that is played here and checks every call.

Written after kqueue(2) and the documentation of Python's `select`: what real kernels do beyond that is not tested.
"""

from __future__ import annotations

import errno
import itertools
import math
from collections.abc import Iterable
from typing import Any

import pytest

import deadlined.poll.kqueue
from deadlined.poll import CLOSED, ERROR, EXPIRED, HANGUP, OK, READ, URGENT, WRITE, Poller
from deadlined.poll.kqueue import KqueuePort
from deadlined.poll.port import MAX_EVENTS, MAX_WAIT
from tests.support.poll import NOW, park

FD = 4


class Kevent:
    """`select.kevent`."""

    def __init__(
        self,
        ident: int,
        filter: int = -1,  # noqa: A002, the name of the real one
        flags: int = 1,
        fflags: int = 0,
        data: int = 0,
        udata: int = 0,
    ) -> None:
        for number in (ident, filter, flags, fflags, data, udata):
            assert type(number) is int, f"{number!r} does not fit into a struct kevent"
        self.ident = ident
        self.filter = filter
        self.flags = flags
        self.fflags = fflags
        self.data = data
        self.udata = udata


class Kernel:
    """Stands for the module `select` of a BSD, and plays the kernel behind it.

    `calls` lists the changes of each call as (fd, filter, flags), `waits` the timeouts. A wait that finds nothing lets
    its timeout pass on the clock `now`.
    """

    # sys/event.h, the same on macOS and FreeBSD
    KQ_FILTER_READ = -1
    KQ_FILTER_WRITE = -2
    KQ_EV_ADD = 0x1
    KQ_EV_DELETE = 0x2
    KQ_EV_CLEAR = 0x20
    KQ_EV_ERROR = 0x4000
    KQ_EV_EOF = 0x8000

    kevent = Kevent

    def __init__(self) -> None:
        self.now = NOW
        self.calls: list[list[tuple[int, int, int]]] = []
        self.waits: list[float | None] = []
        self.queues: list[Queue] = []
        self.descriptors: set[int] = set()

    def kqueue(self) -> Queue:
        queue = Queue(self)
        self.queues.append(queue)
        return queue

    def open(self, fd: int) -> None:
        """A new socket: there is room to write from the beginning, as the filter says when it is added."""
        assert fd not in self.descriptors
        self.descriptors.add(fd)

    def close(self, fd: int) -> None:
        """The filters of a descriptor go with it."""
        self.descriptors.remove(fd)
        for queue in self.queues:
            queue.forget(fd)

    def happens(self, fd: int, filter_: int, flags: int = 0) -> None:
        """Activate a filter in every queue where it is."""
        for queue in self.queues:
            queue.activate(fd, filter_, flags)

    def readable(self, fd: int) -> None:
        self.happens(fd, self.KQ_FILTER_READ)

    def writable(self, fd: int) -> None:
        self.happens(fd, self.KQ_FILTER_WRITE)

    def fin(self, fd: int) -> None:
        self.happens(fd, self.KQ_FILTER_READ, self.KQ_EV_EOF)


class Queue:
    """`select.kqueue()`."""

    _numbers = itertools.count(1000)

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.closed = False
        self.number = next(self._numbers)
        # the filters that are in the queue, and of those the active ones with their flags, oldest first
        self.filters: set[tuple[int, int]] = set()
        self.active: dict[tuple[int, int], int] = {}

    def fileno(self) -> int:
        assert not self.closed, "fileno of a closed kqueue"
        return self.number

    def close(self) -> None:
        self.closed = True

    def control(
        self, changelist: Iterable[Kevent] | None, max_events: int, timeout: float | None = None, /
    ) -> list[Kevent]:
        if self.closed:
            raise ValueError("I/O operation on closed kqueue object")
        assert type(max_events) is int
        assert max_events >= 0
        if timeout is not None:
            assert isinstance(timeout, int | float)
            assert 0 <= timeout < 1 << 31, "negative, or more than a time_t of 32 bits holds"
        if changelist is not None:
            assert (max_events, timeout) == (0, 0), "a change must neither wait nor take events that it throws away"
            self.change(list(changelist))
            return []
        assert max_events == MAX_EVENTS
        self.kernel.waits.append(timeout)
        return self.take(max_events, timeout)

    def change(self, changes: list[Kevent]) -> None:
        kernel = self.kernel
        assert all(type(change) is Kevent for change in changes)
        kernel.calls.append([(change.ident, change.filter, change.flags) for change in changes])
        assert {change.filter for change in changes} == {kernel.KQ_FILTER_READ, kernel.KQ_FILTER_WRITE}
        assert len(changes) == 2, "both filters in one call"
        assert len({change.ident for change in changes}) == 1
        for change in changes:
            key = change.ident, change.filter
            if change.ident not in kernel.descriptors:
                raise OSError(errno.EBADF, "Bad file descriptor")
            if change.flags == kernel.KQ_EV_DELETE:
                if key not in self.filters:
                    raise OSError(errno.ENOENT, "No such file or directory")
                self.filters.remove(key)
                self.active.pop(key, None)
            else:
                assert change.flags == kernel.KQ_EV_ADD | kernel.KQ_EV_CLEAR, "edge-triggered, and nothing else"
                self.filters.add(key)
        if changes[0].flags & kernel.KQ_EV_ADD:
            self.activate(changes[0].ident, kernel.KQ_FILTER_WRITE, 0)

    def take(self, most: int, timeout: float | None) -> list[Kevent]:
        taken = list(itertools.islice(self.active.items(), most))
        if not taken:
            assert timeout is not None, "sleeps for ever"
            self.kernel.now += timeout
        # EV_CLEAR: what was told is not active any more
        for key, _ in taken:
            del self.active[key]
        kernel = self.kernel
        return [
            Kevent(fd, filter_, kernel.KQ_EV_ADD | kernel.KQ_EV_CLEAR | flags, data=1) for (fd, filter_), flags in taken
        ]

    def activate(self, fd: int, filter_: int, flags: int) -> None:
        if (fd, filter_) in self.filters:
            self.active[fd, filter_] = self.active.get((fd, filter_), 0) | flags

    def forget(self, fd: int) -> None:
        self.filters = {key for key in self.filters if key[0] != fd}
        self.active = {key: flags for key, flags in self.active.items() if key[0] != fd}


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()
    kernel.open(FD)
    monkeypatch.setattr(deadlined.poll.kqueue, "_select", kernel)
    return kernel


@pytest.fixture
def port(kernel: Kernel) -> KqueuePort:
    return KqueuePort()


class TestCalls:
    def test_both_filters_are_added_in_one_call_as_edges(self, kernel: Kernel, port: KqueuePort) -> None:
        port.register(FD)
        added = kernel.KQ_EV_ADD | kernel.KQ_EV_CLEAR
        assert kernel.calls == [[(FD, kernel.KQ_FILTER_READ, added), (FD, kernel.KQ_FILTER_WRITE, added)]]

    def test_both_filters_are_deleted_in_one_call(self, kernel: Kernel, port: KqueuePort) -> None:
        port.register(FD)
        kernel.calls.clear()
        port.deregister(FD)
        deleted = kernel.KQ_EV_DELETE
        assert kernel.calls == [[(FD, kernel.KQ_FILTER_READ, deleted), (FD, kernel.KQ_FILTER_WRITE, deleted)]]
        assert kernel.queues[0].filters == set()

    def test_a_late_delete_fails_as_the_poller_expects(self, kernel: Kernel, port: KqueuePort) -> None:
        port.register(FD)
        kernel.close(FD)
        with pytest.raises(OSError, match="Bad file descriptor") as caught:
            port.deregister(FD)
        assert caught.value.errno == errno.EBADF

    @pytest.mark.parametrize(
        ("timeout", "passed"),
        [
            (0.0, 0.0),
            (-1.0, 0.0),
            (-math.inf, 0.0),
            (0.25, 0.25),
            (3600.0, 3600.0),
            (1e300, MAX_WAIT),
        ],
    )
    def test_the_timeout_is_one_that_the_kernel_takes(
        self, kernel: Kernel, port: KqueuePort, timeout: float, passed: float
    ) -> None:
        assert port.wait(timeout) == []
        assert kernel.waits == [passed]

    def test_infinity_is_no_timeout(self, kernel: Kernel, port: KqueuePort) -> None:
        port.register(FD)
        assert port.wait(math.inf) == [(FD, WRITE)]
        assert kernel.waits == [None]

    def test_its_own_descriptor(self, kernel: Kernel, port: KqueuePort) -> None:
        assert port.fileno() == kernel.queues[0].number
        assert port.name == "kqueue"

    def test_close_is_idempotent(self, kernel: Kernel, port: KqueuePort) -> None:
        port.close()
        port.close()
        assert kernel.queues[0].closed


class TestEvents:
    @pytest.fixture(autouse=True)
    def registered(self, kernel: Kernel, port: KqueuePort) -> None:
        port.register(FD)
        assert port.wait(0.0) == [(FD, WRITE)]

    def test_an_edge_is_told_once(self, kernel: Kernel, port: KqueuePort) -> None:
        kernel.readable(FD)
        assert port.wait(0.0) == [(FD, READ | URGENT)]
        assert port.wait(0.0) == []

    def test_each_direction_is_an_event_of_its_own(self, kernel: Kernel, port: KqueuePort) -> None:
        kernel.writable(FD)
        kernel.readable(FD)
        assert port.wait(0.0) == [(FD, WRITE), (FD, READ | URGENT)]

    def test_the_peers_fin_is_worth_a_read_and_a_write(self, kernel: Kernel, port: KqueuePort) -> None:
        """Some systems tell a pipe's writer of a closed reader only so (Go's netpoll_kqueue.go)."""
        kernel.fin(FD)
        assert port.wait(0.0) == [(FD, READ | WRITE | HANGUP | URGENT)]

    def test_a_writer_without_a_reader_is_worth_a_write(self, kernel: Kernel, port: KqueuePort) -> None:
        kernel.happens(FD, kernel.KQ_FILTER_WRITE, kernel.KQ_EV_EOF)
        assert port.wait(0.0) == [(FD, WRITE)]

    def test_an_error_of_the_kernel_is_told_to_both(self, kernel: Kernel, port: KqueuePort) -> None:
        kernel.happens(FD, kernel.KQ_FILTER_READ, kernel.KQ_EV_ERROR)
        assert port.wait(0.0) == [(FD, READ | WRITE | ERROR | HANGUP)]

    def test_events_beyond_the_most_are_delivered_later_and_none_is_lost(
        self, kernel: Kernel, port: KqueuePort
    ) -> None:
        fds = range(10, 10 + MAX_EVENTS + MAX_EVENTS // 2)
        for fd in fds:
            kernel.open(fd)
            port.register(fd)
        first, rest = port.wait(0.0), port.wait(0.0)
        assert (len(first), len(rest)) == (MAX_EVENTS, MAX_EVENTS // 2)
        assert [fd for fd, _ in first + rest] == list(fds)


class TestPollerOnKqueue:
    """The poller's rules hold on this port as on the other."""

    @pytest.fixture
    def woken(self) -> list[Any]:
        return []

    @pytest.fixture
    def poller(self, kernel: Kernel, port: KqueuePort, woken: list[Any]) -> Poller:
        return Poller(port, lambda: kernel.now, woken.append)

    def test_readiness(self, kernel: Kernel, poller: Poller, woken: list[Any]) -> None:
        desc = poller.open(FD)
        poller.poll(0.0)
        assert desc.write.park("writer") == OK
        park(desc.read, "reader")
        kernel.readable(FD)
        poller.poll()
        assert woken == ["reader"]
        assert desc.read.resume("reader") == OK

    def test_a_deadline_ends_the_sleep(self, kernel: Kernel, poller: Poller, woken: list[Any]) -> None:
        desc = poller.open(FD)
        poller.poll(0.0)
        park(desc.read, "reader")
        desc.read.set_deadline(NOW + 5)
        poller.poll()
        assert kernel.waits == [0.0, 5.0]
        assert woken == ["reader"]
        assert desc.read.resume("reader") == EXPIRED

    def test_a_far_deadline_is_slept_for_day_by_day(self, kernel: Kernel, poller: Poller, woken: list[Any]) -> None:
        desc = poller.open(FD)
        poller.poll(0.0)
        park(desc.read, "reader")
        desc.read.set_deadline(NOW + 2.5 * MAX_WAIT)
        naps = 0
        while not woken:
            poller.poll()
            naps += 1
        assert naps == 3
        assert kernel.now == NOW + 2.5 * MAX_WAIT

    def test_close_deletes_the_filters_before_the_descriptor_is_closed(
        self, kernel: Kernel, poller: Poller, woken: list[Any]
    ) -> None:
        desc = poller.open(FD)
        park(desc.read, "reader")
        kernel.readable(FD)
        poller.close(desc)
        kernel.close(FD)
        assert kernel.queues[0].filters == set()
        poller.poll(0.0)
        assert woken == ["reader"]
        assert desc.read.resume("reader") == CLOSED
        assert poller.statistics().events == 0

    def test_a_number_that_was_closed_behind_our_back_can_be_opened_again(
        self, kernel: Kernel, poller: Poller, woken: list[Any]
    ) -> None:
        old = poller.open(FD)
        kernel.close(FD)
        kernel.open(FD)
        new = poller.open(FD)
        park(new.read, "reader")
        poller.close(old)
        kernel.readable(FD)
        poller.poll()
        assert woken == ["reader"]

    def test_a_closed_descriptor_cannot_be_watched(self, kernel: Kernel, poller: Poller) -> None:
        kernel.close(FD)
        with pytest.raises(OSError, match="Bad file descriptor"):
            poller.open(FD)
        assert poller.statistics().descriptors == 0

    def test_shutdown_closes_the_queue_and_makes_no_more_calls(self, kernel: Kernel, poller: Poller) -> None:
        desc = poller.open(FD)
        poller.shutdown()
        calls = len(kernel.calls)
        poller.close(desc)
        assert kernel.queues[0].closed
        assert len(kernel.calls) == calls

    def test_disown_makes_no_calls_on_a_queue_that_the_child_never_had(self, kernel: Kernel, poller: Poller) -> None:
        """An event queue is not inherited across fork; its number in the child may mean something else by then."""
        poller.open(FD)
        calls = len(kernel.calls)
        poller.disown()
        assert len(kernel.calls) == calls
