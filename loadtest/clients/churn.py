"""The client of the benchmark `churn`: many connections whose deadlines move all the time, with an account of each.

    python -m loadtest.clients.churn PORT PID PROFILE CONNECTIONS PERIOD SECONDS

PID is the server's, whose use of the machine is measured while connections are few, all open, and loaded. The last line
of output is one JSON object: the metrics of the benchmark, and counts of what is "wrong" and "broken".
"""

from __future__ import annotations

import gc
import json
import math
import random
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from select import EPOLLIN

from ..churn.profiles import PROFILES, Act, Herd, Steady
from ..histogram import histogram, milliseconds, record
from ..line import close, source
from ..loop import Loop
from ..peers.churn_protocol import CLOSE, MOVE, PATIENCE, REPLY, REQUEST, Account, Verdict
from ..servers import Usage

# connections that are opened at a time while the server is filled: fewer than any backlog
_BATCH = 200
# connections opened before the server is first measured: they load what is loaded once
WARM = 100
# seconds that opening, or one answer, may take
_STALLED = 30.0
# seconds between two searches for lost deadlines, once no requests are made
_SWEEP = 0.25
# the part of the period by which a deadline may be later: those of a burst are not at one instant, as the herd's are
_SPREAD = 0.1
# the part of the requests that clear the deadline, and the seconds of silence after its time, in which its firing would
# be received
_CLEARED = 0.07
_QUIET = 0.1


class Client:
    """One connection. It waits for an answer, for the time of its next act, or for its deadline."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        self.account = Account(crowd.patience)
        self._crowd = crowd
        self._number = number
        self.sock = socket.create_connection(("127.0.0.1", crowd.port), _STALLED, (source(number), 0))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setblocking(False)
        self._open = True
        self._act = Act.SPEAK
        # when the last request was due
        self._since = 0.0
        # whether the server was asked to close
        self._leaving = False
        # when the firing of the deadline before would have been received
        self._quiet = 0.0
        # the beginning of a reply whose end has not been received
        self._partial = b""
        crowd.clients[number] = self
        crowd.loop.watch(self.sock.fileno(), EPOLLIN, self._receive)

    def ask(self, due: float, kind: int = MOVE) -> None:
        account = self.account
        self.give_up()
        if account.due < math.inf:
            self._quiet = account.due + _QUIET
        self._act = Act.SPEAK
        self._leaving = kind == CLOSE
        self._crowd.waiting += 1
        try:
            self.sock.send(REQUEST.pack(account.ask(due), kind, due))
        except ConnectionError:
            self._lost()

    def speak(self, when: float, kind: int = MOVE, *, clears: bool = False) -> None:
        """Make a request at a time, unless the load is over then."""
        crowd = self._crowd
        if when < crowd.end:
            crowd.due += 1
            self._since = when
            self._at(when, partial(self.ask, math.inf if clears else crowd.deadline(when), kind))

    def rest(self) -> None:
        """Speak again later: there is no deadline."""
        self._act = Act.SPEAK
        self.speak(max(self._crowd.profile.back(time.monotonic()), self._quiet))

    def end(self, *, reset: bool = False) -> None:
        """Close, and connect anew: the server reuses the descriptor's number."""
        self._open = False
        self._crowd.loop.forget(self.sock.fileno())
        close(self.sock, reset=reset)
        Client(self._crowd, self._number).rest()

    def _at(self, when: float, action: Callable[[], None]) -> None:
        """Do something at a time, unless this connection has ended by then."""
        self._crowd.loop.at(when, lambda _: action() if self._open else None)

    def _decide(self) -> None:
        """Choose what comes after a deadline was set."""
        crowd = self._crowd
        self._act, when = crowd.profile.next(self._since)
        number = crowd.profile.chance.random()
        if self._act is Act.WAIT:
            self._at(self.account.due + crowd.patience, self.give_up)
        elif self._act is Act.SPEAK:
            self.speak(when, clears=number < _CLEARED)
        elif self._act is Act.CLOSE and number < 0.5:
            self.speak(when, CLOSE)
        elif when < crowd.end:
            self._at(when, partial(self.end, reset=self._act is Act.RESET))

    def _receive(self, mask: int, now: float, wrong: float) -> None:
        try:
            data = self.sock.recv(4096)
        except ConnectionError:
            data = b""
        if not data:
            self._lost()
            return
        data = self._partial + data
        end = len(data) - len(data) % REPLY.size
        self._partial = data[end:]
        for reply in REPLY.iter_unpack(data[:end]):
            self._hear(*reply)

    def _hear(self, number: int, kind: int, due: float, lateness: float) -> None:
        account, crowd = self.account, self._crowd
        waited = account.waiting
        verdict = account.hear(number, kind, due, lateness, time.monotonic())
        crowd.counts[verdict] += 1
        if verdict is Verdict.FIRED and due < crowd.end:
            record(crowd.lateness, lateness)
        if answered := waited and not account.waiting:
            crowd.waiting -= 1
        if answered and account.due < math.inf:
            self._decide()
        elif answered or (self._act is Act.WAIT and account.due == math.inf and not account.waiting):
            self.rest()

    def give_up(self) -> None:
        """Count the deadline if it is lost, and go on if it was waited for."""
        if self.account.overdue(time.monotonic()):
            self._crowd.counts[Verdict.LOST] += 1
            if self._act is Act.WAIT:
                self.rest()

    def _lost(self) -> None:
        """Handle a connection that the server has closed, as requested or not."""
        crowd = self._crowd
        if self._leaving:
            crowd.counts[Verdict.ANSWERED] += 1
        else:
            crowd.broken += 1
        crowd.waiting -= self.account.waiting
        self.end()


class Crowd:
    """All connections, and counts of their replies. `due`: requests that are due before the `end` of the load."""

    def __init__(self, port: int, profile: Steady, patience: float = PATIENCE) -> None:
        self.port = port
        self.profile = profile
        self.patience = patience
        self.loop = Loop()
        self.clients: dict[int, Client] = {}
        self.waiting = 0
        self.due = 0
        self.end = -math.inf
        self.counts: Counter[Verdict] = Counter()
        self.broken = 0
        # of the deadlines that passed under load
        self.lateness = histogram()

    def open(self, number: int) -> None:
        """Connect `number` more without a deadline, and wait for the answers. TimeoutError if that stalls."""
        stalled = time.monotonic() + _STALLED
        for place in range(number):
            Client(self, len(self.clients)).ask(math.inf)
            while self.waiting >= (_BATCH if place < number - 1 else 1):
                if time.monotonic() > stalled:
                    raise TimeoutError(f"{self.waiting} connections were not answered in {_STALLED:g} s")
                self.loop.turn(stalled)

    def load(self, seconds: float, at_half: Callable[[float], None]) -> float:
        """Make requests for `seconds`, and call `at_half` once when half of them have passed; return the share of
        the requests that were due and were answered."""
        began = time.monotonic()
        self.end = began + seconds
        self.loop.at(began + seconds / 2, at_half)
        for client in self.clients.values():
            client.speak(began + self.profile.chance.uniform(0.0, self.profile.period))
        answered = -self.counts[Verdict.ANSWERED]
        while time.monotonic() < self.end:
            self.loop.turn(self.end)
        return (answered + self.counts[Verdict.ANSWERED]) / max(self.due, 1)

    def deadline(self, when: float) -> float:
        """Return the deadline of a request that is due at `when`."""
        spread = 0.0 if isinstance(self.profile, Herd) else self.profile.chance.uniform(0.0, _SPREAD)
        return when + self.profile.period * (1.0 + spread)

    def finish(self) -> None:
        """Wait until every request is answered, and every deadline that is set has fired or is lost."""
        while self._unsettled() and time.monotonic() < self.end + _STALLED:
            self.loop.turn(time.monotonic() + _SWEEP)
            for client in list(self.clients.values()):
                client.give_up()
        self.broken += self.waiting

    def close(self) -> None:
        for client in self.clients.values():
            client.sock.close()
        self.loop.close()

    def _unsettled(self) -> bool:
        return self.waiting > 0 or any(client.account.due < math.inf for client in self.clients.values())


def churned(crowd: Crowd, connections: int, seconds: float, usage: Callable[[], Usage]) -> dict[str, float]:
    """Open connections, load them for `seconds`, wait for the last deadlines, and return the figures.

    `usage` tells what the server uses of the machine.
    """
    half: list[Usage] = []
    try:
        few = min(WARM, connections)
        crowd.open(few)
        warm = usage()
        crowd.open(connections - few)
        # the herd's cycle is of two periods, which the clock counts: measured is from the quiet end of one
        time.sleep(-time.monotonic() % (2 * crowd.profile.period))
        # this client makes few cycles, and a collection of that many objects takes milliseconds
        gc.freeze()
        gc.disable()
        opened = usage()
        before = Counter(crowd.counts)
        began, cpu = time.monotonic(), time.process_time()
        reached = crowd.load(seconds, lambda _: half.append(usage()))
        lasted, cpu = time.monotonic() - began, time.process_time() - cpu
        under_load, loaded = crowd.counts - before, usage()
        crowd.finish()
    finally:
        gc.enable()
        crowd.close()
    return {
        **{name: late for name, late in milliseconds(crowd.lateness, (50, 99)).items() if late is not None},
        "resets": under_load[Verdict.ANSWERED] / lasted, "rate reached": reached * 100,
        "firings": under_load[Verdict.FIRED] / lasted, "CPU": (loaded.cpu - opened.cpu) / lasted * 100,
        "per connection": (opened.resident - warm.resident) / max(connections - few, 1) / 1024,
        "growth": (loaded.resident - half[0].resident) / 1024**2 if half else 0.0,
        **{verdict.value: crowd.counts[verdict] for verdict in (Verdict.STALE, Verdict.EARLY, Verdict.LOST)},
        "client's CPU": cpu / lasted * 100, "wrong": crowd.counts[Verdict.WRONG], "broken": crowd.broken,
    }  # fmt: skip


def main(port: str, pid: str, name: str, connections: str, period: str, seconds: str) -> None:
    crowd = Crowd(int(port), PROFILES[name](float(period), random.Random(1)))
    print(json.dumps(churned(crowd, int(connections), float(seconds), lambda: Usage.of(int(pid)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
