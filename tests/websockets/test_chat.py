"""The example of a chat: a thousand members, of whom a hundred do not read."""

from __future__ import annotations

import resource
import selectors
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.applications.running import Server, process
from tests.support.command import COMMAND, PATIENCE
from tests.support.websocket_peer import ENDS, FIN, Event, Peer, growth
from tests.test_examples import started

from .running import ON_ASYNCIO, failures, reasons

MEMBERS = 1000
DEAF = 100

# enough to fill the buffers of one that does not read: the kernel's of a small window, and the server's 64 KiB
MESSAGES = 60
LENGTH = 4000

# who reads is one thread for all of them: on a busy machine a second may pass until it comes to one
EXAMPLE = ("serve", "examples.chat:app", "--port=0", "--write-grace=5s", "--write-min-rate=100k")


@contextmanager
def descriptors_for(number: int) -> Iterator[None]:
    """Let this process, and those that it starts, have so many descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = max(soft, number) if soft != resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module", params=[loop for loop in ON_ASYNCIO if loop != "uvicorn"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with (
        descriptors_for(2 * MEMBERS),
        process('"listening"', *COMMAND, *EXAMPLE, f"--loop={request.param}") as server,
    ):
        server.wait_until_ready(server.out)
        yield server
        assert (server.end(), failures(server), server.err.lines) == (0, [], [])


def read_all(peers: list[Peer], count: int) -> None:
    """Read until each of them has `count` texts: those that the room was told, in this order."""
    heard = dict.fromkeys(peers, 0)
    with selectors.DefaultSelector() as selector:
        for peer in peers:
            peer.socket.setblocking(False)
            selector.register(peer.socket, selectors.EVENT_READ, peer)
        while selector.get_map():
            ready = selector.select(PATIENCE)
            assert ready, "nothing comes any more"
            for key, _ in ready:
                peer = key.data
                heard[peer] += hear(peer, heard[peer])
                if heard[peer] == count:
                    selector.unregister(peer.socket)


def hear(peer: Peer, already: int) -> int:
    """Read what is there. Return how many texts it was."""
    number = 0
    try:
        while True:
            event = peer.event()
            assert event == Event("text", said(already + number)), (already + number, event.kind, event.data[:20])
            number += 1
    except BlockingIOError:
        return number


def said(number: int) -> bytes:
    return b"%d " % number + b"." * LENGTH


def test_a_hundred_that_do_not_read_hold_up_nobody(server: Server) -> None:
    with ExitStack() as stack, growth(server.process.pid) as grown:
        deaf = [stack.enter_context(Peer.open(server.port, receive_buffer=4096)) for _ in range(DEAF)]
        members = [stack.enter_context(Peer.open(server.port)) for _ in range(MEMBERS - DEAF)]
        for number in range(MESSAGES):
            members[0].text(said(number))
        # every one of the others gets every message
        read_all(members, MESSAGES)
        # those that do not read are reset by the server, for that reason
        while len(found := reasons(server)) < DEAF:
            time.sleep(0.05)
        assert found == ["write_timeout"] * DEAF
        for peer in deaf:
            assert peer.events()[-1] in ENDS
        # the others are still there
        members[-1].text(said(MESSAGES))
        for peer in members:
            peer.socket.settimeout(PATIENCE)
            assert peer.event() == Event("text", said(MESSAGES))
    # what was told is kept once, and of what nobody has read no more than the buffers hold
    assert grown[0] < 200 << 20


def test_it_runs_as_a_program() -> None:
    with started("chat") as (port, program):
        with Peer.dial(port) as browser:
            page = browser.ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (page.status, b"new WebSocket" in page.body) == (200, True)
        with Peer.open(port) as ann, Peer.open(port) as bob:
            ann.text("hello")
            assert ann.event() == bob.event() == Event("text", b"hello")
            assert ann.close() == [Event("close", b"", 1000), FIN]
            bob.text("alone")
            assert bob.event() == Event("text", b"alone")
            program.send_signal(signal.SIGTERM)
            close, end = bob.end()
            assert (close.code, end) == (1012, FIN)
        assert program.wait(PATIENCE) == 0
