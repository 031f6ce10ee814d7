"""How the load test's clients connect: each step of TCP and TLS, and what is left of a connection that fails."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic

import pytest

pytest.importorskip("httptools", reason="the load test's extra is not installed: pip install .[loadtest]")

from loadtest import line
from loadtest.line import Line
from loadtest.loop import Loop
from loadtest.target import Target
from tests.support.net import certificates

TARGET = Target("http://127.0.0.1/", socket.AF_INET, ("127.0.0.1", 1), "127.0.0.1", "127.0.0.1", "/", False)


@contextmanager
def accepting(serve: Callable[[socket.socket], object]) -> Iterator[Target]:
    """Accept one connection, and let `serve` do something with it."""

    def run() -> None:
        with listener.accept()[0] as connection:
            connection.settimeout(10.0)
            serve(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield replace(TARGET, address=listener.getsockname()[:2])
        finally:
            thread.join()


class Dialled(Line):
    """A connection that opens, and then does nothing. `trouble`: why it does not."""

    def __init__(self, target: Target, address: str = "", loop: Loop | None = None) -> None:
        self.loop = loop or Loop()
        self._owns_loop = loop is None
        self.trouble = ""
        super().__init__(target, target.context(), self.loop)
        self.connect(address)
        until = monotonic() + 10.0
        while not self._is_open and not self.trouble:
            assert monotonic() < until
            self.loop.turn(until)

    @property
    def socket(self) -> socket.socket:
        return self._socket

    def on_open(self, now: float) -> None:
        """Nothing is said."""

    def on_events(self, mask: int, now: float, wrong: float) -> None:
        """Nothing is read."""

    def on_trouble(self, kind: str, now: float) -> None:
        self.trouble = kind
        self.close()

    def close(self, *, reset: bool = False) -> None:
        super().close(reset=reset)
        if self._owns_loop:
            self.loop.close()


def test_a_connection_opens_from_the_address_that_was_asked_for() -> None:
    with accepting(lambda connection: connection.sendall(b"x")) as target:
        dialled = Dialled(target, line.source(300_000))
        assert dialled.socket.getsockname()[0] == line.source(300_000) != "127.0.0.1"
        dialled.close()


def test_tls_opens_in_steps() -> None:
    server = certificates().server

    def serve(connection: socket.socket) -> None:
        with server.wrap_socket(connection, server_side=True) as wrapped:
            assert wrapped.recv(1) == b"x"

    with accepting(serve) as plain:
        dialled = Dialled(replace(plain, tls=True))
        assert isinstance(dialled.socket, ssl.SSLSocket)
        dialled.socket.setblocking(True)
        dialled.socket.sendall(b"x")
        dialled.close()


def test_a_handshake_that_fails_leaves_a_socket_that_can_be_closed() -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 400 no TLS\r\n\r\n")

    # the leak check sees what is not closed
    with accepting(serve) as plain:
        assert Dialled(replace(plain, tls=True)).trouble.startswith("TLS: ")


def test_a_handshake_that_fails_at_its_first_step_leaves_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: ssl.SSLSocket) -> None:
        raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")

    monkeypatch.setattr(ssl.SSLSocket, "do_handshake", fail)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dialled = Dialled(replace(TARGET, address=listener.getsockname()[:2], tls=True))
    assert (dialled.trouble, dialled.socket.fileno()) == ("Connection reset by peer", -1)


def test_a_reset_before_the_handshake_leaves_nothing_of_its_descriptor_in_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    freed: list[int] = []

    def reset(_: ssl.SSLContext, endpoint: socket.socket, **__: object) -> ssl.SSLSocket:
        """What Python does when the peer's RST arrives between its detach() and its look for early data."""
        freed.append(endpoint.detach())
        os.close(freed[0])
        raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")

    loop = Loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = replace(TARGET, address=listener.getsockname()[:2])
        with monkeypatch.context() as patched:
            patched.setattr(ssl.SSLContext, "wrap_socket", reset)
            assert Dialled(replace(target, tls=True), loop=loop).trouble == "Connection reset by peer"
        again = Dialled(target, loop=loop)
        assert (again.trouble, again.socket.fileno()) == ("", freed[0])
        again.close()
    loop.close()


def test_a_port_at_which_nobody_listens_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = replace(TARGET, address=listener.getsockname()[:2])
    assert Dialled(nobody).trouble == "Connection refused"
    with pytest.raises(ConnectionRefusedError):
        nobody.connect(1.0)


def test_an_address_that_is_not_of_this_machine_is_told() -> None:
    assert Dialled(TARGET, "192.0.2.1").trouble == "Cannot assign requested address"


@pytest.mark.parametrize("reset", [True, False])
def test_a_connection_is_closed_with_a_reset_or_without(reset: bool) -> None:
    ends: list[str] = []

    def serve(connection: socket.socket) -> None:
        try:
            ends.append("fin" if connection.recv(1) == b"" else "data")
        except OSError as error:
            ends.append(line.how(error))

    with accepting(serve) as target:
        Dialled(target).close(reset=reset)
    assert ends == ["rst" if reset else "fin"]


@pytest.mark.parametrize(
    ("error", "reset"),
    [
        (ConnectionResetError(errno.ECONNRESET, "reset"), True),
        (BrokenPipeError(errno.EPIPE, "a FIN came first"), False),
        (ssl.SSLError(errno.ECONNRESET, "of TLS"), False),
    ],
)
def test_a_reset_is_told_from_other_ends(error: OSError, reset: bool) -> None:
    assert line.how(error) == ("rst" if reset else "fin")
