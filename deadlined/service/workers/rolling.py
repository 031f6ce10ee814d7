"""Which worker process is started, and which one has to leave: pure functions of their list. And how far the latest
change of all of them is.

Facts      Python cannot import a changed application again in a process. A process that drains may take as long as the
           drain's timeout, and serves its open requests meanwhile.
Hazard     An application that is broken must not take the place of one that serves. One that hangs in its startup must
           not keep a later reload from starting what was mended. A reload every second must not start a new set of
           processes every second.
Answer     One after another: a new process is started beside the one that it replaces, which leaves once the new one
           serves. If the new one does not start, the others stay as they are. If it does not serve when the next reload
           comes, it leaves, and another takes its place. One that took the place of a process that has died may be
           about to serve, so it is treated as if it served: it leaves only once its replacement serves. While as many
           processes leave as there should be, a replacement waits.
Cost       In reloads, up to twice as many processes as there should be, and one.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Protocol, TypeVar


class Member(Protocol):
    """A worker process. `ready`: it serves. `leaving`: it drains, or its startup is broken off. `generation`: how many
    reloads came before it, or before it was left in place because a replacement did not start."""

    number: int
    generation: int
    ready: bool
    leaving: bool


_Member = TypeVar("_Member", bound=Member)


class Stage(Enum):
    """What a supervisor does."""

    STARTING = "no worker process has served yet: the first one says whether the application can start"
    SERVING = "a worker process that is missing is started"
    STOPPING = "none is started, and those that are left drain"


class Change(Enum):
    """What is under way until as many processes serve as there should be, all of the latest generation."""

    NONE = "nothing: the latest change was reported"
    START = "a process has begun to serve"
    REPLACEMENT = "all processes are replaced, one after another"


class Rolling:
    """The processes that there should be: numbers from 1 to `wanted`, all of the latest `generation`; and the change
    that leads there."""

    def __init__(self, wanted: int) -> None:
        self.wanted: int = wanted
        # how often all were to be replaced
        self.generation: int = 0
        self._change = Change.START

    def begin(self) -> None:
        """Replace all processes."""
        self.generation += 1
        self._change = Change.REPLACEMENT

    def note_ready(self) -> None:
        """Note that a process has begun to serve."""
        if self._change is Change.NONE:
            self._change = Change.START

    def give_up(self, members: Collection[Member]) -> None:
        """Count `members` as up to date until all are to be replaced again."""
        self._change = Change.NONE
        for one in members:
            one.generation = self.generation

    def completed(self, members: Collection[Member]) -> Change:
        """Return the change that is complete now, once; NONE if there is none, or it is still under way."""
        if not complete(members, self.wanted, self.generation):
            return Change.NONE
        change, self._change = self._change, Change.NONE
        return change


def missing(members: Collection[Member], wanted: int) -> int | None:
    """Return the lowest number, from 1 to `wanted`, that no staying process has. None if each has one."""
    present = {one.number for one in members if not one.leaving}
    return next((number for number in range(1, wanted + 1) if number not in present), None)


def outdated(members: Collection[Member], wanted: int, generation: int) -> int | None:
    """Return the number of the process to start a replacement for now. None if all are of this generation, or one of
    this generation does not serve yet, or too many are leaving."""
    staying = [one for one in members if not one.leaving]
    starting = any(one.generation == generation and not one.ready for one in staying)
    if starting or len(members) - len(staying) >= wanted:
        return None
    newest = _newest(staying)
    return min((number for number, latest in newest.items() if latest < generation and number <= wanted), default=None)


def superfluous(members: Collection[_Member], wanted: int, generation: int) -> list[_Member]:
    """Return the processes that must leave now. `members` is in the order in which they were started. One that leaves
    already does not count. Another one must leave if

    - a serving process of a later generation has the same number;
    - it does not serve yet, is older than `generation`, and another process of the same number serves or was started
      before it;
    - its number is above `wanted`, and either it does not serve, or a process serves for each number from 1 to
      `wanted`.
    """
    staying = [one for one in members if not one.leaving]
    newest = _newest([one for one in staying if one.ready])
    enough = all(number in newest for number in range(1, wanted + 1))
    # the numbers of processes that serve or were started earlier
    others = set(newest)
    found: list[_Member] = []
    for one in staying:
        replaced = one.number in newest and one.generation < newest[one.number]
        late = one.number in others and not one.ready and one.generation < generation
        too_many = one.number > wanted and (enough or not one.ready)
        if replaced or late or too_many:
            found.append(one)
        others.add(one.number)
    return found


def complete(members: Collection[Member], wanted: int, generation: int) -> bool:
    """Return True if as many processes stay as there should be, and all of them serve and are of this generation."""
    staying = [one for one in members if not one.leaving]
    return len(staying) >= wanted and all(one.ready and one.generation == generation for one in staying)


def replaces(newcomer: Member, members: Collection[Member]) -> bool:
    """Return True if another process that stays has the number of `newcomer`, which stays and does not serve."""
    others = (one for one in members if one is not newcomer and not one.leaving)
    return not newcomer.ready and not newcomer.leaving and any(one.number == newcomer.number for one in others)


def _newest(members: Collection[Member]) -> dict[int, int]:
    """Return the latest generation of each number."""
    found: dict[int, int] = {}
    for one in members:
        found[one.number] = max(found.get(one.number, -1), one.generation)
    return found
