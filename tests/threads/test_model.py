"""A bucket against an oracle: what is armed, moved, stopped, inherited and claimed in any order is called exactly once.

The oracle keeps, for each handle, when it is wanted; it knows nothing of heaps, zombies, generations or heirs.
"""

from __future__ import annotations

import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from deadlined.threads import TimerHandle
from deadlined.threads.bucket import Bucket
from tests.support.examples import examples

INF = math.inf
HANDLES = 7

# halves: exact in floating point, and few enough that many times are equal
OFFSETS = st.one_of(st.integers(-4, 10).map(lambda halves: halves / 2), st.sampled_from([-1e308, 1e308, INF]))
PERIODS = st.sampled_from([0.0, 0.0, 0.0, 0.5, 2.5])
WHO = st.integers(0, HANDLES - 1)


class BucketModel(RuleBasedStateMachine):
    """Claims one at a time, so that anything may come between collecting and claiming."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.bucket = Bucket("heap4")
        self.handles = [TimerHandle(self.bucket, print, ()) for _ in range(HANDLES)]
        # the oracle: when each is wanted (None: idle), and its period
        self.wanted: list[float | None] = [None] * HANDLES
        self.periods = [0.0] * HANDLES
        self.calls = 0

    @rule(who=WHO, offset=OFFSETS, period=PERIODS)
    def arm(self, who: int, offset: float, period: float) -> None:
        if offset < -100.0:
            # the phase of a time that far away is lost in rounding, so there is nothing to predict
            period = 0.0
        was_pending = self.wanted[who] is not None
        assert self.bucket.arm(self.handles[who], self.now + offset, period) is was_pending
        self.wanted[who] = self.now + offset
        self.periods[who] = period

    @rule(who=WHO)
    def stop(self, who: int) -> None:
        assert self.handles[who].stop() is (self.wanted[who] is not None)
        self.wanted[who] = None

    @rule(halves=st.integers(0, 8))
    def time_passes(self, halves: int) -> None:
        self.now += halves / 2

    @rule()
    def claim_one(self) -> None:
        handle = self.bucket.claim_due(self.now)
        if handle is None:
            assert [when for when in self.wanted if when is not None and when <= self.now] == []
            return
        who = self.handles.index(handle)
        when = self.wanted[who]
        assert when is not None, "called although it was stopped or had been called"
        assert when <= self.now, "called early"
        self.calls += 1
        self.wanted[who] = self.next_tick(when, self.periods[who])

    @rule()
    def claim_all(self) -> None:
        for _ in range(2 * HANDLES):
            self.claim_one()
        assert [when for when in self.wanted if when is not None and when <= self.now] == []

    @rule()
    def inherit(self) -> None:
        heir = Bucket("heap4")
        fired = self.bucket.statistics().fired
        heir.take(self.bucket)
        assert self.bucket.closed
        assert self.bucket.statistics().fired == fired
        self.calls -= fired
        self.bucket = heir

    def next_tick(self, when: float, period: float) -> float | None:
        """The first tick after now, by adding."""
        if period == 0.0:
            return None
        while when <= self.now:
            when += period
        return when

    @invariant()
    def the_handles_know_whether_they_are_pending(self) -> None:
        assert [handle.pending for handle in self.handles] == [when is not None for when in self.wanted]

    @invariant()
    def the_thread_would_wake_in_time(self) -> None:
        earliest = min((when for when in self.wanted if when is not None), default=INF)
        assert self.bucket.wake_time() <= earliest

    @invariant()
    def every_call_is_counted(self) -> None:
        assert self.bucket.statistics().fired == self.calls


TestBucketModel = BucketModel.TestCase
TestBucketModel.settings = settings(max_examples=examples(300), stateful_step_count=40, deadline=None)
