"""Websockets: messages that are echoed per second, CPU time per message, and memory per idle websocket.

Facts      64 websockets each send a message when the echo of the last has come. The client is a loop over epoll with
           frames that were made beforehand; it has one core, and the server the other.
Hazard     A client that cannot keep up measures itself.
Answer     `busy` is the share of its core that the server has used. Every echo is compared with the message. Memory is
           that of loaded.py.
Cost       Nothing is compressed in the rates: zlib would be most of what is measured. "idle, compressed" is the memory
           of websockets that have agreed on permessage-deflate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, Self

from ..clients.websockets import echoed, opened
from ..servers import Server, deadlined_command, running
from . import builds, loaded
from .contest import Benchmark, Contestant, Metric, Target
from .echo import environment
from .processes import SERVER_CORE
from .web_servers import Entry, free_port, module_command, tuned_command

CONNECTIONS: Final = 64
MAIN: Final = "16 B"

# bytes of a message
SIZES: Final[Mapping[str, int]] = {MAIN: 16, "64 KiB": 64 * 1024}
IDLE: Final[Mapping[str, bool]] = {"idle": False, "idle, compressed": True}

_APP: Final = "loadtest.apps:echo"

METRICS: Final[Mapping[str, Metric]] = {
    "rate": Metric("messages/s", "more"),
    "cpu": Metric("µs/message", "less"),
    "memory": Metric("B/websocket", "less"),
    **loaded.CONTEXT,
}

OURS: Final = f"{builds.INSTALLED} uvloop"
OURS_TRIO: Final = f"{builds.INSTALLED} trio"
UVICORN: Final = "uvicorn websockets uvloop"
UVICORN_SANSIO: Final = "uvicorn websockets-sansio uvloop"
GRANIAN: Final = "granian"


def _ours(loop: str) -> list[str]:
    return deadlined_command(_APP, "--no-access-log", "--loop", loop)


def _uvicorn(library: str) -> list[str]:
    return tuned_command(
        "uvicorn", _APP, "--http", "httptools", "--loop", "uvloop", "--ws", library, "--no-access-log",
        "--host", "127.0.0.1", "--port", "0",
    )  # fmt: skip


def _granian(app: str) -> list[str]:
    return module_command(
        "granian", "--interface", "asgi", "--workers", "1", "--loop", "uvloop", "--no-access-log",
        "--host", "127.0.0.1", "--port", str(free_port()), app,
    )  # fmt: skip


ENTRIES: Final[Mapping[str, Entry]] = {
    entry.name: entry
    for entry in (
        Entry(OURS, lambda app: _ours("uvloop"), ("uvloop", "websockets")),
        Entry(OURS_TRIO, lambda app: _ours("trio"), ("websockets",)),
        Entry(UVICORN, lambda app: _uvicorn("websockets"), ("uvicorn", "httptools", "uvloop", "websockets")),
        Entry(
            UVICORN_SANSIO, lambda app: _uvicorn("websockets-sansio"), ("uvicorn", "httptools", "uvloop", "websockets")
        ),
        Entry(GRANIAN, _granian, ("granian", "uvloop")),
    )
}


class Websockets(Benchmark):
    """The benchmark `websockets`. Each measurement starts a server."""

    name = "websockets"
    title = "Websockets, one core, 64 clients: messages echoed, CPU time; memory per idle websocket"
    metrics = METRICS
    targets = tuple(Target(size, "rate", OURS, UVICORN, at_least=1.2) for size in SIZES)

    repetitions = 10

    def __init__(self, seconds: float = 3.0, idle: int = 1000) -> None:
        self._seconds = seconds
        self._idle = idle

    def contestants(self) -> Sequence[Contestant]:
        return [entry.contestant() for entry in ENTRIES.values()]

    def cases(self) -> Sequence[str]:
        return [*SIZES, *IDLE]

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        if case in IDLE:
            idle = partial(serving, contestant, neutral=False)
            return {"memory": loaded.memory(idle, lambda server: opened(server.port, IDLE[case]), self._idle)}
        size = SIZES[case]

        def measured(server: Server) -> tuple[float, float, Mapping[str, float]]:
            return echoed(server.port, CONNECTIONS, size, self._seconds) * self._seconds, self._seconds, {}

        return loaded.under(
            partial(serving, contestant, neutral=True),
            lambda server: echoed(server.port, CONNECTIONS, size, self._seconds / 5),
            measured,
        )

    def quick(self) -> Self:
        return type(self)(seconds=0.2, idle=50)


@contextmanager
def serving(contestant: str, *, neutral: bool) -> Iterator[Server]:
    """Start this server, and yield it when it has echoed. ContestantError if it does not."""
    around = environment(contestant, neutral=neutral)
    with running(ENTRIES[contestant].command(_APP), core=SERVER_CORE, environment=around) as server:
        loaded.wait_for_answer(server, lambda: echoed(server.port, 1, 16, 0.01), RuntimeError)
        yield server


BENCHMARK = Websockets()
