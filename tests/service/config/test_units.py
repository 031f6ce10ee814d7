"""Durations and amounts as people write them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadlined.service.config.units import amount, duration, show_amount, show_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("10s", 10.0),
        ("2m", 120.0),
        ("1h", 3600.0),
        ("1.5h", 5400.0),
        ("1d", 86400.0),
        ("1m30s", 90.0),
        ("1h 30m", 5400.0),
        ("1d2h3m4s500ms", 93784.5),
        ("2m500ms", 120.5),
        ("7", 7.0),
        ("0.25", 0.25),
        ("0", 0.0),
        (" 10 s ", 10.0),
        ("off", math.inf),
        ("OFF", math.inf),
    ],
)
def test_a_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        *["", " ", "soon", "-1", "-1s", "1w", "1 2s", "10S", "1e3", "1,5s", "inf", "nan", ".5s", "5.s", "s", "1\n2"],
        *["30s1m", "1m1m", "1m30", "1m-30s", "1h+1m", "\uff11s"],
    ],
)
def test_what_is_no_duration_says_what_is_allowed(text: str) -> None:
    with pytest.raises(
        ValueError, match="is not a duration: write 500ms, 10s, 2m, 1m30s, 1h, 1d, a number of seconds, or off"
    ):
        duration(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0.0),
        ("512", 512.0),
        ("16k", 16384.0),
        ("16 K", 16384.0),
        ("16KiB", 16384.0),
        ("16kb", 16384.0),
        ("10m", 10485760.0),
        ("1g", 1073741824.0),
        ("1.5k", 1536.0),
        ("0.5KiB", 512.0),
        ("2T", 2199023255552.0),
        ("64KiB", 65536.0),
        ("off", math.inf),
        (" Off ", math.inf),
    ],
)
def test_an_amount_counts_in_powers_of_1024(text: str, number: float) -> None:
    assert amount(text) == number


@pytest.mark.parametrize("text", ["", "fast", "-1", "1.5", "1.0001k", "1p", "k", "1e3", "inf", "nan", "16 k b", "1,5k"])
def test_what_is_no_amount_says_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an amount: write a whole number, 1\.5k, 16k, 10m, 1g, or off"):
        amount(text)


def test_digits_beyond_any_float_are_as_good_as_off() -> None:
    assert amount("9" * 5000) == math.inf
    assert duration("9" * 5000) == math.inf


@given(st.floats(min_value=0, allow_nan=False))
def test_a_shown_duration_reads_back(seconds: float) -> None:
    assert duration(show_duration(seconds)) == pytest.approx(seconds, rel=1e-12)


@given(st.integers(min_value=0, max_value=2**53) | st.just(math.inf))
def test_a_shown_amount_reads_back(number: float) -> None:
    assert amount(show_amount(number)) == number


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (75.0, "75s"),
        (0.5, "500ms"),
        (0.0, "0s"),
        (100.0, "100s"),
        (1234567.0, "1234567s"),
        (0.00001, "0.01ms"),
        (math.inf, "off"),
    ],
)
def test_a_duration_is_shown_in_the_shortest_way(seconds: float, text: str) -> None:
    assert show_duration(seconds) == text


@pytest.mark.parametrize(("number", "text"), [(500.0, "500"), (16384.0, "16384"), (math.inf, "off")])
def test_an_amount_is_shown_as_a_whole_number(number: float, text: str) -> None:
    assert show_amount(number) == text
