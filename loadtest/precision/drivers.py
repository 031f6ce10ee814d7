"""The drivers of timers: ours, and those they are compared with."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import deadlined

from ..bench import builds

# makes the pump sleep on a timerfd, which counts in nanoseconds, instead of in epoll's milliseconds
PRECISE: Final = "DEADLINED_PRECISE"


@dataclass(frozen=True)
class Driver:
    """A way to run timers.

    `kind`: the argument of the child process. `share`: its number of timers, as a fraction of the others'. `missing`:
    why it cannot be measured.
    """

    name: str
    kind: str
    ours: bool
    share: float = 1.0
    environment: Mapping[str, str] = field(default_factory=dict)
    missing: str | None = None

    def timers(self, count: int) -> int:
        """Return its number of timers if the others have `count`."""
        return max(1, round(count * self.share))

    def command(self, count: int, spread: float) -> list[str]:
        """Return the command of the child process."""
        arguments = [self.kind, str(self.timers(count)), str(spread)]
        return [sys.executable, "-m", f"{__package__}.child", *arguments]

    @property
    def variables(self) -> dict[str, str]:
        """The environment of the child process, in addition to this process's own."""
        return {**builds.environment(builds.INSTALLED), **self.environment}


def drivers() -> list[Driver]:
    """Return all drivers, including missing ones; ours first."""
    without = None if knows_precise() else f"this deadlined does not know {PRECISE}"
    uvloop = None if importlib.util.find_spec("uvloop") else "uvloop is not installed (pip install uvloop)"
    return [
        Driver("deadlined after_func", "after_func", True),
        Driver("deadlined sleep_until", "sleep_until", True),
        Driver("deadlined after_func, precise", "after_func", True, environment={PRECISE: "1"}, missing=without),
        Driver("deadlined TimerThread", "thread", True),
        Driver("trio sleep_until", "trio", False),
        Driver("asyncio call_at", "asyncio", False),
        Driver("uvloop call_at", "uvloop", False, missing=uvloop),
        # one thread per timer: more timers would measure the machine's limit of threads
        Driver("threading.Timer", "threading", False, share=0.2),
    ]


def knows_precise() -> bool:
    """True if a source of the runtime names the variable; the package itself does not tell."""
    package = Path(deadlined.__file__).parent
    sources = [package / "runtime.py", *package.glob("runtime/*.py")]
    return any(PRECISE in source.read_text(encoding="utf-8") for source in sources if source.exists())
