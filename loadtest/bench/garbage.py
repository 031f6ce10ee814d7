"""The memory of a server whose application leaves each body of 1 MB in a reference cycle.

Facts      An exception that is kept in a local variable refers to its frame, and the frame to it. Only Python's cyclic
           garbage collector frees such a cycle, and it counts objects, not bytes.
Hazard     A server that collects seldom, to avoid pauses, keeps what a few large cycles hold.
Answer     The growth of the resident size over 800 requests, at its end and at its largest, with one client and with
           sixteen, which keep bodies in use while a collection runs.
Cost       The clients read the size after each response, so a peak between two is missed.
"""

from __future__ import annotations

import http.client
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

from ..servers import Server, deadlined_command, running, uvicorn_command
from .contest import Benchmark, Contestant, Metric, Target
from .processes import SERVER_CORE

APP: Final = "loadtest.bench.garbage:keeping"
OURS: Final = "deadlined serve"
UVICORN: Final = "uvicorn"
BODY: Final = bytes(1_000_000)
CLIENTS: Final = {"1 client": 1, "16 clients": 16}
# seconds; for one response
PATIENCE: Final = 30.0

METRICS: Final[Mapping[str, Metric]] = {
    "at the end": Metric("MB", "less"),
    "at most": Metric("MB", "less"),
}

Message = dict[str, Any]


async def keeping(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Read the body, and keep an exception in a local variable. The application of the benchmark."""
    if scope["type"] != "http":
        raise NotImplementedError
    body = bytearray()
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    try:
        raise ValueError("kept")
    except ValueError as error:
        kept = error
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b"" if kept else b"never"})


class Garbage(Benchmark):
    """The benchmark `garbage`. Each measurement starts a server of its own."""

    name = "garbage"
    title = "Requests of 1 MB that stay in reference cycles: growth of the server's resident size"
    metrics = METRICS
    targets = tuple(Target(case, "at most", OURS, "", at_most=200.0) for case in CLIENTS)

    def __init__(self, requests: int = 800) -> None:
        self._requests = requests

    def contestants(self) -> Sequence[Contestant]:
        missing = None if find_spec("uvicorn") else "uvicorn is not installed"
        return [Contestant(OURS), Contestant(UVICORN, missing)]

    def cases(self) -> Sequence[str]:
        return tuple(CLIENTS)

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        command = uvicorn_command(APP) if contestant == UVICORN else deadlined_command(APP, "--no-access-log")
        with running(command, core=SERVER_CORE) as server:
            sizes = _sizes(server, self._requests, CLIENTS[case])
        return {"at the end": sizes[-1] - sizes[0], "at most": max(sizes) - sizes[0]}

    def quick(self) -> Self:
        return type(self)(requests=32)


def _sizes(server: Server, requests: int, clients: int) -> list[float]:
    """Return the resident size of the server in MB, after a first request and after each of the others."""
    statm = Path(f"/proc/{server.pid}/statm")
    sizes: list[float] = []

    def ask(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        for _ in range(number):
            connection.request("POST", "/", BODY)
            connection.getresponse().read()
            sizes.append(int(statm.read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6)
        connection.close()

    ask(1)
    with ThreadPoolExecutor(clients) as pool:
        for done in [pool.submit(ask, requests // clients) for _ in range(clients)]:
            done.result()
    return sizes


BENCHMARK = Garbage()
