"""When a worker process that does not answer is silent, and when it hangs: a decision about times."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deadlined.service.workers.silence import LATEST, LONGEST, QUESTIONS, SHORTEST, Awake, Silence, Verdict, period_of
from tests.support.examples import examples


class Rounds:
    """A supervisor that asks one process, which answers nothing by itself."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.period = period_of(limit)
        self.now = 1000.0
        self.awake = Awake(self.period)
        self.silence = Silence()

    def after(self, seconds: float) -> Verdict:
        """Begin a round so many seconds after the one before."""
        self.now += seconds
        self.awake.advance(self.now)
        verdict = self.silence.judge(self.awake.seconds, self.limit)
        self.silence.asked(self.awake.seconds)
        return verdict

    def until(self, wanted: Verdict) -> float:
        """Ask in order until this is the verdict. Return the seconds."""
        begun = self.now
        while self.after(self.period) is not wanted:
            assert self.now < begun + 10 * (self.limit + self.period)
        return self.now - begun


def test_the_questions_are_a_second_apart_or_as_many_as_are_needed_within_the_limit() -> None:
    assert [period_of(limit) for limit in (3600.0, 30.0, 4.0, 2.0, 0.001)] == [LONGEST, LONGEST, 1.0, 0.5, SHORTEST]


def test_time_counts_up_to_the_latest_round_that_is_in_order() -> None:
    awake = Awake(1.0)
    counted = []
    for now in (10.0, 11.0, 11.0 + LATEST, 11.0 + 2 * LATEST + 0.5):
        awake.advance(now)
        counted.append(awake.seconds)
    assert counted == [0.0, 1.0, 1.0 + LATEST, 1.0 + LATEST]


def test_one_that_answers_each_question_is_neither_silent_nor_hangs() -> None:
    rounds = Rounds(30.0)
    for _ in range(100):
        assert rounds.after(1.0) is Verdict.ANSWERS
        rounds.silence.answered()


def test_one_that_does_not_answer_is_silent_in_the_next_round_and_hangs_at_the_limit() -> None:
    rounds = Rounds(30.0)
    rounds.after(0.0)
    assert rounds.after(1.0) is Verdict.SILENT
    assert rounds.until(Verdict.HANGS) == 29.0
    assert rounds.silence.seconds(rounds.awake.seconds) == 30.0


def test_an_answer_to_whichever_question_ends_the_silence() -> None:
    rounds = Rounds(30.0)
    rounds.after(0.0)
    for _ in range(29):
        assert rounds.after(1.0) is Verdict.SILENT
    rounds.silence.answered()
    assert rounds.after(1.0) is Verdict.ANSWERS
    assert rounds.until(Verdict.HANGS) == 30.0


def test_a_short_limit_takes_as_many_questions_as_a_long_one() -> None:
    rounds = Rounds(0.001)
    rounds.after(0.0)
    assert rounds.until(Verdict.HANGS) == pytest.approx(QUESTIONS * SHORTEST)


@pytest.mark.parametrize("stopped", [2.001, 31.0, 86400.0])
def test_a_stop_of_the_supervisor_counts_as_nothing(stopped: float) -> None:
    rounds = Rounds(30.0)
    rounds.after(0.0)
    # the question was answered meanwhile, and the answer was not received yet
    assert rounds.after(stopped) is Verdict.ANSWERS
    rounds.silence.answered()
    assert rounds.after(1.0) is Verdict.ANSWERS


def test_a_stop_in_the_middle_of_a_silence_adds_nothing_to_it() -> None:
    rounds = Rounds(30.0)
    rounds.after(0.0)
    for _ in range(29):
        rounds.after(1.0)
    assert rounds.after(3600.0) is Verdict.SILENT
    assert rounds.after(1.0) is Verdict.HANGS


def test_a_supervisor_that_is_always_late_kills_nobody() -> None:
    rounds = Rounds(30.0)
    assert {rounds.after(2.5) for _ in range(1000)} == {Verdict.ANSWERS}


GAPS = st.sampled_from([0.9, 1.0, 1.5, 1.9, 2.1, 10.0, 100.0])


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(GAPS, st.booleans()), max_size=120), st.sampled_from([4.0, 10.0, 30.0]))
def test_it_hangs_if_and_only_if_the_rounds_that_came_in_time_add_up_to_the_limit(
    story: list[tuple[float, bool]], limit: float
) -> None:
    rounds = Rounds(limit)
    rounds.after(0.0)
    questions, counted = 1, 0.0
    for gap, answers in story:
        if answers:
            rounds.silence.answered()
            questions, counted = 0, 0.0
        elif gap <= LATEST * rounds.period and questions:
            counted += gap
        hangs = questions >= QUESTIONS and counted >= limit - 1e-6
        verdict = rounds.after(gap)
        if abs(counted - limit) > 1e-6:
            assert (verdict is Verdict.HANGS) == hangs
        assert (verdict is Verdict.ANSWERS) == (counted == 0.0)
        questions += 1
