"""`Timer` and `Ticker` against oracles that work in another way.

The oracle of the timer is a channel with room for nothing: a time, and a line of receivers. The oracle of the ticker is
Go's of before 1.23, an eager one: it sends every tick into a buffer of one, and drops what does not fit. Times are
halves, exact in floating point, and few, so that much happens at the same instant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from deadlined import Ticker, Timer
from tests.support.examples import examples
from tests.support.net import Attempt
from tests.support.timing import pending_entries, poll_now, run_until_blocked

INF = math.inf

SECONDS = st.one_of(st.integers(-2, 8).map(lambda halves: halves / 2), st.sampled_from([-INF, INF, 1e308]))
STEPS = st.integers(0, 6).map(lambda halves: halves / 2)
PERIODS = st.integers(1, 6).map(lambda halves: halves / 2)


@dataclass(frozen=True)
class Reset:
    seconds: float


@dataclass(frozen=True)
class Stop:
    pass


@dataclass(frozen=True)
class Wait:
    """A new receiver comes, with everything settled before and after."""


@dataclass(frozen=True)
class Cancel:
    """Receiver number `who`, counted round, is cancelled; it may have gone already."""

    who: int


@dataclass(frozen=True)
class Jump:
    """Time passes, and nothing has run since."""

    seconds: float


@dataclass(frozen=True)
class Poll:
    """The pump runs, and no other task."""


@dataclass(frozen=True)
class Settle:
    """Everything runs."""


Action = Reset | Stop | Wait | Cancel | Jump | Poll | Settle
ACTIONS: st.SearchStrategy[Action] = st.one_of(
    st.builds(Reset, SECONDS),
    st.just(Stop()),
    st.just(Wait()),
    st.just(Wait()),
    st.builds(Cancel, st.integers(0, 7)),
    st.builds(Jump, STEPS),
    st.builds(Jump, STEPS),
    st.just(Poll()),
    st.just(Settle()),
)


@dataclass
class TimerOracle:
    """What a timer is: the time that nobody has received, and who waits for it in which order."""

    due: float
    starts: int = 1
    taken_back: int = 0
    waiting: list[int] = field(default_factory=list)
    received: dict[int, float] = field(default_factory=dict)

    def start(self, when: float) -> bool:
        pending = self.due < INF
        self.taken_back += pending
        self.starts += when < INF
        self.due = when
        return pending

    def check(self, now: float) -> None:
        if self.waiting and self.due <= now:
            self.received[self.waiting.pop(0)] = self.due
            self.due = INF


class TimerAgainstOracle:
    """A timer, its receivers, and what the oracle says of them."""

    def __init__(self, clock: MockClock, nursery: trio.Nursery, seconds: float) -> None:
        self.clock = clock
        self.nursery = nursery
        self.timer = Timer(seconds)
        self.oracle = TimerOracle(self.from_now(seconds))
        self.oracle.starts = int(self.oracle.due < INF)
        self.scopes: list[trio.CancelScope] = []
        self.received: dict[int, float] = {}

    def from_now(self, seconds: float) -> float:
        return trio.current_time() + max(seconds, 0.0)

    async def perform(self, action: Action) -> None:
        match action:
            case Reset(seconds):
                assert self.timer.reset(seconds) == self.oracle.start(self.from_now(seconds))
            case Stop():
                assert self.timer.stop() == self.oracle.start(INF)
            case Wait():
                await self.run_until_blocked()
                self.oracle.waiting.append(len(self.scopes))
                self.nursery.start_soon(self.receive, len(self.scopes))
                await self.run_until_blocked()
            case Cancel(who) if self.scopes:
                who %= len(self.scopes)
                self.scopes[who].cancel()
                if who in self.oracle.waiting:
                    self.oracle.waiting.remove(who)
            case Jump(seconds):
                self.clock.jump(seconds)
            case Poll():
                poll_now()
                self.oracle.check(trio.current_time())
            case Settle():
                await self.run_until_blocked()
        self.judge()

    async def receive(self, who: int) -> None:
        with trio.CancelScope() as scope:
            self.scopes.append(scope)
            self.received[who] = await self.timer.wait()

    async def run_until_blocked(self) -> None:
        await run_until_blocked()
        self.oracle.check(trio.current_time())
        assert self.received == self.oracle.received

    def judge(self) -> None:
        oracle = self.oracle
        assert self.timer.running == (oracle.due < INF)
        assert pending_entries() == (oracle.due < INF and len(oracle.waiting) > 0)
        assert oracle.starts == oracle.taken_back + len(oracle.received) + (oracle.due < INF), "not exactly once"


@given(first=SECONDS, actions=st.lists(ACTIONS, max_size=30))
@settings(max_examples=examples(150), deadline=None)
def test_a_timer_serves_each_start_once_and_in_order(first: float, actions: list[Action]) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            play = TimerAgainstOracle(clock, nursery, first)
            for action in actions:
                await play.perform(action)
            await play.perform(Settle())
            nursery.cancel_scope.cancel()
        assert pending_entries() == 0

    clock = MockClock()
    trio.run(main, clock=clock)


@dataclass(frozen=True)
class Receive:
    pass


@dataclass(frozen=True)
class Pause:
    seconds: float


@dataclass(frozen=True)
class Restart:
    period: float


@dataclass(frozen=True)
class StopMeanwhile:
    """A receiver comes, and the ticker is stopped in its first step or before, in any order of the tasks."""


Ticking = Receive | Pause | Restart | Stop | StopMeanwhile
TICKING: st.SearchStrategy[Ticking] = st.one_of(
    st.just(Receive()),
    st.just(Receive()),
    st.builds(Pause, st.integers(0, 20).map(lambda halves: halves / 2)),
    st.builds(Restart, PERIODS),
    st.just(Stop()),
    st.just(StopMeanwhile()),
)


class TickerOracle:
    """A clock that sends each tick into a buffer of one."""

    def __init__(self, period: float) -> None:
        self.now = 0.0
        self.restart(period)

    def restart(self, period: float) -> None:
        self.period = period
        self.next = self.now + period
        self.buffer: list[float] = []

    def stop(self) -> None:
        self.next = INF
        self.buffer.clear()

    def pass_to(self, when: float) -> None:
        self.now = when
        while self.next <= when:
            if not self.buffer:
                self.buffer.append(self.next)
            self.next += self.period

    def receive(self) -> float | None:
        if self.next == INF:
            return None
        self.pass_to(self.now if self.buffer else max(self.now, self.next))
        return self.buffer.pop()


async def stop_meanwhile(ticker: Ticker) -> None:
    """Stop the ticker while a task receives, which has to end without a tick."""
    async with trio.open_nursery() as nursery:
        receiving = Attempt(nursery, lambda: anext(ticker, None))
        await trio.lowlevel.checkpoint()
        ticker.stop()
        await run_until_blocked()
        assert (receiving.pending, receiving.result) == (False, None)


# more than once, because trio runs the tasks that are ready in any order
@example(period=1.0, actions=[Restart(1.0), Pause(1.5), StopMeanwhile()] * 8)
@given(period=PERIODS, actions=st.lists(TICKING, max_size=30))
@settings(max_examples=examples(150), deadline=None)
def test_a_ticker_is_a_buffer_of_one(period: float, actions: list[Ticking]) -> None:
    async def main() -> None:
        ticker, oracle = Ticker(period), TickerOracle(period)
        for action in actions:
            match action:
                case Receive():
                    assert await anext(ticker, None) == oracle.receive()
                case Pause(seconds):
                    await trio.sleep(seconds)
                    oracle.pass_to(oracle.now + seconds)
                case Restart(seconds):
                    ticker.reset(seconds)
                    oracle.restart(seconds)
                case Stop():
                    ticker.stop()
                    oracle.stop()
                case StopMeanwhile():
                    await stop_meanwhile(ticker)
                    oracle.stop()
            assert trio.current_time() == oracle.now

    trio.run(main, clock=MockClock(autojump_threshold=0))
