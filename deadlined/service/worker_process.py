"""A worker process as its supervisor knows it."""

from __future__ import annotations

import math
import os
import signal
import time
from dataclasses import dataclass, field

from .channel import Channel
from .signals import signal_name


@dataclass
class WorkerProcess:
    """What the supervisor knows of a worker process. `slots`: what it was told to accept from. `kill_at`: when it is
    killed if it still exists, `inf` for never. `unanswered`: questions of the watchdog since its last answer. The rest
    is as `rolling.Member` says."""

    channel: Channel
    started: float
    number: int
    generation: int
    ready: bool = False
    leaving: bool = False
    kill_at: float = math.inf
    unanswered: int = 0
    slots: set[int] = field(default_factory=set)

    def facts(self, pid: int, code: int) -> dict[str, object]:
        """Return what the log says of its end, which was now. `code` below 0 is the number of a signal."""
        how: dict[str, object] = {"code": code} if code >= 0 else {"signal": signal_name(-code)}
        return {"number": self.number, "pid": pid, **how, "lived": round(time.monotonic() - self.started, 3)}


def dismiss(pid: int) -> None:
    """Have a worker process drain that others replace or outlive. SIGHUP, which comes first, tells it that it need not
    end soon; under nohup it is ignored."""
    for number in (signal.SIGHUP, signal.SIGTERM):
        os.kill(pid, number)
