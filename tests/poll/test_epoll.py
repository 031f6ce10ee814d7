"""Linux's port with real sockets: what epoll says, and that the poller stands on it alone, without trio."""

from __future__ import annotations

import math
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.poll import many_descriptors, park, socket_pair

if sys.platform != "linux":
    pytest.skip("epoll is Linux's", allow_module_level=True)

from deadlined.poll import ERROR, EXPIRED, HANGUP, OK, READ, URGENT, WRITE, Poller, open_port
from deadlined.poll.epoll import EpollPort, _translate
from deadlined.poll.port import MAX_EVENTS

NEVER = 0.0  # seconds: a wait that is to find nothing
SURELY = 60.0  # seconds: a wait that ends by its event, or something is broken

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def port() -> Iterator[EpollPort]:
    port = EpollPort()
    yield port
    port.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with socket_pair() as pair:
        yield pair


@pytest.fixture
def watched(port: EpollPort, pair: Pair) -> Pair:
    """A pair whose left end is registered, and its first event (writable) taken."""
    port.register(pair[0].fileno())
    assert port.wait(SURELY) == [(pair[0].fileno(), WRITE)]
    return pair


def fill(sock: socket.socket) -> None:
    """Send until the kernel says "would block": only then is there an edge to come."""
    try:
        while True:
            sock.send(bytes(65536))
    except BlockingIOError:
        return


def drain(sock: socket.socket) -> None:
    try:
        while sock.recv(1 << 20):
            pass
    except BlockingIOError:
        return


def tcp_pair(stack: ExitStack) -> Pair:
    with socket.create_server(("127.0.0.1", 0)) as server:
        left = stack.enter_context(socket.create_connection(server.getsockname()))
        right = stack.enter_context(server.accept()[0])
    left.setblocking(False)
    return left, right


def test_this_machine_gets_this_port() -> None:
    port = open_port()
    assert isinstance(port, EpollPort)
    assert port.name == "epoll"
    port.close()


class TestEdges:
    def test_an_edge_is_told_once(self, port: EpollPort, watched: Pair) -> None:
        left, right = watched
        right.send(b"hello")
        assert port.wait(SURELY) == [(left.fileno(), READ | WRITE)]
        assert port.wait(NEVER) == []

    def test_bytes_that_were_left_make_no_edge(self, port: EpollPort, watched: Pair) -> None:
        left, right = watched
        right.send(b"hello")
        port.wait(SURELY)
        left.recv(2)
        assert port.wait(NEVER) == []

    def test_more_bytes_make_a_new_edge(self, port: EpollPort, watched: Pair) -> None:
        left, right = watched
        right.send(b"hello")
        port.wait(SURELY)
        right.send(b"again")
        [(fd, mask)] = port.wait(SURELY)
        assert fd == left.fileno()
        assert mask & READ

    def test_room_in_a_full_buffer_is_an_edge(self, port: EpollPort, watched: Pair) -> None:
        left, right = watched
        fill(left)
        assert port.wait(NEVER) == []
        drain(right)
        assert port.wait(SURELY) == [(left.fileno(), WRITE)]

    def test_bytes_for_a_full_socket_are_no_room(self, port: EpollPort, watched: Pair) -> None:
        left, right = watched
        fill(left)
        right.send(b"hello")
        assert port.wait(SURELY) == [(left.fileno(), READ)]

    def test_what_came_before_the_registration_is_told(self, port: EpollPort, pair: Pair) -> None:
        left, right = pair
        right.send(b"hello")
        port.register(left.fileno())
        assert port.wait(SURELY) == [(left.fileno(), READ | WRITE)]

    def test_the_ports_own_descriptor_is_readable_while_events_wait(self, port: EpollPort, watched: Pair) -> None:
        _, right = watched
        readable = select.poll()
        readable.register(port.fileno(), select.POLLIN)
        assert readable.poll(0) == []
        right.send(b"hello")
        assert readable.poll(1000 * SURELY) == [(port.fileno(), select.POLLIN)]
        port.wait(SURELY)
        assert readable.poll(0) == []


class TestTranslation:
    def test_the_peers_fin_is_worth_a_read(self, port: EpollPort, watched: Pair) -> None:
        left, right = watched
        fill(left)
        right.shutdown(socket.SHUT_WR)
        assert port.wait(SURELY) == [(left.fileno(), READ | HANGUP)]

    def test_a_peer_that_is_gone_is_worth_a_read_and_a_write(self, port: EpollPort, watched: Pair) -> None:
        left, right = watched
        fill(left)
        right.close()
        assert port.wait(SURELY) == [(left.fileno(), READ | WRITE | HANGUP)]

    def test_a_reset_is_worth_a_read_and_a_write_and_is_no_bare_error(self, port: EpollPort) -> None:
        with ExitStack() as stack:
            left, right = tcp_pair(stack)
            port.register(left.fileno())
            port.wait(SURELY)
            right.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            right.close()
            assert port.wait(SURELY) == [(left.fileno(), READ | WRITE | HANGUP)]

    def test_urgent_data_is_told_with_its_edge(self, port: EpollPort) -> None:
        with ExitStack() as stack:
            left, right = tcp_pair(stack)
            port.register(left.fileno())
            assert port.wait(SURELY) == [(left.fileno(), WRITE)]
            right.send(b"before")
            right.send(b"!", socket.MSG_OOB)
            told = 0
            while not told & URGENT:
                (event,) = port.wait(SURELY)
                told |= event[1]
            assert told & READ

    def test_a_refused_connect_is_worth_a_write(self, port: EpollPort) -> None:
        with socket.socket() as nobody, socket.socket() as sock:
            nobody.bind(("127.0.0.1", 0))
            sock.setblocking(False)
            sock.connect_ex(nobody.getsockname())
            port.register(sock.fileno())
            [(_, mask)] = port.wait(SURELY)
            assert mask & WRITE
            assert not mask & ERROR

    def test_a_pipe_without_a_reader_is_a_bare_error_of_the_kernel(self, port: EpollPort) -> None:
        """While it is full, so that nothing but EPOLLERR is left to say."""
        reader, writer = os.pipe()
        try:
            os.set_blocking(writer, False)
            port.register(writer)
            port.wait(SURELY)
            with pytest.raises(BlockingIOError):
                while True:
                    os.write(writer, bytes(65536))
            os.close(reader)
            reader = -1
            assert port.wait(SURELY) == [(writer, READ | WRITE | ERROR | HANGUP)]
        finally:
            os.close(writer)
            if reader >= 0:
                os.close(reader)

    @pytest.mark.parametrize(
        ("mask", "meaning"),
        [
            (select.EPOLLIN, READ),
            (select.EPOLLRDHUP, READ | HANGUP),
            (select.EPOLLOUT, WRITE),
            (select.EPOLLHUP, READ | WRITE | HANGUP),
            (select.EPOLLIN | select.EPOLLOUT, READ | WRITE),
            (select.EPOLLIN | select.EPOLLRDHUP, READ | HANGUP),
            (select.EPOLLERR, READ | WRITE | ERROR | HANGUP),
            (select.EPOLLERR | select.EPOLLIN, READ | WRITE | HANGUP),
            (select.EPOLLERR | select.EPOLLHUP, READ | WRITE | HANGUP),
            (select.EPOLLPRI, URGENT),
            (select.EPOLLIN | select.EPOLLPRI, READ | URGENT),
        ],
    )
    def test_gos_reading_of_a_mask(self, mask: int, meaning: int) -> None:
        assert _translate(mask) == meaning


class TestRegistration:
    def test_once_deregistered_a_duplicate_makes_no_event(self, port: EpollPort, watched: Pair) -> None:
        left, right = watched
        fd = left.fileno()
        with left.dup() as duplicate:
            port.deregister(fd)
            left.close()
            right.send(b"for the duplicate")
            assert port.wait(NEVER) == []
            assert duplicate.recv(100) == b"for the duplicate"

    def test_closed_behind_our_back_a_duplicate_does_make_events(self, port: EpollPort, watched: Pair) -> None:
        """The hazard: why the rule is to deregister first."""
        left, right = watched
        fd = left.fileno()
        with left.dup():
            left.close()
            right.send(b"stale")
            assert [event[0] for event in port.wait(SURELY)] == [fd]

    def test_a_descriptor_is_registered_once(self, port: EpollPort, watched: Pair) -> None:
        with pytest.raises(FileExistsError):
            port.register(watched[0].fileno())

    def test_what_is_not_registered_cannot_be_deregistered(self, port: EpollPort, pair: Pair) -> None:
        with pytest.raises(FileNotFoundError):
            port.deregister(pair[0].fileno())

    def test_a_registration_ends_with_its_descriptor(self, port: EpollPort, watched: Pair) -> None:
        left, right = watched
        fd = left.fileno()
        left.close()
        right.close()
        assert port.wait(NEVER) == []
        with pytest.raises(OSError, match="Bad file descriptor"):
            port.deregister(fd)

    def test_close_is_idempotent(self, port: EpollPort) -> None:
        port.close()
        port.close()


class TestWait:
    def test_events_beyond_the_most_are_delivered_later_and_none_is_lost(self, port: EpollPort) -> None:
        """Duplicates of one socket are descriptors of their own to epoll."""
        many = MAX_EVENTS + MAX_EVENTS // 2
        with many_descriptors(many), ExitStack() as stack:
            left, _ = stack.enter_context(socket_pair())
            fds = {stack.enter_context(left.dup()).fileno() for _ in range(many)}
            for fd in fds:
                port.register(fd)
            first = port.wait(SURELY)
            rest = port.wait(SURELY)
            assert port.wait(NEVER) == []
        assert (len(first), len(rest)) == (MAX_EVENTS, MAX_EVENTS // 2)
        assert {fd for fd, _ in first + rest} == fds

    @pytest.mark.parametrize("timeout", [0.0, -1.0, -math.inf])
    def test_no_time_returns_at_once(self, port: EpollPort, timeout: float) -> None:
        assert port.wait(timeout) == []

    def test_infinite_time_ends_with_an_event(self, port: EpollPort, pair: Pair) -> None:
        port.register(pair[0].fileno())
        assert port.wait(math.inf) == [(pair[0].fileno(), WRITE)]

    @pytest.mark.parametrize("timeout", [3e6, 1e10, 1e300])
    def test_a_finite_time_of_any_length_is_one_that_the_kernel_takes(
        self, port: EpollPort, pair: Pair, timeout: float
    ) -> None:
        port.register(pair[0].fileno())
        assert port.wait(timeout) == [(pair[0].fileno(), WRITE)]

    @pytest.mark.parametrize("timeout", [1e-9, 1e-4, 0.0011, 0.01])
    def test_a_wait_never_ends_early(self, port: EpollPort, timeout: float) -> None:
        start = time.monotonic()
        assert port.wait(timeout) == []
        assert time.monotonic() - start >= timeout


class TestPollerAlone:
    """A `Poller` with `time.monotonic` and real sockets: no trio, no loop but the test's own."""

    @pytest.fixture
    def woken(self) -> list[Any]:
        return []

    @pytest.fixture
    def poller(self, woken: list[Any]) -> Iterator[Poller]:
        poller = Poller(open_port(), time.monotonic, woken.append)
        yield poller
        poller.shutdown()

    def test_readiness(self, poller: Poller, woken: list[Any], pair: Pair) -> None:
        left, right = pair
        desc = poller.open(left.fileno())
        desc.read.set_deadline(time.monotonic() + SURELY)
        park(desc.read, "reader")
        right.send(b"hello")
        while not woken:
            poller.poll()
        assert woken == ["reader"]
        assert desc.read.resume("reader") == OK
        assert left.recv(100) == b"hello"
        poller.close(desc)

    @pytest.mark.parametrize("timeout", [1e-6, 1e-4, 0.0015, 0.02])
    def test_a_deadline_never_early(self, poller: Poller, woken: list[Any], pair: Pair, timeout: float) -> None:
        desc = poller.open(pair[0].fileno())
        park(desc.read, "reader")
        deadline = time.monotonic() + timeout
        desc.read.set_deadline(deadline)
        while not woken:
            poller.poll()
        assert time.monotonic() >= deadline
        assert desc.read.resume("reader") == EXPIRED
        poller.close(desc)

    def test_many_deadlines_in_order_and_never_early(self, poller: Poller, woken: list[Any]) -> None:
        with ExitStack() as stack:
            start = time.monotonic()
            deadlines = []
            for i in (3, 1, 4, 0, 2):
                desc = poller.open(stack.enter_context(socket_pair())[0].fileno())
                park(desc.read, i)
                desc.read.set_deadline(start + 0.003 * (i + 1))
                deadlines.append(desc)
            while len(woken) < 5:
                before = len(woken)
                poller.poll()
                now = time.monotonic()
                assert all(now >= start + 0.003 * (i + 1) for i in woken[before:])
            assert woken == [0, 1, 2, 3, 4]
            for desc in deadlines:
                poller.close(desc)

    def test_poll_gives_up_after_its_own_timeout(self, poller: Poller, woken: list[Any], pair: Pair) -> None:
        desc = poller.open(pair[0].fileno())
        poller.poll(0.0)
        desc.read.set_deadline(time.monotonic() + SURELY)
        park(desc.read, "reader")
        poller.poll(0.001)
        assert woken == []
        assert desc.read.waiter == "reader"
        poller.close(desc)

    def test_a_closed_descriptor_makes_no_stale_event_though_a_duplicate_lives(
        self, poller: Poller, woken: list[Any], pair: Pair
    ) -> None:
        left, right = pair
        desc = poller.open(left.fileno())
        with left.dup():
            poller.close(desc)
            left.close()
            right.send(b"stale")
            poller.poll(0.0)
        statistics = poller.statistics()
        assert (statistics.port, statistics.events, statistics.unknown) == ("epoll", 0, 0)

    def test_what_a_duplicate_of_a_lost_descriptor_reports_is_taken_though_nothing_is_open(
        self, poller: Poller, woken: list[Any], pair: Pair
    ) -> None:
        """Who sleeps on the event queue itself, as asyncio does, would be woken for it for ever."""
        left, right = pair
        desc = poller.open(left.fileno())
        with left.dup(), select.epoll() as sleeper:
            left.close()
            poller.close(desc)
            sleeper.register(poller.port.fileno(), select.EPOLLIN)
            right.send(b"stale")
            assert sleeper.poll(0.0)
            poller.poll(0.0)
            assert not sleeper.poll(0.0)
        assert poller.statistics().unknown == 1

    def test_a_number_that_was_closed_behind_our_back_can_be_opened_again(
        self, poller: Poller, woken: list[Any]
    ) -> None:
        with socket_pair() as (left, _):
            old = poller.open(left.fileno())
            number = left.fileno()
        with socket_pair() as (left, right):
            assert left.fileno() == number
            new = poller.open(number)
            park(new.read, "reader")
            right.send(b"hello")
            poller.poll(SURELY)
            assert woken == ["reader"]
            poller.close(old)
            assert new.read.resume("reader") == OK
            assert new.read.reset() == OK
            park(new.read, "reader")
            right.send(b"more")
            poller.poll(SURELY)
            assert woken == ["reader", "reader"]
            poller.close(new)
