"""`Timers` against an oracle: what is armed, moved, stopped and taken over, in callbacks too, fires as it should.

The oracle keeps a plan per timer and judges every call as it happens: the timer that fires must be wanted, due, not
armed in this very check, and the earliest of those that are. After a check nothing of that kind may be left. It knows
nothing of zombies and lazy extension, so among equal times any order passes here; `test_timers_rules` holds first in,
first out.

It judges every queue by the same rules. One that may be late is given until `latest`, and what it has found due at one
check must still come in the order of the times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from deadlined.timers import SCHEMES, Timer, Timers
from tests.support.examples import examples
from tests.support.timers import assert_sound

INF = math.inf
TIMERS = 9

# halves: exact in floating point, and few enough that many times are equal
SOON = st.integers(-6, 12).map(lambda halves: halves / 2)
EXTREME = st.sampled_from([-INF, -1e308, 1e308, INF])
# between two ticks, across the slots of coarse wheels, and exact in floating point, too
UNEVEN = st.sampled_from([1 / 4096, 0.5 - 3 / 4096, 2 + 5 / 4096, 61 + 1 / 4096, 600 - 7 / 4096, 86400 + 1 / 2048])
OFFSETS = st.one_of(SOON, SOON, SOON, UNEVEN, EXTREME)
PERIODS = st.sampled_from([0.0, 0.0, 0.0, 0.5, 1.0, 2.5])
EXTENSIONS = st.integers(0, 8).map(lambda halves: halves / 2)
WHO = st.integers(0, TIMERS - 1)
SIDE = st.integers(0, 1)


class BoomError(Exception):
    """Raised by callbacks."""


@dataclass(frozen=True)
class Modify:
    who: int
    side: int
    offset: float
    period: float


@dataclass(frozen=True)
class Stop:
    who: int


@dataclass(frozen=True)
class Extend:
    """The lazy extension: a plain store to `timer.when`."""

    who: int
    seconds: float


@dataclass(frozen=True)
class Take:
    into: int


@dataclass(frozen=True)
class Raise:
    pass


Action = Modify | Stop | Extend | Take | Raise
MODIFY = st.builds(Modify, WHO, SIDE, OFFSETS, PERIODS)
ACTIONS: st.SearchStrategy[Action] = st.one_of(
    MODIFY, MODIFY, st.builds(Stop, WHO), st.builds(Extend, WHO, EXTENSIONS), st.builds(Take, SIDE), st.just(Raise())
)


@dataclass
class Plan:
    """What the oracle knows of one timer. `side` is the facility that it was last armed in.

    By `latest` it must have been found due. A timer that is moved while its entry stands may be as late as the entry.
    """

    when: float = INF
    latest: float = -INF
    period: float = 0.0
    side: int = 0
    fresh: bool = False
    script: list[Action] = field(default_factory=list)


def expected_tick(when: float, period: float, now: float) -> float:
    delay = now - when
    if delay > 1e15:
        return now + period
    return when + period * (1 + delay // period)


class TimersAgainstOracle(RuleBasedStateMachine):
    """Two facilities that share a set of timers, so that one may take over the other's."""

    @initialize(queue=st.sampled_from(sorted(SCHEMES)), now=st.sampled_from([0.0, -100.0, 1e6]))
    def build(self, queue: str, now: float) -> None:
        self.now = now
        self.sides = [Timers(queue), Timers(queue)]
        self.plans = [Plan() for _ in range(TIMERS)]
        self.timers = [Timer(self.fire, who) for who in range(TIMERS)]
        self.checking = -1
        self.last_fired = -INF
        self.fired = [0, 0]
        self.failed = [0, 0]

    @rule(action=st.builds(Modify, WHO, SIDE, OFFSETS, PERIODS))
    def modify(self, action: Modify) -> None:
        self.perform(action)

    @rule(who=WHO, side=SIDE, now_or_past=st.sampled_from([0.0, -1.0, -INF]))
    def start_due(self, who: int, side: int, now_or_past: float) -> None:
        self.perform(Modify(who, side, now_or_past, 0.0))

    @rule(action=st.one_of(st.builds(Stop, WHO), st.builds(Extend, WHO, EXTENSIONS), st.builds(Take, SIDE)))
    def stop_extend_or_take(self, action: Action) -> None:
        self.perform(action)

    @rule(who=WHO, script=st.lists(ACTIONS, min_size=1, max_size=4))
    def teach(self, who: int, script: list[Action]) -> None:
        """From now on the callback of `who` performs `script`, whenever it fires."""
        self.plans[who].script = script

    @rule(who=WHO)
    def renumber(self, who: int) -> None:
        self.timers[who].seq += 1

    @rule(side=SIDE, step=st.sampled_from([0.0, 1 / 4096, 3 / 1024, 0.5, 0.5, 1.0, 3.0, 60.0, 1000.0]))
    def check(self, side: int, step: float) -> None:
        self.now += step
        for plan in self.plans:
            plan.fresh = False
        self.checking = side
        self.last_fired = -INF
        wake = self.sides[side].check(self.now)
        self.checking = -1
        assert not self.overdue(side), "due, but did not fire"
        self.judge_wake(side, wake)

    # A rule and no invariant: asking drops the zombies at the head, which other steps must meet too.
    @rule(side=SIDE)
    def ask_wake_time(self, side: int) -> None:
        self.judge_wake(side, self.sides[side].wake_time())

    @rule(who=WHO, side=SIDE)
    def refuse_nonsense(self, who: int, side: int) -> None:
        """A refused call changes nothing: the invariants that follow would see it."""
        for when, period in ((math.nan, 0.0), (self.now, -1.0), (self.now, math.nan)):
            with pytest.raises(ValueError, match=r"NaN|period|another Timers"):
                self.sides[side].modify(self.timers[who], when, period)

    @rule(who=WHO)
    def refuse_strangers(self, who: int) -> None:
        if self.plans[who].when < INF:
            stranger = self.sides[1 - self.plans[who].side]
            with pytest.raises(ValueError, match="another Timers"):
                stranger.modify(self.timers[who], self.now)
            with pytest.raises(ValueError, match="another Timers"):
                stranger.stop(self.timers[who])

    @invariant()
    def sound(self) -> None:
        for side, facility in enumerate(self.sides):
            assert_sound(facility, self.timers)
            # the raw head, zombies included, must never be later than what is wanted
            assert facility._queue.wake_time() <= self.latest(side)
            counts = facility.statistics()
            assert (counts.fired, counts.failed) == (self.fired[side], self.failed[side])

    @invariant()
    def as_planned(self) -> None:
        assert [timer.when for timer in self.timers] == [plan.when for plan in self.plans]
        for timer, plan in zip(self.timers, self.plans, strict=True):
            assert timer.pending == (plan.when < INF)
            assert not timer.pending or (timer.period == plan.period and timer.owner is self.sides[plan.side])

    def earliest(self, side: int) -> float:
        return min((plan.when for plan in self.plans if plan.side == side), default=INF)

    def latest(self, side: int) -> float:
        """When the queue must wake for one of its timers."""
        return min((plan.latest for plan in self.plans if plan.side == side and plan.when < INF), default=INF)

    def overdue(self, side: int) -> list[float]:
        """The times that the running check still owes, in order."""
        owed = (p for p in self.plans if p.side == side and p.when < INF and p.latest <= self.now and not p.fresh)
        return sorted(plan.when for plan in owed)

    def judge_wake(self, side: int, wake: float) -> None:
        assert wake <= self.latest(side)
        assert (wake == INF) == (self.earliest(side) == INF)

    def plan(self, plan: Plan, when: float, stands: bool) -> None:
        """Note that it is wanted at `when`; its entry stands where it was, or is filed anew."""
        facility = self.sides[plan.side]
        late = 0.0
        if facility.granularity:
            late = facility.granularity + facility.coarseness * max(0.0, when - self.now)
        plan.when = when
        plan.latest = max(plan.latest if stands and late else -INF, when + late)

    def fire(self, who: int, seq: int, lateness: float) -> None:
        """The callback of every timer. `check` catches an AssertionError here, but lets pytest's failure through."""
        plan = self.plans[who]
        owed = self.overdue(self.checking)
        if plan.side != self.checking or plan.fresh or not self.last_fired <= plan.when <= self.now:
            pytest.fail(f"{who} fired at {self.now}: {plan}, after {self.last_fired}")
        if owed and plan.when > owed[0]:
            pytest.fail(f"{who} fired at {self.now}: {plan}, owed {owed}")
        self.last_fired = plan.when
        if lateness != self.now - plan.when or seq != self.timers[who].seq:
            pytest.fail(f"{who} was told lateness {lateness} and seq {seq}: {plan}")
        self.fired[self.checking] += 1
        self.plan(plan, expected_tick(plan.when, plan.period, self.now) if plan.period else INF, stands=False)
        if self.timers[who].when != plan.when:
            pytest.fail(f"{who} was not armed anew before its callback: {plan}")
        for action in plan.script:
            self.perform(action)

    def perform(self, action: Action) -> None:
        """Do it to the facility and to the plan, inside a callback or outside."""
        match action:
            case Modify():
                self.perform_modify(action)
            case Stop(who):
                plan = self.plans[who]
                self.expect(self.sides[plan.side].stop(self.timers[who]), plan.when < INF, action)
                plan.when = INF
            case Extend(who, seconds):
                timer = self.timers[who]
                if timer.pending and timer.key < INF:
                    timer.when += seconds
                    self.plan(self.plans[who], timer.when, stands=True)
            case Take(into):
                self.perform_take(into)
            case Raise():
                if self.checking >= 0:
                    self.failed[self.checking] += 1
                    raise BoomError

    def perform_modify(self, action: Modify) -> None:
        plan, timer = self.plans[action.who], self.timers[action.who]
        if plan.when == INF and not timer.zombie:
            plan.side = action.side
        when = self.now + action.offset
        stands = timer.key <= when
        was_pending = self.sides[plan.side].modify(timer, when, action.period)
        self.expect(was_pending, plan.when < INF, action)
        self.plan(plan, when, stands)
        plan.period, plan.fresh = action.period, self.checking >= 0

    def perform_take(self, into: int) -> None:
        self.sides[into].take(self.sides[1 - into])
        for plan in self.plans:
            if plan.side != into:
                plan.side = into
                plan.fresh = self.checking >= 0

    def expect(self, answer: Any, wanted: bool, action: Action) -> None:
        if answer is not wanted:
            pytest.fail(f"{action} answered {answer}")


TestTimersAgainstOracle = TimersAgainstOracle.TestCase
TestTimersAgainstOracle.settings = settings(max_examples=examples(200), stateful_step_count=50, deadline=None)
