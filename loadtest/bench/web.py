"""The benchmarks of HTTP servers: `http`, `duel`, `idle` and `proxied`."""

from __future__ import annotations

import shutil
import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from .. import apps
from ..servers import Server, tool
from ..target import unverified
from . import builds, processes
from .client import Requests
from .contest import STATED, Benchmark, Contestant, Target, table
from .crowd import COMPRESSED, HELLO, WEBSOCKET, Crowd, allowed
from .web_servers import CASES, ENTRIES, MAIN, PAGES, Case, answering, filled, free_port, load, serving

# by one of ours and another server, and by case, the requests of ours that are wanted for one of theirs
RIVALS: Mapping[str, Mapping[str, Mapping[str, float]]] = table("duels.toml")
# the cases: those of `http` with each of the other servers
DUELS: Mapping[str, tuple[str, str]] = {
    f"{case}; {theirs}": (case, theirs)
    for theirs in dict.fromkeys(theirs for rivals in RIVALS.values() for theirs in rivals)
    for case, asked in CASES.items()
    if ENTRIES[theirs].refuses(asked) is None
}

_PROXIES = table("proxies.toml")
# the commands of ours, with @UPSTREAM@ and @APP@
_COMMANDS: Mapping[str, str] = _PROXIES["commands"]
# the configurations of nginx, with @UPSTREAM@, @PORT@, @BODY@ and @DIRECTORY@
_NGINX: Mapping[str, str] = _PROXIES["nginx"]


class Served(Benchmark):
    """A benchmark whose contestants are servers of servers.toml. `asked`: what each of its cases asks of them."""

    asked: Mapping[str, Case] = CASES

    def skips(self, contestant: str, case: str) -> str | None:
        return ENTRIES[contestant].refuses(self.asked[case]) or self.asked[case].missing

    def saturates(self, case: str) -> bool:
        # one client waits for each of its answers
        return self.asked[case].connections > 1


class Web(Served):
    def contestants(self) -> Sequence[Contestant]:
        tool("wrk")  # nothing can be measured without it
        return [entry.contestant() for entry in ENTRIES.values()]

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        with serving(ENTRIES[contestant], CASES[case]) as server:
            done = _loaded(server, CASES[case], self.stated["seconds"])
        waits = {"p50": done.p50 * 1e3, "p99": done.p99 * 1e3, "wakes": done.wakes / done.number} if done.p99 else {}
        return done.figures | waits


class Duel(Served):
    asked: Mapping[str, Case] = {case: CASES[name] for case, (name, _) in DUELS.items()}

    def __init__(self, name: str, *, quick: bool = False) -> None:
        super().__init__(name, quick=quick)
        self.targets = [
            Target(f"{case}; {theirs}", "requests", ours, "", at_least=least)
            for ours, rivals in RIVALS.items()
            for theirs, wanted in rivals.items()
            for case, least in wanted.items()
        ]

    def contestants(self) -> Sequence[Contestant]:
        tool("wrk")
        return [ENTRIES[name].contestant() for name in RIVALS]

    def skips(self, contestant: str, case: str) -> str | None:
        _, theirs = DUELS[case]
        if theirs not in RIVALS[contestant]:
            return "compared with other servers"
        if (missing := ENTRIES[theirs].contestant().missing) is not None:
            return f"{theirs} is missing: {missing}"
        return super().skips(contestant, case)

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        asked, (_, other) = self.asked[case], DUELS[case]
        with serving(ENTRIES[contestant], asked) as ours, serving(ENTRIES[other], asked) as theirs:
            for server in (ours, theirs):
                load(server, asked, 1)
            mine, others = list[Requests](), list[Requests]()
            for _ in range(self.stated["pairs"] // 2):
                first, second, third, fourth = (load(server, asked, 1) for server in (ours, theirs, theirs, ours))
                mine += first, fourth
                others += second, third
        requests = statistics.median(done.rate / beside.rate for done, beside in zip(mine, others, strict=True))
        busy = min(statistics.median(done.busy for done in side) for side in (mine, others))
        return {"requests": requests, "busy": busy}


class Idle(Served):
    # memory under the allocator's defaults
    asked: Mapping[str, Case] = {name: Case(**case, neutral=False) for name, case in STATED["idle"]["cases"].items()}

    def contestants(self) -> Sequence[Contestant]:
        return [entry.contestant() for entry in ENTRIES.values() if entry.idle]

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        asked = self.asked[case]
        websocket = COMPRESSED if case.endswith("compressed") else WEBSOCKET
        greeting = websocket if asked.speaks == "websocket" else HELLO
        connections = allowed(min(asked.connections, self.stated["most"]))
        context = unverified() if asked.speaks == "tls" else None
        with serving(ENTRIES[contestant], asked) as server, Crowd(server.port, greeting, context) as crowd:
            return {**crowd.cost(server, connections, self.stated["seconds"]), "connections": connections}


class Proxied(Benchmark):
    def contestants(self) -> Sequence[Contestant]:
        tool("wrk")
        tool("nginx")  # nothing can be measured without an upstream
        ours = [Contestant(name, builds.missing(name)) for name in _COMMANDS]
        return [*ours, Contestant("nginx")]

    def saturates(self, case: str) -> bool:
        return False

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        with _nginx("upstream", 0, processes.CLIENT_CORE) as upstream, _proxy(contestant, upstream.port) as server:
            return _loaded(server, CASES[case], self.stated["seconds"]).figures


def _loaded(server: Server, asked: Case, seconds: int) -> Requests:
    """Load a server for a second, after which it is warm, and then for as long as it is measured."""
    load(server, asked, 1)
    return load(server, asked, seconds)


def _proxy(contestant: str, upstream: int) -> AbstractContextManager[Server]:
    if contestant == "nginx":
        return _nginx("proxy", upstream, processes.SERVER_CORE)
    command = [sys.executable, "-m", *filled(_COMMANDS[contestant], {"UPSTREAM": upstream, "APP": PAGES}).split()]
    around = builds.surroundings(contestant, neutral=True)
    return answering(CASES[MAIN], command, core=processes.SERVER_CORE, environment=around)


def _nginx(configuration: str, upstream: int, core: int) -> AbstractContextManager[Server]:
    folder, port = processes.scratch() / f"nginx-{configuration}", free_port()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    words = {"UPSTREAM": upstream, "PORT": port, "BODY": apps.PAGES["/"][1].decode(), "DIRECTORY": folder}
    (folder / "nginx.conf").write_text(filled(_NGINX[configuration], words), encoding="utf-8")
    # it does not say where it listens
    script = f"echo http://127.0.0.1:{port}; exec {tool('nginx')} -p {folder} -c {folder}/nginx.conf -e {folder}/errors"
    return answering(CASES[MAIN], ["sh", "-c", script], core=core)
