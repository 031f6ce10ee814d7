"""How the load test's clients connect: each step of TCP and TLS, and what is left of a connection that fails."""

from __future__ import annotations

import errno
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

pytest.importorskip("httptools", reason="the load test's extra is not installed: pip install .[loadtest]")

from loadtest import line
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


def opened(target: Target, context: ssl.SSLContext | None, address: str = "") -> socket.socket:
    """Open a connection as the clients do; it is closed if that fails."""
    endpoint = line.begin(target, address)
    try:
        wanted = select.EPOLLOUT
        while wanted:
            with select.epoll() as poll:
                poll.register(endpoint.fileno(), wanted)
                assert poll.poll(10.0)
            endpoint, wanted = line.proceed(endpoint, target, context)
    except OSError:
        line.close(endpoint)
        raise
    return endpoint


def test_a_connection_opens_from_the_address_that_was_asked_for() -> None:
    with accepting(lambda connection: connection.sendall(b"x")) as target:
        endpoint = opened(target, None, line.source(300_000))
        assert endpoint.getsockname()[0] == line.source(300_000) != "127.0.0.1"
        line.close(endpoint)


def test_tls_opens_in_steps() -> None:
    server = certificates().server

    def serve(connection: socket.socket) -> None:
        with server.wrap_socket(connection, server_side=True) as wrapped:
            assert wrapped.recv(1) == b"x"

    with accepting(serve) as plain:
        target = replace(plain, tls=True)
        endpoint = opened(target, target.context())
        assert isinstance(endpoint, ssl.SSLSocket)
        endpoint.setblocking(True)
        endpoint.sendall(b"x")
        line.close(endpoint)


def test_a_handshake_that_fails_leaves_a_socket_that_can_be_closed() -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 400 no TLS\r\n\r\n")

    # the leak check sees what is not closed
    with accepting(serve) as plain:
        target = replace(plain, tls=True)
        with pytest.raises(ssl.SSLError) as refused:
            opened(target, target.context())
    assert line.trouble(refused.value).startswith("TLS: ")


def test_a_port_at_which_nobody_listens_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = replace(TARGET, address=listener.getsockname()[:2])
    with pytest.raises(ConnectionRefusedError) as refused:
        opened(nobody, None)
    assert line.trouble(refused.value) == "Connection refused"
    with pytest.raises(ConnectionRefusedError):
        nobody.connect(1.0)


@pytest.mark.parametrize("reset", [True, False])
def test_a_connection_is_closed_with_a_reset_or_without(reset: bool) -> None:
    ends: list[str] = []

    def serve(connection: socket.socket) -> None:
        try:
            ends.append("fin" if connection.recv(1) == b"" else "data")
        except OSError as error:
            ends.append(line.how(error))

    with accepting(serve) as target:
        line.close(opened(target, None), reset=reset)
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
