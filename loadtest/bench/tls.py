"""HTTP/1.1 over TLS: requests per second, CPU time per request, and memory per idle connection, beside common servers.

Facts      wrk speaks TLS 1.3 over 64 connections from one core, the server has the other. All servers use OpenSSL with
           their own choice of ciphers, except granian, which uses rustls; the certificate (ECDSA, P-256) is the same.
Answer     As in `http`: an answer is compared first, and any error means that there is no figure. Memory is that of
           loaded.py.
Cost       "hello, closing" is a handshake per request, in which wrk resumes no session; its rate is that of the
           signature.
"""

from __future__ import annotations

import functools
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Self

from ..apps import PAGES
from ..servers import START, Server, running, tool
from . import loaded, wrk
from .contest import Benchmark, Contestant, ContestantError, Metric, Target
from .echo import environment
from .processes import SERVER_CORE
from .web_servers import APP, ENTRIES, GRANIAN, HYPERCORN, OURS, OURS_H11, UVICORN_FAST, UVICORN_H11

CONNECTIONS: Final = 64
MAIN: Final = "hello"
IDLE: Final = "idle"

# the requested path, and wrk's options
LOADS: Final[Mapping[str, tuple[str, Sequence[str]]]] = {
    MAIN: ("/", ()),
    "64 KiB down": ("/large", ()),
    "hello, closing": ("/", ("-H", "Connection: close")),
}

# how each server is told the certificate and the key
_OPTIONS: Final[Mapping[str, tuple[str, str]]] = {
    OURS: ("--certfile", "--keyfile"),
    OURS_H11: ("--certfile", "--keyfile"),
    UVICORN_FAST: ("--ssl-certfile", "--ssl-keyfile"),
    UVICORN_H11: ("--ssl-certfile", "--ssl-keyfile"),
    HYPERCORN: ("--certfile", "--keyfile"),
    GRANIAN: ("--ssl-certificate", "--ssl-keyfile"),
}

METRICS: Final[Mapping[str, Metric]] = {
    "rate": Metric("requests/s", "more"),
    "cpu": Metric("µs/request", "less"),
    "memory": Metric("B/connection", "less"),
    **loaded.CONTEXT,
}


class Tls(Benchmark):
    """The benchmark `tls`. Each measurement starts a server."""

    name = "tls"
    title = "HTTP/1.1 over TLS, one core, wrk with 64 connections: rate, CPU time; memory per idle connection"
    metrics = METRICS
    targets = (
        Target(MAIN, "rate", OURS, UVICORN_FAST, at_least=1.2),
        Target(MAIN, "rate", OURS_H11, HYPERCORN, at_least=3),
    )

    repetitions = 10

    def __init__(self, seconds: int = 3, idle: int = 1000) -> None:
        self._seconds = seconds
        self._idle = idle

    def contestants(self) -> Sequence[Contestant]:
        tool("wrk")  # nothing can be measured without these two
        tool("openssl")
        return [ENTRIES[name].contestant() for name in _OPTIONS]

    def cases(self) -> Sequence[str]:
        return [*LOADS, IDLE]

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        if case == IDLE:
            idle = partial(serving, contestant, neutral=False)
            return {"memory": loaded.memory(idle, lambda server: answered(server.port), self._idle)}
        path, options = LOADS[case]

        def load(server: Server, seconds: int) -> wrk.Requests:
            return wrk.load(f"https://127.0.0.1:{server.port}{path}", CONNECTIONS, seconds, options)

        def measured(server: Server) -> tuple[float, float, Mapping[str, float]]:
            done = load(server, self._seconds)
            return done.number, done.seconds, {}

        return loaded.under(partial(serving, contestant, neutral=True), lambda server: load(server, 1), measured)

    def quick(self) -> Self:
        return type(self)(seconds=1, idle=50)


@contextmanager
def serving(contestant: str, *, neutral: bool) -> Iterator[Server]:
    """Start this server with a certificate, and yield it when it has answered correctly."""
    around = environment(contestant, neutral=neutral)
    with tempfile.TemporaryDirectory() as directory:
        certificate, key = make_certificate(Path(directory))
        with_file, with_key = _OPTIONS[contestant]
        command = [*ENTRIES[contestant].command(APP), with_file, str(certificate), with_key, str(key)]
        with running(command, core=SERVER_CORE, environment=around) as server:
            _wait_until_it_answers(server)
            yield server


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """Make a self-signed certificate and its key with the command `openssl`."""
    certificate, key = directory / "cert.pem", directory / "key.pem"
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    subprocess.run(
        [tool("openssl"), "req", "-x509", *curve, "-nodes", "-keyout", str(key), "-out", str(certificate),
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


@functools.cache
def _client_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@contextmanager
def answered(port: int, path: str = "/") -> Iterator[ssl.SSLSocket]:
    """Open a connection, request once, and keep it open. ContestantError if the answer is wrong."""
    raw = socket.create_connection(("127.0.0.1", port), timeout=START)
    # the end of the handshake and the request are two small sends
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with _client_context().wrap_socket(raw) as client:
        client.sendall(b"GET %b HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % path.encode())
        body, received = PAGES[path][1], b""
        while not received.endswith(body):
            data = client.recv(65536)
            if not data:
                raise ContestantError(f"the server closed before it had answered: {received[:80]!r}")
            received += data
        yield client


def _wait_until_it_answers(server: Server) -> None:
    """Request each page; retry while the connection is refused."""

    def ask(path: str) -> None:
        with answered(server.port, path):
            return

    for path in {path for path, _ in LOADS.values()}:
        loaded.wait_for_answer(server, partial(ask, path))


BENCHMARK = Tls()
