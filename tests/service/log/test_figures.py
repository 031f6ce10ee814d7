"""Times and sizes as people read them."""

from __future__ import annotations

import math

import pytest

from deadlined.service.log.figures import count_text, size_text, time_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0 ms"),
        (0.00004, "0.0 ms"),
        (0.0003, "0.3 ms"),
        (0.0094, "9.4 ms"),
        (0.00994, "9.9 ms"),
        (0.00996, "10 ms"),
        (0.12, "120 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1 s"),
        (1.234, "1.23 s"),
        (10.0004, "10 s"),
        (75.0, "75 s"),
        (99.6, "1 min 40 s"),
        (120, "2 min"),
        (123.4, "2 min 3 s"),
        (3599.6, "1 h"),
        (5400, "1 h 30 min"),
        (90000, "1 d 1 h"),
        (math.inf, "off"),
    ],
)
def test_a_time_has_a_unit_that_fits(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (12345, "12.3 kB"),
        (999_400, "999 kB"),
        (999_600, "1 MB"),
        (5_100_000, "5.1 MB"),
        (7e9, "7 GB"),
        (2e13, "20 TB"),
    ],
)
def test_a_size_has_three_digits(size: float, text: str) -> None:
    assert size_text(size) == text


def test_what_is_counted_is_named_in_its_number() -> None:
    assert [count_text(number, "process", "processes") for number in (0, 1, 2)] == [
        "0 processes",
        "1 process",
        "2 processes",
    ]
    assert count_text(2, "request") == "2 requests"
