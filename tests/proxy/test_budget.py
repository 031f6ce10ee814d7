"""Retries are a share of the requests, whatever fails."""

from __future__ import annotations

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from deadlined.proxy.budget import RetryBudget
from tests.support.examples import examples


def withdrawn(budget: RetryBudget) -> int:
    """Take all that is there."""
    number = 0
    while budget.withdraw():
        number += 1
    return number


def test_a_quiet_proxy_has_its_reserve() -> None:
    assert withdrawn(RetryBudget(reserve=3)) == 3


def test_every_fifth_request_earns_a_retry() -> None:
    budget = RetryBudget(ratio=0.2, reserve=0)
    earned = []
    for number in range(1, 16):
        budget.deposit()
        if budget.withdraw():
            earned.append(number)
    assert earned == [5, 10, 15]


def test_a_long_time_without_failures_saves_up_no_more_than_the_reserve() -> None:
    budget = RetryBudget(ratio=0.5, reserve=4)
    for _ in range(1000):
        budget.deposit()
    assert withdrawn(budget) == 4


def test_without_a_reserve_one_retry_can_be_saved_up() -> None:
    budget = RetryBudget(ratio=0.5, reserve=0)
    for _ in range(1000):
        budget.deposit()
    assert withdrawn(budget) == 1


def test_less_than_one_retry_is_none_and_is_kept() -> None:
    budget = RetryBudget(ratio=0.5, reserve=0.5)
    assert not budget.withdraw()
    budget.deposit()
    assert withdrawn(budget) == 1


def test_a_ratio_of_zero_leaves_the_reserve_alone() -> None:
    budget = RetryBudget(ratio=0, reserve=1)
    assert withdrawn(budget) == 1
    budget.deposit()
    assert not budget.withdraw()


@pytest.mark.parametrize("ratio", [0.1, 0.2, 0.29, 0.7, 1.1])
def test_the_share_does_not_drift(ratio: float) -> None:
    budget = RetryBudget(ratio=ratio, reserve=0)
    retries = 0
    for _ in range(10_000):
        budget.deposit()
        retries += withdrawn(budget)
    assert retries == round(ratio * 10_000)


@pytest.mark.parametrize("wrong", [-1, -0.001, math.inf, math.nan])
def test_what_is_no_budget_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="must be finite"):
        RetryBudget(ratio=wrong)
    with pytest.raises(ValueError, match="must be finite"):
        RetryBudget(reserve=wrong)


class BudgetMachine(RuleBasedStateMachine):
    """A budget beside what it has been told."""

    @initialize(ratio=st.integers(0, 300), reserve=st.integers(0, 300))
    def begin(self, ratio: int, reserve: int) -> None:
        # hundredths, so that the model is exact
        self.ratio, self.reserve = ratio, 10 * reserve
        self.budget = RetryBudget(ratio / 100, reserve / 10)
        self.left = self.reserve
        self.requests = self.retries = 0

    @rule(number=st.integers(1, 30))
    def request(self, number: int) -> None:
        for _ in range(number):
            self.budget.deposit()
        self.requests += number
        self.left = min(self.left + number * self.ratio, max(self.reserve, 100 + self.ratio))

    @rule()
    def retry(self) -> None:
        given = self.budget.withdraw()
        assert given == (self.left >= 100)
        if given:
            self.retries += 1
            self.left -= 100

    @invariant()
    def retries_never_exceed_the_reserve_and_the_share_of_the_requests(self) -> None:
        if hasattr(self, "budget"):
            assert 100 * self.retries <= self.reserve + self.ratio * self.requests


TestBudgetModel = BudgetMachine.TestCase
TestBudgetModel.settings = settings(max_examples=examples(200), stateful_step_count=50, deadline=None)
