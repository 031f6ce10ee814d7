"""A worker process's end of the link, and the sockets that it is handed."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined.net import Listener
from deadlined.service.workers.accepting import Accepting, change
from deadlined.service.workers.frames import ACCEPT, ASK, CONFIGURE, END, LEAVING, READY, STOP, TELL, frame
from deadlined.service.workers.link import Link, Orders
from tests.support.http import serving


class Supervisor:
    """The other end. `heard`: what the worker process was told."""

    def __init__(self) -> None:
        self.end, self.theirs = socket.socketpair()
        self.link = Link(self.theirs, 2)
        self.heard: list[tuple[str, bytes]] = []
        self.descriptors: list[int] = []
        self.fails = False

    @property
    def orders(self) -> Orders:
        return Orders(
            lambda: self.heard.append(("stop", b"")),
            lambda: self.heard.append(("end", b"")),
            self._reply,
            self._accept,
            self._configure,
        )

    def _configure(self, payload: bytes) -> None:
        self.heard.append(("configure", payload))

    async def _reply(self, question: bytes) -> bytes:
        return b"answer to " + question

    def _accept(self, payload: bytes, descriptors: Sequence[int]) -> None:
        if self.fails:
            raise OSError(28, "No space left on device")
        self.heard.append(("accept", payload))
        self.descriptors += descriptors


@asynccontextmanager
async def following(supervisor: Supervisor | None = None, orders: Orders | None = None) -> AsyncIterator[Supervisor]:
    supervisor = supervisor or Supervisor()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor.link.follow, orders or supervisor.orders)
            await wait_all_tasks_blocked()
            yield supervisor
            nursery.cancel_scope.cancel()
    finally:
        supervisor.end.close()
        for descriptor in supervisor.descriptors:
            with suppress(OSError):
                os.close(descriptor)


async def test_it_says_what_it_does_and_does_what_it_is_told(autojump_clock: MockClock) -> None:
    async with following() as supervisor:
        supervisor.link.report_ready()
        supervisor.link.report_leaving()
        supervisor.end.sendall(frame(ASK, b"this") + frame(CONFIGURE, b"that") + frame(STOP) + frame(END))
        await wait_all_tasks_blocked()
        assert supervisor.end.recv(1000) == frame(READY) + frame(LEAVING) + frame(TELL, b"answer to this")
        assert supervisor.heard == [("configure", b"that"), ("stop", b""), ("end", b"")]


async def test_orders_do_not_wait_for_an_answer_and_answers_keep_their_order(autojump_clock: MockClock) -> None:
    supervisor = Supervisor()

    async def reply(question: bytes) -> bytes:
        await trio.sleep(1.0 if question == b"long" else 0.0)
        return question

    orders = replace(supervisor.orders, reply=reply)
    async with following(supervisor, orders):
        supervisor.end.sendall(frame(ASK, b"long") + frame(ASK, b"short") + frame(CONFIGURE, b"that") + frame(END))
        await trio.sleep(0.5)
        assert supervisor.heard == [("configure", b"that"), ("end", b"")]
        supervisor.end.sendall(frame(ASK, b"later"))
        await trio.sleep(1.0)
        assert supervisor.end.recv(1000) == b"".join(frame(TELL, one) for one in (b"long", b"short", b"later"))


# a supervisor that lags


LARGE = bytes(5_000_000)


def large_answers(supervisor: Supervisor) -> Orders:
    async def reply(_: bytes) -> bytes:
        return LARGE

    return replace(supervisor.orders, reply=reply)


async def received(supervisor: Supervisor) -> bytes:
    """Read until nothing more comes."""
    data = bytearray()
    supervisor.end.setblocking(False)
    while True:
        await wait_all_tasks_blocked()
        try:
            data += supervisor.end.recv(1_000_000)
        except BlockingIOError:
            return bytes(data)


async def test_what_it_says_beside_a_large_answer_comes_behind_that(autojump_clock: MockClock) -> None:
    supervisor = Supervisor()
    async with following(supervisor, large_answers(supervisor)):
        supervisor.end.sendall(frame(ASK, b"first") + frame(ASK, b"second"))
        await wait_all_tasks_blocked()
        # there is room again, and the task that sends the rest of the answer does not know that yet
        read = supervisor.end.recv(200_000)
        supervisor.link.report_leaving()
        supervisor.link.tell(b"last")
        read += await received(supervisor)
        answer = frame(TELL, LARGE)
        assert read == answer + frame(LEAVING) + frame(TELL, b"last") + answer


async def test_that_it_drains_is_not_lost_for_lack_of_room(autojump_clock: MockClock) -> None:
    async with following() as supervisor:
        answer = frame(TELL, bytes(100))
        answers = 0
        with suppress(BlockingIOError):
            while supervisor.theirs.send(answer):
                answers += 1
        supervisor.link.report_leaving()
        assert await received(supervisor) == answers * answer + frame(LEAVING)
        # and what comes later is sent as well
        supervisor.end.sendall(frame(ASK, b"this"))
        assert await received(supervisor) == frame(TELL, b"answer to this")


async def test_the_last_answer_need_not_fit_at_once(autojump_clock: MockClock) -> None:
    async with following() as supervisor:
        supervisor.link.tell(LARGE)
        assert await received(supervisor) == frame(TELL, LARGE)


async def test_nothing_waits_for_a_supervisor_that_is_gone(autojump_clock: MockClock) -> None:
    supervisor = Supervisor()
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with following(supervisor, large_answers(supervisor)):
            supervisor.end.sendall(frame(ASK, b"first"))
            await wait_all_tasks_blocked()
            supervisor.end.close()
            assert await anext(signals) == signal.SIGTERM
            supervisor.link.report_leaving()
            supervisor.link.tell(LARGE)


@pytest.mark.parametrize("flag", [True, False], ids=["", "no MSG_CMSG_CLOEXEC"])
async def test_descriptors_belong_to_the_frame_that_they_come_with(
    flag: bool, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not flag:
        # macOS
        monkeypatch.setattr("deadlined.service.workers.link._FLAGS", 0)
    one, two = change({1: 1}, []), change({2: 2}, [1])
    files = [os.memfd_create(name) for name in "abc"]
    async with following() as supervisor:
        # an end of a frame that comes with the next one's descriptors
        data = frame(ACCEPT, one)
        socket.send_fds(supervisor.end, [data[:3]], files[:1])
        await wait_all_tasks_blocked()
        assert supervisor.heard == []
        socket.send_fds(supervisor.end, [data[3:] + frame(ACCEPT, two)], files[1:])
        await wait_all_tasks_blocked()
        assert supervisor.heard == [("accept", one), ("accept", two)]
        for found, sent in zip(supervisor.descriptors, files, strict=True):
            assert os.fstat(found).st_ino == os.fstat(sent).st_ino
            # programs that the application starts do not get it
            assert not os.get_inheritable(found)
    for descriptor in files:
        os.close(descriptor)


@pytest.mark.parametrize("fails", [False, True], ids=["it did not arrive", "it cannot be used"])
async def test_a_process_that_cannot_listen_drains(
    fails: bool, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with following() as supervisor:
            supervisor.fails = fails
            supervisor.end.sendall(frame(ACCEPT, change({} if fails else {1: 1}, [])))
            await wait_all_tasks_blocked()
            assert await anext(signals) == signal.SIGTERM
    (record,) = caplog.records
    assert (record.levelno, "cannot listen" in record.message) == (logging.ERROR, True)


async def test_a_process_that_could_not_listen_is_told_to_stop_that_before_it_drains(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM) as signals, socket.create_server(("127.0.0.1", 0)) as one:
        async with serving() as site:
            supervisor = Supervisor()
            async with following(
                supervisor, replace(supervisor.orders, accept=Accepting(site.server, lambda: None).change)
            ):
                data = frame(ACCEPT, change({1: 2}, [])) + frame(ACCEPT, change({}, [1]))
                socket.send_fds(supervisor.end, [data], [one.fileno()])
                assert await anext(signals) == signal.SIGTERM
                await wait_all_tasks_blocked()
    (record,) = caplog.records
    assert "cannot listen" in record.message


async def test_sockets_that_come_with_one_that_the_event_queue_has_no_room_for_are_closed(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen = Listener.from_socket
    made: list[Listener] = []

    def with_room_for_one(taken: socket.socket) -> Listener:
        if taken.fileno() != descriptors[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        made.append(listen(taken))
        return made[0]

    async with serving() as site:
        accepting = Accepting(site.server, lambda: None)
        with socket.create_server(("127.0.0.1", 0)) as one:
            descriptors = [os.dup(one.fileno()) for _ in range(3)]
        monkeypatch.setattr(Listener, "from_socket", with_room_for_one)
        with pytest.raises(OSError, match="No space"):
            accepting.change(change({1: 1, 2: 2}, []), descriptors)
        accepting.change(change({}, [1, 2]), [])
        for descriptor in descriptors:
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(descriptor)
        # nor does the event queue know one, which another process has open
        with pytest.raises(trio.ClosedResourceError):
            made[0].set_timeout(1.0)


async def test_the_end_of_the_supervisor_begins_the_drain(autojump_clock: MockClock) -> None:
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with following() as supervisor:
            supervisor.end.close()
            assert await anext(signals) == signal.SIGTERM


async def test_slots_are_accepted_from_until_they_are_taken_back(autojump_clock: MockClock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        async with serving() as site:
            accepting = Accepting(site.server, lambda: None)
            accepting.change(change({0: 0, 1: 1, 5: 1}, []), [os.dup(one.fileno()), os.dup(two.fileno())])
            for server in (one, two):
                assert (await answer(server)).startswith(b"HTTP/1.1 200")
            accepting.change(change({}, [1, 0]), [])
            assert (await answer(two)).startswith(b"HTTP/1.1 200")
            with trio.move_on_after(1) as waits:
                await answer(one)
            assert waits.cancelled_caught
            # who was left waiting is served when it is handed out again
            accepting.change(change({1: 1}, [5]), [os.dup(one.fileno())])
            assert (await answer(one)).startswith(b"HTTP/1.1 200")
            assert site.server.statistics().accepted == 5


async def answer(server: socket.socket) -> bytes:
    async with await trio.open_tcp_stream(*server.getsockname()) as stream:
        await stream.send_all(b"GET / HTTP/1.0\r\n\r\n")
        return b"".join([data async for data in stream])
