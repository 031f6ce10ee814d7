"""Websockets: messages that are echoed per second, CPU time per message, and memory per idle websocket.

Facts      64 websockets each send a message when the echo of the last has come. The client, `clients/websocket.c`, has
           one core, and the server the other. A shared machine may be half as fast again in one second as in another.
Hazard     A client that cannot keep up measures itself.
Answer     `busy` is the share of its core that the server has used. Every echo is compared with the message. uvicorn
           runs beside each server, both are loaded in turn, and `ratio` is the median of the pairs. Memory is
           that of loaded.py.
Cost       Nothing is compressed in the rates: zlib would be most of what is measured. "idle, compressed" is the memory
           of websockets that have agreed on permessage-deflate.

On a machine that others use, `chrt -r 5 python -m loadtest bench websockets` lets nobody else run meanwhile.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final, Self

from ..clients.websockets import opened
from ..servers import ROOT, Server, deadlined_command, running
from . import builds, client, loaded, processes
from .contest import Benchmark, Contestant, Metric, Target
from .echo import environment
from .neighbours import in_quiet
from .processes import SERVER_CORE
from .web_servers import Entry, free_port, module_command, tuned_command

CONNECTIONS: Final = 64
MAIN: Final = "16 B"

LARGE: Final = "64 KiB"

# bytes of a message, and its kind
MESSAGES: Final[Mapping[str, tuple[int, str]]] = {
    MAIN: (16, "text"),
    LARGE: (64 * 1024, "text"),
    f"{LARGE}, binary": (64 * 1024, "binary"),
}
IDLE: Final[Mapping[str, bool]] = {"idle": False, "idle, compressed": True}

_APP: Final = "loadtest.apps:echo"

_CLIENT: Final = ROOT / "loadtest" / "clients" / "websocket.c"

# pairs of loads, and seconds beyond each of them, for opening websockets and for noticing a stall
_PAIRS: Final = 4
_PATIENCE: Final = 30.0

METRICS: Final[Mapping[str, Metric]] = {
    "rate": Metric("messages/s", "more"),
    "ratio": Metric("for one of uvicorn's", "more"),
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
    targets = tuple(Target(case, "ratio", ours, "", at_least=1.2) for case in MESSAGES for ours in (OURS, OURS_TRIO))

    repetitions = 10

    def __init__(self, seconds: float = 0.5, idle: int = 1000) -> None:
        self._seconds = seconds
        self._idle = idle

    def contestants(self) -> Sequence[Contestant]:
        return [entry.contestant() for entry in ENTRIES.values()]

    def cases(self) -> Sequence[str]:
        return [*MESSAGES, *IDLE]

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        if case in IDLE:
            idle = partial(serving, contestant, neutral=False)
            return {"memory": loaded.memory(idle, lambda server: opened(server.port, IDLE[case]), self._idle)}
        return in_quiet(lambda: self._measure(contestant, case))

    def quick(self) -> Self:
        return type(self)(seconds=0.2, idle=50)

    def _measure(self, contestant: str, case: str) -> dict[str, float]:
        with serving(contestant, neutral=True) as server, ExitStack() as beside:
            rival = None
            if contestant != UVICORN and ENTRIES[UVICORN].contestant().missing is None:
                rival = beside.enter_context(serving(UVICORN, neutral=True))
            loads = []
            ratios = []
            for number in range(_PAIRS):
                # in the order ours, theirs, theirs, ours
                before = None if rival is None or number % 2 == 0 else self._load(rival, case)
                loads.append(self._load(server, case))
                after = before if rival is None or before is not None else self._load(rival, case)
                if after is not None:
                    ratios.append(loads[-1]["rate"] / after["rate"])
        figures = {name: statistics.median(load[name] for load in loads) for name in loads[0]}
        return {**figures, "ratio": statistics.median(ratios)} if ratios else figures

    def _load(self, server: Server, case: str) -> dict[str, float]:
        """Load the server for some time, and return its figures."""
        size, kind = MESSAGES[case]

        def load(server: Server) -> tuple[float, float, Mapping[str, float]]:
            done = echoed(server.port, CONNECTIONS, size, kind, self._seconds)
            return done["messages"], done["seconds"], {}

        return loaded.figures(server, load)


def echoed(port: int, connections: int, size: int, kind: str, seconds: float) -> Mapping[str, float]:
    """Let a server echo messages of this kind, `text` or `binary`. Return `messages` and `seconds`. ContestantError for
    an echo that is not the message."""
    command = [str(client.compiled(_CLIENT)), *map(str, (port, connections, size, kind, 0, seconds))]
    return processes.run(command, core=processes.CLIENT_CORE, seconds=seconds + _PATIENCE)


@contextmanager
def serving(contestant: str, *, neutral: bool) -> Iterator[Server]:
    """Start this server, and yield it when it has accepted a websocket. ContestantError if it does not."""
    around = environment(contestant, neutral=neutral)
    with running(ENTRIES[contestant].command(_APP), core=SERVER_CORE, environment=around) as server:
        loaded.wait_for_answer(server, lambda: opened(server.port).close(), RuntimeError)
        yield server


BENCHMARK = Websockets()
