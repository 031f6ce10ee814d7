"""A worker process as its supervisor knows it."""

from __future__ import annotations

import math
import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..process.last_resort import MARGIN
from ..process.signals import ending_of
from .accepting import change
from .channel import Channel
from .frames import ACCEPT, END
from .last_block import LastBlock
from .silence import Silence


@dataclass
class WorkerProcess:
    """What the supervisor knows of a worker process. `block`: what has blocked its event loop. `slots`: what it was
    told to accept from. `kill_at`: when it is killed if it still exists, `inf` for never. `silence`: the questions that
    it has not answered; `silent`: it does not answer now. `killed`: by the supervisor. `answered_at`: the time of its
    last answer. The rest is as `rolling.Member` says."""

    pid: int
    channel: Channel
    started: float
    number: int
    generation: int
    block: LastBlock
    ready: bool = False
    leaving: bool = False
    kill_at: float = math.inf
    silence: Silence = field(default_factory=Silence)
    silent: bool = False
    killed: bool = False
    answered_at: float = -math.inf
    slots: set[int] = field(default_factory=set)

    def answered(self) -> None:
        """Note an answer."""
        self.silence.answered()
        self.answered_at = time.monotonic()

    def accept_from(self, slots: Mapping[int, Sequence[socket.socket]]) -> None:
        """Have it accept from these slots, whose sockets are given, and from no others. Sends what has changed."""
        added, removed = sorted(slots.keys() - self.slots), sorted(self.slots - slots.keys())
        if added or removed:
            self.slots = set(slots)
            numbers = {slot: len(slots[slot]) for slot in added}
            self.channel.send(
                ACCEPT, change(numbers, removed), [each.fileno() for slot in added for each in slots[slot]]
            )

    def cut(self) -> None:
        """Have it end its drain now. If it still exists 2 * MARGIN seconds later, it is killed."""
        self.kill_at = min(self.kill_at, time.monotonic() + 2 * MARGIN)
        self.channel.send(END)

    def dismiss(self) -> None:
        """Have it drain, because others replace or outlive it. SIGHUP, which comes first, tells it that it need not end
        soon; under nohup it is ignored."""
        for number in (signal.SIGHUP, signal.SIGTERM):
            os.kill(self.pid, number)

    def facts(self, code: int) -> dict[str, object]:
        """Return what the log says of its end, which was now. `code` below 0 is the number of a signal."""
        lived = round(time.monotonic() - self.started, 3)
        return {"number": self.number, "pid": self.pid, **ending_of(code, ended_here=self.killed), "lived": lived}
