"""The supervisor's part of the admin listener: questions go to all worker processes, and one picture comes back.

Facts      A worker process answers when its event loop gets to it. It may be blocked for a minute, or be killed in the
           middle of an answer.
Hazard     A scrape that waits for the slowest process fails when it is needed most. A counter that goes back, because
           the process that had counted is gone, looks like a restart of everything.
Answer     A picture is made BOUND seconds after the question at the latest. A process that has not answered is shown
           with its last counters, and as not up; it is not asked again before it has answered. The last counters of a
           process that has ended stay in the totals; one that drains in order sends its very last.
Cost       What a process that was killed had counted after its last answer is lost.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from ..config.rereading import Reloaded
from ..workers.frames import ASK
from ..workers.overseer import Send
from .picture import Answer, Counters, Picture, Question, State, Status, Worker, add

# seconds; an event loop that serves answers within milliseconds, and a scrape of Prometheus waits for ten seconds
BOUND = 0.5

_log = logging.getLogger("deadlined.admin")


@dataclass
class _Member:
    """A worker process. `silent`: it does not answer the supervisor's own questions either. `last`: its last answer,
    without connections. `asked`: when it was sent the question that it has not answered yet, `inf` if there is none."""

    number: int
    send: Send
    ready: bool = False
    leaving: bool = False
    silent: bool = False
    last: Answer | None = None
    asked: float = math.inf

    @property
    def state(self) -> State:
        """What the process does, also if it does not answer."""
        return "draining" if self.leaving else "serving" if self.ready else "starting"


@dataclass
class _Collection:
    """The answers to one question, until none is missing or time is up."""

    waiting: set[int]
    until: float
    reloaded: Reloaded | None
    answers: dict[int, Answer] = field(default_factory=dict)


class Hub:
    """Collects answers. `publish(picture)` is called once for each question that was asked. `now()` is a clock."""

    def __init__(
        self, wanted: int, status: Callable[[], Status], publish: Callable[[bytes], None], now: Callable[[], float]
    ) -> None:
        self._wanted = wanted
        self._status = status
        self._publish = publish
        self._now = now
        self._members: dict[int, _Member] = {}
        self._collections: dict[int, _Collection] = {}
        self._retired: Counters | None = None
        # the numbers of worker processes so far, without those above the number that is wanted
        self._numbers: set[int] = set()
        # processes that were started with a number that an earlier one had
        self._restarts = 0

    def joined(self, pid: int, number: int, send: Send) -> None:
        """Note a new worker process."""
        self._members[pid] = _Member(number, send)
        self._restarts += number in self._numbers
        self._numbers.add(number)

    def is_ready(self, pid: int) -> None:
        """Note that the worker process serves."""
        self._members[pid].ready = True

    def is_silent(self, pid: int, silent: bool) -> None:
        """Note whether the worker process leaves the supervisor's questions unanswered."""
        self._members[pid].silent = silent

    def leaves(self, pid: int) -> None:
        """Note that the worker process drains: it still answers questions, but does not count as serving."""
        self._members[pid].leaving = True

    def want(self, number: int) -> None:
        """Note how many worker processes there should be."""
        self._wanted = number
        # a process that is started later with a higher number replaces none
        self._numbers = {each for each in self._numbers if each <= number}

    @property
    def all_ready(self) -> bool:
        """True if every worker process that there should be serves."""
        return sum(member.state == "serving" for member in self._members.values()) >= self._wanted

    def left(self, pid: int) -> None:
        """Note that the worker process has ended, and keep what it has counted."""
        member = self._members.pop(pid)
        if member.last is not None:
            self._retired = add(self._retired, member.last.counters)
        for number in list(self._collections):
            self._answered(number, pid)

    def ask(self, question: Question, reloaded: Reloaded | None = None) -> None:
        """Ask the worker processes. A question about the status alone is answered without them. `reloaded` is part of
        the answer."""
        now = self._now()
        asked = [pid for pid, member in self._members.items() if member.ready and now - member.asked < BOUND]
        if question.what == "status":
            asked = []
        collection = self._collections[question.id] = _Collection(set(asked), now + BOUND, reloaded)
        for pid in asked:
            member = self._members[pid]
            member.asked = min(member.asked, now)
            member.send(ASK, msgspec.json.encode(question))
        if not collection.waiting:
            self._finish(question.id)

    def told(self, pid: int, payload: bytes) -> None:
        """Take an answer of a worker process; empty if it serves nothing yet, or could not answer."""
        member = self._members[pid]
        member.asked = math.inf
        if not payload:
            # the log of the worker process says why
            return
        try:
            answer = msgspec.json.decode(payload, type=Answer)
        except msgspec.DecodeError:
            _log.exception("the worker process %d has sent an invalid answer", pid)
            return
        member.last = msgspec.structs.replace(answer, matching=0, connections=[])
        if answer.id in self._collections:
            self._collections[answer.id].answers[pid] = answer
            self._answered(answer.id, pid)

    def until(self) -> float:
        """Return when `tick` must be called, `inf` for never."""
        return min((collection.until for collection in self._collections.values()), default=math.inf)

    def tick(self) -> None:
        """Finish the pictures whose time is up."""
        now = self._now()
        for number, collection in list(self._collections.items()):
            if now >= collection.until:
                self._finish(number)

    def _answered(self, number: int, pid: int) -> None:
        collection = self._collections[number]
        collection.waiting.discard(pid)
        if not collection.waiting:
            self._finish(number)

    def _finish(self, number: int) -> None:
        collection = self._collections.pop(number)
        workers = [self._worker(pid, member, collection) for pid, member in self._members.items()]
        workers.sort(key=lambda worker: worker.worker)
        self._publish(
            msgspec.json.encode(
                Picture(
                    id=number,
                    status=self._status(),
                    wanted=self._wanted,
                    restarts=self._restarts,
                    workers=workers,
                    retired=self._retired,
                    reloaded=collection.reloaded,
                )
            )
        )

    def _worker(self, pid: int, member: _Member, collection: _Collection) -> Worker:
        answer = collection.answers.get(pid)
        return Worker(
            worker=member.number,
            pid=pid,
            up=answer is not None,
            state=member.state,
            silent=member.silent,
            answer=answer or member.last,
        )
