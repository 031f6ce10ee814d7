"""The client of the benchmark `churn`: many connections whose deadlines move at a given rate, with an account of each.

    python -m loadtest.clients.churn PORT PID PROFILE CONNECTIONS RATE SECONDS

PID is the server's, whose use of the machine is measured while connections are few, all open, and loaded. The last line
of output is one JSON object: the metrics of the benchmark, and counts of what is "wrong" and "broken".

Facts      Most deadlines are moved before they pass; some pass, some are cleared, and some connections are closed by
           either side while a deadline is set. A closed descriptor's number is used again at once.
Hazard     A client that cannot keep up measures itself.
Answer     Requests are due by the clock, `RATE` per second in all. The share that was due and answered is reported, and
           so is the client's own use of its core.
Cost       epoll's millisecond: a steady rate is a handful of requests each millisecond.
"""

from __future__ import annotations

import gc
import heapq
import json
import math
import random
import select
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Final

from ..dial import bind, close, source
from ..peers.churn_protocol import MOVE, REPLY, REQUEST
from ..servers import Usage
from .churn_account import PATIENCE, Account, Verdict
from .churn_profiles import PROFILES, Move, Profile, Then

# connections that are opened at a time while the server is filled: fewer than any backlog
_BATCH: Final = 200
# connections opened before the server is first measured: they load what is loaded once
WARM: Final = 100
# seconds that opening, or one answer, may take
_STALLED: Final = 30.0
# requests sent between two polls for replies
_SENDS: Final = 100
# seconds between two searches for lost deadlines
_SWEEP: Final = 0.25
# seconds of silence after the time of a cleared deadline, in which its firing would be received
_QUIET: Final = 0.1


class Client:
    """One connection."""

    __slots__ = ("account", "address", "partial", "quiet_until", "sock", "then")

    def __init__(self, sock: socket.socket, address: str, account: Account) -> None:
        self.sock = sock
        self.address = address
        self.account = account
        self.then = Then.GO_ON
        self.quiet_until = 0.0
        # the beginning of a reply whose end has not been received
        self.partial = b""


class Crowd:
    """All connections, and counts of their replies."""

    def __init__(self, port: int, profile: Profile, patience: float = PATIENCE) -> None:
        self._port = port
        self._patience = patience
        self._profile = profile
        self._epoll = select.epoll()
        self._clients: dict[int, Client] = {}
        self._ready: deque[Client] = deque()
        # time, a number that makes entries comparable, client
        self._quiet: list[tuple[float, int, Client]] = []
        self._quieted = 0
        self._waiting = 0
        self._loading = math.inf
        self._closed = 0
        self.counts: Counter[Verdict] = Counter()
        self.broken = 0
        # seconds, of the deadlines that passed under load
        self.lateness: list[float] = []

    def open(self, number: int) -> None:
        """Connect `number` more without a deadline, and wait for the answers. TimeoutError if that stalls."""
        while number > 0:
            batch = min(number, _BATCH)
            for _ in range(batch):
                self._send(self._connect(source(len(self._clients))), Move(MOVE, math.inf, Then.GO_ON))
            stalled = time.monotonic() + _STALLED
            while self._waiting:
                if time.monotonic() > stalled:
                    raise TimeoutError(f"{self._waiting} connections were not answered in {_STALLED:g} s")
                self._receive(0.1)
            number -= batch

    def load(self, seconds: float, at_third: Callable[[], object]) -> float:
        """Make requests for `seconds`, and call `at_third` once when a third of them has passed; return the share of
        the requests that were due and were answered."""
        began = time.monotonic()
        self._loading = began + seconds
        made, spared, sweep, third = 0, 0, began + _SWEEP, began + seconds / 3
        answered = -self.counts[Verdict.ANSWERED]
        while (now := time.monotonic()) < self._loading:
            owed = self._profile.owed(now - began) - made - spared
            turns = min(owed, len(self._ready), _SENDS)
            for _ in range(turns):
                self._turn(self._ready.popleft())
            made += turns
            if owed > turns and not self._ready and not self._waiting:
                # every connection waits for a deadline, as intended: no request is due
                spared += owed - turns
            self._receive(0.0 if owed > turns and self._ready else 0.001)
            if now > sweep:
                sweep = now + _SWEEP
                self._wake(now)
                self._sweep()
            if now > third:
                third = math.inf
                at_third()
        owed = self._profile.owed(seconds) - spared
        return (answered + self.counts[Verdict.ANSWERED]) / max(owed, 1)

    def finish(self) -> None:
        """Send nothing more until every set deadline has fired or is lost."""
        while self._waiting or any(client.account.due < math.inf for client in self._clients.values()):
            self._receive(0.1)
            self._sweep()
            if time.monotonic() > self._loading + _STALLED:
                break
        # deadlines that are still set are lost, requests still unanswered are broken connections
        self.counts[Verdict.LOST] += sum(client.account.due < math.inf for client in self._clients.values())
        self.broken += self._waiting

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            client.sock.close()
        self._epoll.close()

    def _connect(self, address: str) -> Client:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.settimeout(_STALLED)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bind(sock, address)
        sock.connect(("127.0.0.1", self._port))
        sock.setblocking(False)
        client = Client(sock, address, Account(self._patience))
        self._clients[sock.fileno()] = client
        self._epoll.register(sock, select.EPOLLIN)
        return client

    def _turn(self, client: Client) -> None:
        now = time.monotonic()
        account = client.account
        if account.overdue(now):
            self.counts[Verdict.LOST] += 1
        move = self._profile.move(now, account.due)
        # when the deadline that is cleared now would have fired
        client.quiet_until = 0.0 if account.due == math.inf else account.due + _QUIET
        self._send(client, move)

    def _send(self, client: Client, move: Move) -> None:
        client.then = move.then
        number = client.account.ask(move.kind, move.seconds, time.monotonic())
        self._waiting += 1
        try:
            client.sock.send(REQUEST.pack(number, move.kind, move.seconds))
        except ConnectionError:
            self._lose(client)

    def _receive(self, timeout: float) -> None:
        for fd, _ in self._epoll.poll(timeout, 512):
            client = self._clients[fd]
            try:
                data = client.sock.recv(4096)
            except ConnectionError:
                data = b""
            if data:
                self._hear(client, client.partial + data)
            else:
                self._lose(client)

    def _hear(self, client: Client, data: bytes) -> None:
        end = len(data) - len(data) % REPLY.size
        client.partial = data[end:]
        for number, kind, due, lateness in REPLY.iter_unpack(data[:end]):
            account = client.account
            waited = account.waiting
            verdict = account.hear(number, kind, due, lateness, time.monotonic())
            self.counts[verdict] += 1
            if verdict is Verdict.FIRED and due < self._loading:
                self.lateness.append(lateness)
            if waited and not account.waiting:
                self._waiting -= 1
                self._answered(client)
            elif verdict is Verdict.FIRED:
                self._expected(client)

    def _answered(self, client: Client) -> None:
        if client.then is Then.CLOSE:
            self._replace(client)
        elif client.then is Then.KEEP_QUIET:
            self._quieted += 1
            heapq.heappush(self._quiet, (client.quiet_until, self._quieted, client))
        elif client.then is Then.GO_ON or (client.then is Then.EXPECT and client.account.due == math.inf):
            # in the second case it fired before the answer
            self._go_on(client)

    def _expected(self, client: Client) -> None:
        """Continue a client whose expected deadline has fired or is lost.

        If a request is unanswered, the deadline was that of the request before, and the client goes on waiting.
        """
        if client.then is Then.EXPECT and not client.account.waiting:
            self._go_on(client)

    def _go_on(self, client: Client) -> None:
        client.then = Then.GO_ON
        self._ready.append(client)

    def _lose(self, client: Client) -> None:
        """Handle a connection that the server has closed, as requested or not."""
        if client.then is Then.BE_CLOSED:
            self.counts[Verdict.ANSWERED] += 1
        else:
            self.broken += 1
            if client in self._ready:
                self._ready.remove(client)
            self._quiet = [entry for entry in self._quiet if entry[2] is not client]
            heapq.heapify(self._quiet)
        if client.account.waiting:
            self._waiting -= 1
        self._replace(client)

    def _replace(self, client: Client) -> None:
        """Close, every second time with a reset, and connect anew: the server reuses the descriptor's number."""
        self._closed += 1
        self._epoll.unregister(client.sock)
        del self._clients[client.sock.fileno()]
        close(client.sock, reset=self._closed % 2 == 1)
        self._ready.append(self._connect(client.address))

    def _wake(self, now: float) -> None:
        while self._quiet and self._quiet[0][0] <= now:
            self._go_on(heapq.heappop(self._quiet)[2])

    def _sweep(self) -> None:
        # first process replies that have been received
        self._receive(0.0)
        now = time.monotonic()
        for client in self._clients.values():
            if client.account.overdue(now):
                self.counts[Verdict.LOST] += 1
                self._expected(client)


def churned(
    port: int,
    profile: Profile,
    connections: int,
    seconds: float,
    usage: Callable[[], Usage],
    patience: float = PATIENCE,
) -> dict[str, float]:
    """Open connections, load them for `seconds`, wait for the last deadlines, and return the figures.

    `usage` tells what the server uses of the machine.
    """
    crowd = Crowd(port, profile, patience)
    try:
        few = min(WARM, connections)
        crowd.open(few)
        warm = usage()
        crowd.open(connections - few)
        # this client makes no cycles, and a collection of that many objects takes milliseconds
        gc.freeze()
        gc.disable()
        opened, third = usage(), []
        before = Counter(crowd.counts)
        began, cpu = time.monotonic(), time.process_time()
        reached = crowd.load(seconds, lambda: third.append(usage()))
        lasted, cpu = time.monotonic() - began, time.process_time() - cpu
        under_load, loaded = crowd.counts - before, usage()
        crowd.finish()
    finally:
        gc.enable()
        crowd.close()
    return {
        **lateness(crowd.lateness),
        "resets": under_load[Verdict.ANSWERED] / lasted,
        "rate reached": reached * 100,
        "firings": under_load[Verdict.FIRED] / lasted,
        "CPU": (loaded.cpu - opened.cpu) / lasted * 100,
        "per connection": (opened.resident - warm.resident) / max(connections - few, 1) / 1024,
        "growth": (loaded.resident - third[0].resident) / 1024**2 if third else 0.0,
        **{verdict.value: crowd.counts[verdict] for verdict in (Verdict.STALE, Verdict.EARLY, Verdict.LOST)},
        "client's CPU": cpu / lasted * 100,
        "wrong": crowd.counts[Verdict.WRONG],
        "broken": crowd.broken,
    }


def lateness(seconds: Sequence[float]) -> dict[str, float]:
    """Return quantiles in milliseconds; nothing of nothing."""
    ordered = sorted(seconds)
    places = {"p50": 50, "p99": 99, "max": 100} if ordered else {}
    return {name: ordered[round(percent * (len(ordered) - 1) / 100)] * 1000 for name, percent in places.items()}


def main(port: str, pid: str, name: str, connections: str, rate: str, seconds: str) -> None:
    """Run the client with the arguments of the command line above."""
    profile = PROFILES[name](int(connections), float(rate), random.Random(1))
    found = churned(int(port), profile, int(connections), float(seconds), lambda: Usage.of(int(pid)))
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
