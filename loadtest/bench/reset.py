"""The cost of moving a deadline, beside the equivalents of trio, asyncio, uvloop and Go.

Facts      A server moves a deadline with every read and every write; hardly any of them passes.
Hazard     A figure without reading the clock, or on an empty heap, is too good.
Answer     Every operation reads its clock. Each is measured with the same number of timers armed in its own heap. An
           operation that arms a new timer and cancels it (a scope entered and left, `call_later`) has one figure, shown
           under "later" and under "set and cleared".
Cost       No machine has descriptors for a million connections: the measured deadline is that of a real one, and the
           others are bare timers in the same heap.

The fair rivals do as little as ours: a deadline that is stored in an object, whose `call_at` looks at it when it comes
and is armed anew, and `socket.settimeout`, which stores a timeout and reads no clock.

"Past expiry" is the worst case of a deadline that is stored: each is moved later once only, and the old time of each
comes, so that a timer queue must file it anew. The figure is the CPU time of both, because the runtime of Go does the
second whenever it likes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from .builds import INSTALLED, PURE, environment
from .contest import Metric, Target
from .processes import run
from .programs import Programs

INSIDE = ", set_read_timeout"
GO = "Go SetReadDeadline"
SCOPE = "trio.move_on_after, entered and left"
TIMEOUT = "asyncio.timeout, entered and left"

# those that have nothing to file anew, or do the same as another
_ONLY_LIVE = (INSTALLED + INSIDE, PURE + INSIDE, SCOPE, TIMEOUT)


def _live(number: int) -> str:
    return f"{number:,} live"


def _targets() -> Sequence[Target]:
    found = []
    for case in map(_live, (1, 10_000, 1_000_000)):
        for build, share in ((INSTALLED, 0.5), (PURE, 0.8)):
            found.append(Target(case, "later", build + INSIDE, GO, at_most=share))
            # 40 times cheaper
            found += [Target(case, "later", build + INSIDE, peer, at_most=1 / 40) for peer in (SCOPE, TIMEOUT)]
    return found


class Reset(Programs):
    """The benchmark `reset`: deadlines beside `lives` others, and `refiled` ones past expiry.

    The operations are measured in 15 rounds: many short ones, because an interruption of some does not change the
    median.
    """

    name = "reset"
    title = "Moving a deadline"
    metrics: Mapping[str, Metric] = {
        "later": Metric("ns", "less"),
        "earlier": Metric("ns", "less"),
        "set and cleared": Metric("ns", "less"),
        "moved and filed anew": Metric("ns of CPU", "less"),
    }
    targets = _targets()

    def __init__(
        self,
        lives: Sequence[int] = (1, 10_000, 1_000_000),
        refiled: int = 10_000,
        operations: int = 5_000,
        rounds: int = 15,
    ) -> None:
        # the arguments of a program by the case
        self._cases = {_live(number): ("live", number, operations, rounds) for number in lives}
        self._expiry = f"{refiled:,} past expiry"
        self._cases[self._expiry] = ("expiry", refiled, 1, 1)

    def cases(self) -> Sequence[str]:
        return list(self._cases)

    def skips(self, contestant: str, case: str) -> str | None:
        return "no figure of its own here" if case == self._expiry and contestant in _ONLY_LIVE else None

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        return run(self.command(contestant, *self._cases[case]), environment(contestant))

    def quick(self) -> Self:
        return type(self)(lives=(100,), refiled=200, operations=500, rounds=1)


BENCHMARK = Reset()
