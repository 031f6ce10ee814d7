"""Which worker process is started, and which one leaves: decisions about a list."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deadlined.service.workers import rolling
from tests.support.examples import examples


@dataclass
class One:
    """A worker process."""

    number: int
    generation: int = 0
    ready: bool = True
    leaving: bool = False
    # for ever, in its startup
    hangs: bool = False


@pytest.mark.parametrize(
    ("members", "number"),
    [
        ([], 1),
        ([One(1)], 2),
        ([One(2)], 1),
        ([One(1), One(2)], None),
        ([One(1), One(2, ready=False)], None),
        ([One(1), One(2, leaving=True)], 2),
        ([One(1), One(3)], 2),
    ],
)
def test_the_number_that_is_missing_of_two(members: list[One], number: int | None) -> None:
    assert rolling.missing(members, 2) == number


@pytest.mark.parametrize(
    ("members", "number"),
    [
        ([One(1, 1), One(2, 1)], None),
        ([One(2), One(1)], 1),
        ([One(1), One(1, 1, ready=False), One(2)], None),
        ([One(1, leaving=True), One(1, 1), One(2)], 2),
        # as many are leaving as there should be
        ([One(1, leaving=True), One(2, leaving=True), One(1), One(2)], None),
        # a dead one is being replaced
        ([One(1), One(2, 1, ready=False)], None),
        # that one is older, and may hang: it must not keep the others from being replaced, nor be in nobody's place
        ([One(1), One(2, ready=False)], 1),
        ([One(1, 1), One(2, ready=False)], 2),
        ([One(1, 1), One(2, ready=False), One(2, 1, ready=False)], None),
        # it must leave anyway
        ([One(1, 1), One(2, 1), One(3)], None),
    ],
)
def test_the_number_that_is_replaced_next_of_two(members: list[One], number: int | None) -> None:
    assert rolling.outdated(members, 2, 1) == number


def test_those_that_must_leave() -> None:
    old, new, starting = One(1), One(1, 1), One(2, 1, ready=False)
    too_many, gone = One(3), One(4, leaving=True)
    found = rolling.superfluous([old, new, starting, too_many, gone], 2, 1)
    # the second does not serve yet; one above has to wait for that
    assert found == [old]
    assert rolling.superfluous([new, old, starting], 2, 1) == [old]
    # but not one above that does not serve itself
    above = One(3, 1, ready=False)
    assert rolling.superfluous([new, starting, above], 2, 1) == [above]
    starting.ready = True
    assert rolling.superfluous([new, starting, too_many, gone], 2, 1) == [too_many]
    starting.ready = False
    assert rolling.replaces(starting, [One(2), starting])
    assert not rolling.replaces(starting, [One(2, leaving=True), starting])
    # one that may hang stays, too
    assert rolling.replaces(starting, [One(2, ready=False), starting])
    assert not rolling.replaces(starting, [starting])
    starting.leaving = True
    assert not rolling.replaces(starting, [One(2), starting])


@pytest.mark.parametrize(
    ("members", "complete"),
    [
        ([One(1, 1), One(2, 1), One(2, leaving=True)], True),
        ([One(1, 1), One(2)], False),
        ([One(1, 1), One(2, 1, ready=False)], False),
        ([One(1, 1), One(2, 1, leaving=True)], False),
    ],
)
def test_all_are_replaced_once_all_that_there_should_be_serve(members: list[One], complete: bool) -> None:
    assert rolling.complete(members, 2, 1) == complete


@pytest.mark.parametrize(
    ("members", "number"),
    [
        ([One(1), One(1, 1, ready=False), One(2)], 1),
        # of this generation
        ([One(1), One(1, 2, ready=False), One(2)], None),
        # it serves
        ([One(1), One(2)], None),
        # nobody else has its number, and what is started in its place may be broken
        ([One(1), One(2, 1, ready=False)], None),
        ([One(1), One(2, ready=False), One(2, leaving=True)], None),
        ([One(1), One(2, 1, ready=False), One(2, 2, ready=False)], None),
        # now somebody has
        ([One(1), One(2, 1, ready=False), One(2, 2)], 2),
    ],
)
def test_one_that_was_to_replace_another_leaves_if_it_does_not_serve_when_the_next_reload_comes(
    members: list[One], number: int | None
) -> None:
    """It may never serve."""
    assert [one.number for one in rolling.superfluous(members, 2, 2)] == ([] if number is None else [number])


def test_of_several_that_do_not_serve_and_whose_number_nobody_has_the_first_may_stay() -> None:
    """It is the nearest to serving, and reloads without pause would end each one."""
    first, second = One(2, ready=False), One(2, 1, ready=False)
    assert rolling.superfluous([One(1), first, second], 2, 2) == [second]


class Service:
    """Worker processes that do what is decided."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.generation = 0
        self.members = [One(number) for number in range(1, wanted + 1)]

    def happens(self, what: str) -> None:
        if what == "reload":
            self.generation += 1
        elif what == "serves":
            for one in self.starting[:1]:
                one.ready = True
        elif what == "hangs":
            for one in self.starting[:1]:
                one.hangs = True
        elif what == "ended":
            self.members = [one for one in self.members if not one.leaving]
        elif what == "dies":
            self.members = self.members[1:]
        else:
            self.wanted = max(self.wanted + (1 if what == "more" else -1), 1)
        self._decide()

    def _decide(self) -> None:
        for one in rolling.superfluous(self.members, self.wanted, self.generation):
            one.leaving = True
        while (number := self._to_start()) is not None:
            self.members.append(One(number, self.generation, ready=False))

    def _to_start(self) -> int | None:
        number = rolling.missing(self.members, self.wanted)
        return number or rolling.outdated(self.members, self.wanted, self.generation)

    @property
    def starting(self) -> list[One]:
        return [one for one in self.members if not one.ready and not one.leaving and not one.hangs]

    @property
    def serving(self) -> int:
        return sum(one.ready and not one.leaving for one in self.members)

    def settle(self) -> None:
        """Let everything happen that was begun."""
        self.happens("ended")
        while self.starting:
            self.happens("serves")
            self.happens("ended")


EVENTS = ("reload", "serves", "ended", "dies", "more", "fewer")


@settings(max_examples=examples(400))
@given(st.integers(1, 4), st.lists(st.sampled_from(EVENTS), max_size=60))
def test_a_reload_never_leaves_less_than_there_should_be_and_reaches_everybody(wanted: int, happens: list[str]) -> None:
    service = Service(wanted)
    for what in happens:
        before = service.serving
        service.happens(what)
        if what != "dies":
            assert service.serving >= min(before, service.wanted)
    service.settle()
    found = sorted((one.number, one.generation, one.ready) for one in service.members)
    numbers = range(1, service.wanted + 1)
    assert [(number, ready) for number, _, ready in found] == [(number, True) for number in numbers]
    assert {generation for _, generation, _ in found} == {service.generation}


@settings(max_examples=examples(400))
@given(st.integers(1, 4), st.lists(st.sampled_from(("reload", "reload", "serves", "hangs", "ended")), max_size=60))
def test_a_storm_of_reloads_does_not_start_more_than_twice_as_many_and_one(wanted: int, happens: list[str]) -> None:
    service = Service(wanted)
    for what in happens:
        service.happens(what)
        assert len(service.members) <= 2 * wanted + 1
        assert sum(not one.ready and not one.leaving for one in service.members) <= 1
    assert_a_reload_mends(service)


@settings(max_examples=examples(400))
@given(st.integers(1, 4), st.lists(st.sampled_from(("reload", "serves", "hangs", "ended", "dies")), max_size=60))
def test_nor_does_it_with_deaths_and_what_hangs_keeps_no_later_reload_from_its_end(
    wanted: int, happens: list[str]
) -> None:
    service = Service(wanted)
    for what in happens:
        service.happens(what)
        assert len(service.members) <= 2 * wanted + 1
    assert_a_reload_mends(service)


def assert_a_reload_mends(service: Service) -> None:
    """What was started before it may hang; what is started now does not."""
    service.happens("ended")
    service.happens("reload")
    service.settle()
    assert [(one.generation, one.ready) for one in service.members] == [(service.generation, True)] * service.wanted


def test_a_change_is_complete_once_and_a_replacement_is_one_whatever_starts_meanwhile() -> None:
    plan = rolling.Rolling(2)
    members = [One(1), One(2, ready=False)]
    assert plan.completed(members) is rolling.Change.NONE
    members[1].ready = True
    assert [plan.completed(members) for _ in range(2)] == [rolling.Change.START, rolling.Change.NONE]
    plan.begin()
    members = [One(1, 1), One(2)]
    plan.note_ready()
    assert plan.completed(members) is rolling.Change.NONE
    members = [One(1, 1), One(2, 1)]
    assert [plan.completed(members) for _ in range(2)] == [rolling.Change.REPLACEMENT, rolling.Change.NONE]
    plan.note_ready()
    assert plan.completed(members) is rolling.Change.START


def test_a_replacement_that_was_given_up_is_none_any_more() -> None:
    plan = rolling.Rolling(1)
    plan.begin()
    members = [One(1)]
    plan.give_up(members)
    assert members[0].generation == plan.generation
    assert plan.completed(members) is rolling.Change.NONE
