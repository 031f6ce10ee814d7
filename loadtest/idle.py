"""Ten thousand idle keep-alive connections: what they cost while nothing happens, and when they are cut.

Facts      The server advertises its idle timeout and closes a second later, so that a client's last request wins the
           race. Each connection has one timer in the heap.
Hazard     A timer per request that wakes the process when it is overdue for nothing, or a scan over all connections,
           would burn CPU between the deadlines.
Answer     CPU time, context switches and memory are the kernel's own counts of the server process, taken while every
           connection is idle and none is due.
Cost       Counts of CPU time have a resolution of a tick, usually 10 ms.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections import Counter
from dataclasses import asdict, dataclass

from .report import console, quantiles, save, show
from .servers import Server, Usage, deadlined_command, raise_file_limit, running

APP = "loadtest.apps:hello"

_REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
_ANSWERED = b"Hello, world!"

# connections that are opened and asked at a time: fewer than any backlog
_BATCH = 200
# seconds without any progress after which opening, or waiting for the cuts, is given up
_STALLED = 15.0


@dataclass(frozen=True)
class Outcome:
    """What the idle connections cost, over `quiet` seconds, and how they ended; times in seconds, sizes in bytes.

    `early`: cut before the advertised timeout was over, seen by the client. `after`: seconds from the answer to
    the cut, seen by the client; `lateness`: the server's own.
    """

    connections: int
    idle: float
    opening: float
    quiet: float
    cpu: float
    switches: int
    bytes_per_connection: float
    cut: int
    early: int
    reasons: dict[str, int]
    after: dict[str, float]
    lateness: dict[str, float]

    @property
    def good(self) -> bool:
        """All were cut as idle, and none before its time."""
        return self.cut == self.connections and self.reasons == {"idle_timeout": self.connections} and not self.early


class Crowd:
    """Client connections that have each made one request and now say nothing."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._selector = selectors.DefaultSelector()
        # when each was answered, on the clock of `time.monotonic`
        self._answered: dict[socket.socket, float] = {}
        self.cut_after: list[float] = []

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._answered:
            client.close()
        self._selector.close()

    def open(self, number: int) -> None:
        """Connect `number` clients, let each ask once, and read the answers. RuntimeError if that stalls."""
        while number > 0:
            batch = min(number, _BATCH)
            clients = [socket.create_connection(("127.0.0.1", self._port)) for _ in range(batch)]
            for client in clients:
                client.settimeout(_STALLED)
                client.sendall(_REQUEST)
            for client in clients:
                self._answered[client] = _answer(client)
                client.setblocking(False)
                self._selector.register(client, selectors.EVENT_READ)
            number -= batch

    def wait_until_cut(self, idle: float) -> None:
        """Note when each is closed; end when all are, or when nothing happens any more."""
        waiting = len(self._answered)
        while waiting and (events := self._selector.select(idle + _STALLED)):
            now = time.monotonic()
            for key, _ in events:
                client = key.fileobj
                assert isinstance(client, socket.socket)
                self._selector.unregister(client)
                self.cut_after.append(now - self._answered[client])
                client.close()
                waiting -= 1


def _answer(client: socket.socket) -> float:
    """Read one answer; when its end was here."""
    received = b""
    while not received.endswith(_ANSWERED):
        data = client.recv(4096)
        if not data:
            raise RuntimeError(f"the server closed before it had answered: {received!r}")
        received += data
    return time.monotonic()


def measure(connections: int = 10_000, idle: float = 8.0, quiet: float = 3.0) -> Outcome:
    """Let `connections` be idle against a server of their own.

    RuntimeError if the machine lets too few descriptors be opened, or is so slow that the first connection would be
    due before the last has been idle for `quiet` seconds.
    """
    if raise_file_limit(connections + 500) < connections + 100:
        raise RuntimeError(f"{connections} connections need as many descriptors: raise the limit (ulimit -n)")
    with running(deadlined_command(APP, "--idle", f"{idle}s")) as server, Crowd(server.port) as crowd:
        crowd.open(min(100, connections))  # the first ones bring in what is loaded once
        before = Usage.of(server.pid)
        began = time.monotonic()
        crowd.open(connections - min(100, connections))
        opening = time.monotonic() - began
        if opening + quiet + 0.5 > idle:
            raise RuntimeError(f"opening took {opening:.1f} s: there is no quiet time left, choose a longer idle")
        full, after = _watch(server, quiet)
        crowd.wait_until_cut(idle)
        server.wait_for(lambda self: len(self.connections()) >= connections, _STALLED)
    records = server.connections()
    return Outcome(
        connections=connections,
        idle=idle,
        opening=opening,
        quiet=quiet,
        cpu=after.cpu - full.cpu,
        switches=after.switches - full.switches,
        bytes_per_connection=(full.resident - before.resident) / max(connections - 100, 1),
        cut=len(crowd.cut_after),
        early=sum(seconds < idle for seconds in crowd.cut_after),
        reasons=dict(Counter(record["reason"] for record in records)),
        after=quantiles(crowd.cut_after),
        lateness=quantiles([record["lateness"] for record in records]),
    )


def _watch(server: Server, seconds: float) -> tuple[Usage, Usage]:
    """The server's use before and after a time in which nobody asks anything."""
    time.sleep(0.3)  # what it still does for the last answers is not idling
    first = Usage.of(server.pid)
    time.sleep(seconds)
    return first, Usage.of(server.pid)


def run(connections: int, idle: float) -> bool:
    """Measure, a table and a file; whether all were cut as idle and in time."""
    console.print(f"{connections} idle connections, idle timeout {idle:g} s ...")
    outcome = measure(connections, idle)
    rows = [
        ("connections", f"{outcome.connections:,}"),
        ("CPU while idle", f"{outcome.cpu * 1000:.0f} ms in {outcome.quiet:g} s ({outcome.cpu / outcome.quiet:.2%})"),
        ("context switches while idle", f"{outcome.switches} in {outcome.quiet:g} s"),
        ("memory per connection", f"{outcome.bytes_per_connection / 1024:.1f} KiB"),
        ("cut as idle_timeout", f"{outcome.reasons.get('idle_timeout', 0):,}"),
        ("cut early", str(outcome.early)),
        ("cut after, p50 / p99 / max", _three(outcome.after, 1, "s")),
        ("lateness, p50 / p99 / max", _three(outcome.lateness, 1000, "ms")),
    ]
    show(f"Idle connections of deadlined serve --idle {idle:g}s", ("", "measured"), rows)
    save("idle", {**asdict(outcome), "good": outcome.good})
    return outcome.good


def _three(values: dict[str, float], factor: float, unit: str) -> str:
    return " / ".join(f"{values[name] * factor:.2f}" for name in ("p50", "p99", "max")) + f" {unit}"
