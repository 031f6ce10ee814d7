"""When a worker process that has ended is replaced."""

from __future__ import annotations

from deadlined.service.process.backoff import LONG_LIFE, Backoff


def test_the_first_death_delays_its_replacement_by_a_tenth_of_a_second_at_most() -> None:
    """So a killed one is replaced within a second: the supervisor sleeps in a selector that SIGCHLD wakes, and what is
    left of the second is for a fork, which has imported the server already, and the application's start."""
    for lived in (0.0, 1.0, LONG_LIFE - 0.001, LONG_LIFE, 86400.0):
        assert Backoff().ended(1000.0, 1000.0 + lived) <= 0.1


def test_the_delay_doubles_from_round_to_round_and_counts_those_that_end_together_once() -> None:
    backoff, now, delays = Backoff(), 1000.0, []
    for _ in range(9):
        for _ in range(8):
            backoff.ended(now - 1.0, now)
        delays.append(backoff.delay)
        assert backoff.until == now + backoff.delay
        now = backoff.until
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_one_that_has_lived_long_is_replaced_at_once_and_ends_the_delays() -> None:
    backoff = Backoff()
    backoff.ended(0.0, 1.0)
    assert backoff.ended(0.0, LONG_LIFE) == 0.0
    assert backoff.until < 0.0
    assert backoff.ended(20.0, 20.1) == 0.1
