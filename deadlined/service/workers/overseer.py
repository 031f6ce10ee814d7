"""What a supervisor reports about its worker processes: a seam, for the admin listener."""

from __future__ import annotations

import math
import selectors
from collections.abc import Callable
from dataclasses import dataclass

from ..config.rereading import Reloaded

Send = Callable[[bytes, bytes], None]


@dataclass(frozen=True)
class Controls:
    """What an overseer may use of its supervisor. `stop(why)` begins the drain if it has not begun; `reload(by)` reads
    the configuration again. `release()` closes the supervisor's resources in a forked child. `stopping()`: the drain
    has begun. `wanted`: how many worker processes there should be at first."""

    selector: selectors.BaseSelector
    stop: Callable[[str], None]
    reload: Callable[[str], Reloaded]
    release: Callable[[], None]
    stopping: Callable[[], bool]
    wanted: int


class Overseer:
    """Is told what happens to worker processes. This one ignores it; the admin listener's derives from it.

    The supervisor calls all methods in its own loop, so none may block.
    """

    def begin(self, controls: Controls) -> None:
        """Called once, before the first worker process is started."""

    def joined(self, pid: int, number: int, send: Send) -> None:
        """Note a new worker process, to which `send(kind, payload)` sends a frame."""

    def is_ready(self, pid: int) -> None:
        """Note that a worker process serves."""

    def is_silent(self, pid: int, silent: bool) -> None:
        """Note that a worker process that serves does not answer the supervisor, or does so again."""

    def leaves(self, pid: int) -> None:
        """Note that a worker process accepts no connection any more. May be called again."""

    def want(self, number: int) -> None:
        """Note how many worker processes there should be from now on."""

    def configured(self, config: object) -> None:
        """Note the configuration that is in use from now on."""

    def told(self, pid: int, answer: bytes) -> None:
        """Take an answer of a worker process."""

    def left(self, pid: int) -> None:
        """Note that a worker process has ended."""

    def until(self) -> float:
        """Return the time of `time.monotonic()` at which `tick` must be called, `inf` for never."""
        return math.inf

    def tick(self) -> None:
        """Called after each wait of the supervisor's."""

    def abandon(self) -> None:
        """Close everything, in a new worker process."""

    def end(self) -> None:
        """Called once, when all worker processes have ended. May take a moment."""
