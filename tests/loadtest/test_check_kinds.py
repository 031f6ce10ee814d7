"""`python -m loadtest check`: which deadline stands behind what was seen. Pure numbers."""

from __future__ import annotations

import math
import random
import socket
from dataclasses import replace

import pytest

pytest.importorskip("hdrh", reason="the load test's extra is not installed: pip install .[bench]")

from loadtest.check.attacks import NAMES, deadlines, trouble, unsure
from loadtest.check.kinds import Deadline, narrowed, of_dripped, of_stalled
from loadtest.check.probe import pongs
from loadtest.check.scripts import DRIP, RATES, STALLED, Close, Facts, Seen, between, closer
from loadtest.target import Target

LIMIT = 60.0


def end(
    seconds: float | None,
    rate: float = 0.0,
    *,
    attack: str = "slow-body",
    role: str = "stalled",
    close: Close = "fin",
    status: int | None = None,
    went: int | None = None,
    watched: float = LIMIT,
) -> Seen:
    """Return a connection that was ended then; None: it was not."""
    sent = round(rate * (watched if seconds is None else seconds)) if went is None else went
    close = "none" if seconds is None else close
    return Seen(attack, role, rate, seconds, watched if seconds is None else seconds, close=close, status=status,
                went=sent, error=0.001)  # fmt: skip


def stalled(seconds: float | None, number: int = 4) -> list[Seen]:
    """Return some that differ by a millisecond."""
    return [end(None if seconds is None else seconds + 0.001 * count) for count in range(number)]


def with_minimum(grace: float, least: float, tick: float = 0.0) -> list[Seen]:
    """Return dripped connections under a minimum rate, whose bytes come in pieces, one each `tick` seconds."""
    found = []
    for rate in RATES:
        seconds = None if rate >= least else grace / (1 - rate / least)
        if seconds is not None and tick:
            pieces = 0
            while (pieces + 1) * tick < grace + pieces * tick * rate / least:
                pieces += 1
            seconds = grace + pieces * tick * rate / least
        found.append(end(None if seconds is None or seconds > LIMIT else seconds, rate, role="dripped",
                         went=None if seconds is None else round((seconds - grace) * least)))  # fmt: skip
    return found


def at_all_rates(seconds: float | None) -> list[Seen]:
    return [end(seconds, rate, role="dripped") for rate in RATES]


def test_an_absolute_deadline_ends_all_at_the_same_time() -> None:
    found = of_dripped(stalled(10.0), at_all_rates(10.002))
    assert (found.kind, found.seconds, found.close, found.min_rate) == ("absolute", 10.002, "fin", None)
    assert of_stalled(stalled(10.0), at_all_rates(10.002)).kind == "absolute"


def test_one_end_that_chance_held_up_does_not_make_an_idle_timeout_of_an_absolute_deadline() -> None:
    late = [*at_all_rates(1.0)[:-1], end(1.1, 3000.0, role="dripped", went=300)]
    assert of_stalled(stalled(1.0), late).kind == "absolute"
    # half of them are no chance
    half = [
        *at_all_rates(1.0)[: len(RATES) // 2],
        *(end(1.2, rate, role="dripped") for rate in RATES[len(RATES) // 2 :]),
    ]
    assert of_stalled(stalled(1.0), half).kind == "idle"
    # nor is one that was never ended
    lived = [*at_all_rates(1.0)[1:], end(None, 10.0, role="dripped")]
    assert of_stalled(stalled(1.0), lived).kind == "idle"


def test_an_idle_timeout_never_ends_what_drips() -> None:
    for found in (of_dripped(stalled(5.0), at_all_rates(None)), of_stalled(stalled(5.0), at_all_rates(None))):
        assert found.kind == "idle"
        assert found.seconds == pytest.approx(5.0015)


def test_what_was_open_when_the_watch_ended_just_after_the_deadline_is_not_taken_for_absolute() -> None:
    for found in (of_dripped(stalled(59.0), at_all_rates(None)), of_stalled(stalled(59.0), at_all_rates(None))):
        assert found.kind == "idle"


def test_an_absolute_deadline_above_an_idle_timeout_ends_what_drips_later() -> None:
    found = of_dripped(stalled(5.0), at_all_rates(30.0))
    assert (found.kind, found.seconds) == ("absolute", 30.0)
    assert found.idle_seconds == pytest.approx(5.0015)
    assert of_stalled(stalled(5.0), at_all_rates(30.0)).kind == "idle"
    # one that was never ended is under no absolute deadline
    lived = [*at_all_rates(30.0)[1:], end(None, 10.0, role="dripped")]
    assert of_dripped(stalled(5.0), lived).kind == "idle"


@pytest.mark.parametrize("tick", [0.0, 0.1])
@pytest.mark.parametrize("least", [20.0, 240.0, 500.0, 900.0])
def test_a_minimum_rate_is_calculated_from_the_ends(least: float, tick: float) -> None:
    found = of_dripped(stalled(20.0), with_minimum(20.0, least, tick))
    assert found.kind == "min-rate"
    assert found.seconds == pytest.approx(20.0015)
    assert found.min_rate is not None
    low, high = found.min_rate
    assert low == high == pytest.approx(least, rel=0.01)


def test_a_minimum_rate_is_found_also_where_it_has_ended_all() -> None:
    found = of_dripped(stalled(20.0), with_minimum(20.0, 5000.0))
    assert found.kind == "min-rate"
    assert found.seconds == pytest.approx(20.0015)
    assert found.min_rate == pytest.approx((5000.0, 5000.0), rel=0.01)


def test_two_rates_tell_a_minimum_rate_from_an_idle_timeout() -> None:
    found = of_dripped(stalled(5.0), [end(5.0, 100.0, role="dripped"), end(None, 300.0, role="dripped")])
    assert found.kind == "min-rate"
    assert found.min_rate == pytest.approx((100.0, 300 / (1 - 5.25 / LIMIT)), rel=0.001)


def test_a_minimum_rate_is_calculated_though_a_coarse_clock_puts_off_long_ends_by_a_part_of_them() -> None:
    off = [0.4, -0.4, 0.4, -0.4, 0.4, -0.4]
    ends = [end(20 + went / 500 + error, went / 20, role="dripped", went=went)
            for went, error in zip(range(2_000, 14_000, 2_000), off, strict=True)]  # fmt: skip
    found = of_stalled(stalled(20.0), ends)
    assert found.kind == "min-rate"
    assert found.min_rate == pytest.approx((500.0, 500.0), rel=0.1)


def test_ends_that_come_the_earlier_the_more_was_sent_show_no_minimum_rate() -> None:
    ends = [end(20.0, 3000.0 + count, role="dripped") for count in range(4)]
    found = of_stalled(stalled(20.0), [end(21.04, 10.0, role="dripped"), *ends])
    assert (found.kind, found.min_rate) == ("absolute", None)


def test_later_ends_of_what_has_sent_nothing_show_no_minimum_rate() -> None:
    ends = [end(2.0 + rate / 1000, rate, role="dripped", went=0) for rate in RATES]
    found = of_stalled(stalled(1.0), ends)
    assert (found.kind, found.min_rate) == ("idle", None)


def test_what_went_on_more_slowly_than_it_should_counts_with_its_own_rate() -> None:
    # 1,000 bytes per second were wanted, and 450 were sent: 500 are asked for
    late = end(200.0, 1000.0, role="dripped", went=90_000)
    found = of_dripped(stalled(20.0), [*with_minimum(20.0, 500.0)[:5], late, end(None, 3000.0, role="dripped")])
    assert found.min_rate is not None
    assert found.kind == "min-rate"
    assert found.min_rate == pytest.approx((500.0, 500.0), rel=0.01)


def test_a_minimum_rate_in_windows_lies_between_two_rates() -> None:
    found = of_dripped(stalled(5.0), [end(5.01 if rate < 240 else None, rate, role="dripped") for rate in RATES])
    # what was open after a minute may end at T / (1 - 300 / R), T being 5 s and 5 % of it
    assert found.kind == "min-rate"
    assert found.min_rate == pytest.approx((200.0, 300 / (1 - 5.25 / LIMIT)), rel=0.001)


@pytest.mark.parametrize(
    ("name", "bounds"),
    [("slow-header", (0.75, 21000.0)), ("slow-body", (0.0, 10.0)), ("slow-read", (8.5, 60000.0))],
)
def test_however_slow_a_rate_is_there_is_time_between_two_pieces(name: str, bounds: tuple[float, float]) -> None:
    target = Target("http://127.0.0.1/", socket.AF_INET, ("127.0.0.1", 80), "127.0.0.1", "127.0.0.1", "/", tls=False)
    found = closer(Facts(target, 100_000, websocket=False, limit=60.0), name, bounds)
    assert len(found) >= 4
    for one in found:
        size = one.gulp if name == "slow-read" else len(one.piece)
        assert size is not None
        assert size >= 1
        assert size / one.interval == pytest.approx(one.rate)


def test_others_between_the_two_bring_them_closer_together() -> None:
    lived = [end(None, rate, role="closer", watched=105.0) for rate in (260.0, 280.0)]
    ended = [end(5.0, rate, role="closer") for rate in (220.0, 240.0)]
    between = Deadline("min-rate", 5.0, min_rate=(200.0, 300.0))
    assert narrowed(between, [*ended, *lived]).min_rate == pytest.approx((240.0, 260 / 0.95))
    assert narrowed(between, ended).min_rate == (240.0, 300.0)
    assert narrowed(between, lived).min_rate == pytest.approx((200.0, 260 / 0.95))
    # after 21 s it may be about to end at a minimum rate of 347
    assert narrowed(between, [replace(one, watched=21.0, went=260 * 21) for one in lived]).min_rate == (200.0, 300.0)
    # a busy machine has delayed one of them: nothing is known better than before
    assert narrowed(between, [end(5.0, 279.0, role="closer"), *lived]).min_rate == (200.0, 300.0)
    # one that was not watched until the deadline has not outlived it
    assert narrowed(between, [end(None, 250.0, role="closer", watched=4.0)]).min_rate == (200.0, 300.0)
    idle = Deadline("idle", 5.0)
    assert narrowed(idle, lived) == idle


def test_only_a_minimum_rate_that_lies_far_apart_is_looked_at_more_closely() -> None:
    windows = [end(5.0 if rate < 240 else None, rate, role="dripped") for rate in RATES]
    assert unsure([*stalled(5.0), *windows])["slow-body"] == pytest.approx((200.0, 329.0), abs=1)
    between = [end(5.0 if rate < 240 else None, rate, role="closer") for rate in (230.0, 250.0)]
    assert unsure([*stalled(5.0), *windows, *between]) == {}
    assert deadlines([*stalled(5.0), *windows, *between])["slow-body"].min_rate == pytest.approx((230.0, 274.0), abs=1)
    assert unsure([*stalled(20.0), *with_minimum(20.0, 500.0)]) == {}
    assert unsure([]) == {}


def by_a_coarse_clock(rate: float, role: str, grace: float, least: float, limit: float, phase: float) -> Seen:
    """A dripped connection under a minimum rate, at which the server looks twice a second."""
    looks = (phase + count / 2 for count in range(round(2 * limit) + 1))

    def went(seconds: float) -> int:
        return math.floor(seconds / DRIP) * round(rate * DRIP)

    when = next((look for look in looks if grace + went(look) / least <= look <= limit), None)
    return end(when, rate, role=role, went=went(limit if when is None else when), watched=limit)


def test_a_minimum_rate_lies_where_it_is_said_to() -> None:
    chance, wrong = random.Random(1), []
    for _ in range(1000):
        grace, least, limit = chance.uniform(0.6, 3), chance.uniform(40, 900), chance.uniform(3.2, 30)

        def one(rate: float, role: str) -> Seen:
            return by_a_coarse_clock(rate, role, grace, least, limit, chance.uniform(0, 0.5))  # noqa: B023

        seen = [one(0.0, "stalled") for _ in range(STALLED)] + [one(rate, "dripped") for rate in RATES]
        if bounds := unsure(seen).get("slow-body"):
            seen += [one(rate, "closer") for rate in between(*bounds)]
        low, high = deadlines(seen)["slow-body"].min_rate or (0.0, math.inf)
        if not (0.85 * least < low < 1.15 * least if low == high else low <= least <= high):
            wrong.append((grace, least, limit, low, high))
    # a deadline that is just below the limit, or ends that chance has put on another line
    assert len(wrong) <= 3, wrong


def test_ends_that_jitter_has_put_on_a_line_are_of_no_rate_that_nobody_has_tried() -> None:
    # the faster, the later, by 0.12 s at most: 12,500 bytes per second would do that, and 3,000 were tried
    late = [end(0.5 + rate * 4e-5, rate, role="dripped", went=round(rate * 0.5)) for rate in RATES]
    found = of_stalled(stalled(0.5), late)
    assert (found.kind, found.min_rate) == ("absolute", None)


def test_none_is_none_and_says_for_how_long_it_was_watched() -> None:
    for found in (of_dripped(stalled(None), at_all_rates(None)), of_stalled(stalled(None), at_all_rates(None))):
        assert (found.kind, found.seconds, found.close, found.watched) == ("none", None, "none", LIMIT)


def test_one_that_was_not_ended_makes_it_none() -> None:
    assert of_stalled([*stalled(5.0), end(None)], []).kind == "none"


def test_what_is_refused_at_once_is_no_idle_timeout() -> None:
    later = [end(0.3, rate, role="dripped") for rate in RATES]
    assert of_stalled(stalled(0.001), later).kind == "absolute"


def test_without_others_the_deadline_is_taken_for_absolute() -> None:
    assert of_stalled(stalled(5.0), []).kind == "absolute"


def test_what_stops_dripping_at_its_cap_counts_until_then() -> None:
    stopped = replace(end(12.0, 3000.0, role="dripped"), full=2.0)
    # it dripped for 2 s, and its idle timeout ended it 10 s after
    assert of_dripped(stalled(1.0), [stopped]).kind == "idle"
    # it stopped as the deadline came, or before: that tells nothing
    nearly = replace(end(2.1, 3000.0, role="dripped"), full=2.05)
    assert of_stalled(stalled(2.0), [nearly, end(2.0, 10.0, role="dripped")]).kind == "absolute"
    assert of_stalled(stalled(10.0), [stopped, end(10.0, 10.0, role="dripped")]).kind == "absolute"


@pytest.mark.parametrize("status", [400, 413, 414, 431])
def test_a_refusal_for_its_size_is_no_time(status: int) -> None:
    ends = [end(3.0 + count, 56.0, close="response", status=status, went=9000) for count in range(3)]
    found = of_dripped(stalled(None), [replace(one, sent=9000) for one in ends])
    assert (found.kind, found.bytes, found.status) == ("absolute", 9000, status)


def test_the_spread_and_the_error_are_the_greatest() -> None:
    found = of_stalled([end(5.0), replace(end(5.02), error=0.004), end(5.01)], [])
    assert (found.seconds, found.clock_error) == (5.01, 0.004)
    assert found.spread == pytest.approx(0.02)


def test_ends_that_the_client_could_not_time_count_only_if_there_are_no_others() -> None:
    late = [replace(end(5.3), error=0.31), replace(end(5.4), error=0.41)]
    found = of_stalled([end(5.0), *late], [])
    assert (found.seconds, found.clock_error) == (5.0, 0.001)
    found = of_stalled(late, [])
    assert found.clock_error == 0.41
    assert found.seconds == pytest.approx(5.35)


def test_the_end_is_that_of_most() -> None:
    ends = [end(5.0, close="response", status=408), end(5.0, close="response", status=408), end(5.0, close="rst")]
    found = of_stalled(ends, [])
    assert (found.close, found.status) == ("response", 408)


@pytest.mark.parametrize(("quiet", "close"), [("rst", "rst"), ("fin", "fin"), (None, "fin")])
def test_a_silent_twin_tells_whether_an_unread_connection_was_reset(quiet: Close | None, close: Close) -> None:
    twin = end(None if quiet is None else 1.0, attack="slow-read", close=quiet or "none")
    poked = [end(1.0, attack="slow-read", role="poked", close="rst")] * 2
    assert deadlines([twin, *poked])["slow-read"].close == close


def unread(poked: float | None, dead_from: float) -> list[Seen]:
    """Return what a slow read shows: four that poke, and those that send one byte, all dead from that moment on."""
    once = [end(when if when > dead_from else None, 1 / when, attack="slow-read", role="once", close="rst")
            for when in (10.0, 12.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0)]  # fmt: skip
    return [end(poked, attack="slow-read", role="poked", close="rst"), *once]


def test_one_byte_each_agrees_with_pokes_that_change_nothing() -> None:
    found = deadlines(unread(18.0, 18.0))["slow-read"]
    assert (found.kind, found.seconds) == ("absolute", 18.0)


@pytest.mark.parametrize(("dead_from", "kind", "seconds"), [(35.0, "idle", 40.0), (1000.0, "none", None)])
def test_an_end_that_pokes_have_caused_is_not_believed(dead_from: float, kind: str, seconds: float | None) -> None:
    found = deadlines(unread(11.0, dead_from))["slow-read"]
    assert (found.kind, found.seconds) == (kind, seconds)


def test_an_end_that_pokes_have_put_off_is_found_by_those_that_send_one_byte() -> None:
    found = deadlines(unread(None, 22.0))["slow-read"]
    assert (found.kind, found.seconds) == ("idle", 25.0)
    open_still = deadlines(unread(None, 1000.0))["slow-read"]
    assert (open_still.kind, open_still.watched) == ("none", LIMIT)


def test_a_byte_that_was_still_to_come_at_an_interruption_tells_nothing() -> None:
    seen = [one if one.seconds is not None and one.seconds < 14 else replace(one, seconds=None, watched=14.0)
            for one in unread(11.0, 11.0)]  # fmt: skip
    found = deadlines(seen)["slow-read"]
    assert (found.kind, found.seconds) == ("absolute", 11.0)


@pytest.mark.parametrize(("full", "refused"), [(None, 70_000), (3.0, 70_000), (1.0, None)])
def test_a_flood_that_was_ended_after_all_was_sent_shows_no_limit_of_size(
    full: float | None, refused: int | None
) -> None:
    heads = [end(10.0, rate, attack="slow-header", role=role) for role, rate in (("stalled", 0.0), ("dripped", 10.0))]
    endless = end(10.0, 90.0, attack="endless-header", role="dripped")
    flood = replace(end(2.0, attack="endless-header", role="flood"), full=full, sent=70_000)
    assert deadlines([*heads, endless, flood])["endless-header"].bytes == refused


def test_what_was_not_followed_is_said_of_the_attacks_that_are_judged_by_it() -> None:
    seen = [*stalled(5.0), replace(end(None, attack="slow-body"), trouble="connection refused")]
    told = {name: trouble(seen, name) for name in ("slow-body", "stalled-body", "slow-header")}
    assert told == {"slow-body": "connection refused", "stalled-body": "connection refused", "slow-header": ""}


@pytest.mark.parametrize(
    ("primed", "kind"), [(None, "idle"), (10.0, "absolute"), (12.0, "absolute"), (59.0, "idle")], ids=str
)
def test_a_deadline_that_holds_for_the_first_bytes_of_a_body_only_is_an_idle_timeout(
    primed: float | None, kind: str
) -> None:
    dripped = [replace(one, attack="slow-body") for one in at_all_rates(10.0)]
    found = deadlines([*stalled(10.0), *dripped, end(primed, 10.0, role="primed")])["slow-body"]
    assert (found.kind, found.seconds) == (kind, 10.0)


def test_a_body_that_is_refused_at_once_is_refused_at_once_whatever_has_been_sent() -> None:
    seen = [end(0.0004 * number, rate, role="dripped") for number, rate in enumerate(RATES)]
    found = deadlines([*stalled(0.0001), *seen, end(0.02, 10.0, role="primed")])["slow-body"]
    assert found.kind == "absolute"


def test_what_bytes_have_paid_for_before_is_no_hole_in_a_minimum_rate() -> None:
    seen = [*stalled(5.0), *with_minimum(5.0, 2000.0)]
    # 40,000 bytes are 20 seconds more
    for primed, kind in ((25.0, "min-rate"), (None, "idle")):
        assert deadlines([*seen, end(primed, 10.0, role="primed")])["slow-body"].kind == kind


def test_an_absolute_deadline_above_an_idle_timeout_is_seen_though_the_fast_ones_have_stopped() -> None:
    # heads of 6,000 bytes, an idle timeout of 11 s and 30 s for all
    ends = [end(30.0, rate, role="dripped") for rate in (10.0, 30.0, 100.0)]
    stopped = [
        replace(end(6000 / rate + 11, rate, role="dripped"), full=6000 / rate) for rate in (200.0, 300.0, 1000.0)
    ]
    found = of_dripped(stalled(11.0), [*ends, *stopped])
    assert (found.kind, found.seconds, found.min_rate) == ("absolute", 30.0, None)
    assert of_stalled(stalled(11.0), [*ends, *stopped]).kind == "idle"


def test_a_minimum_rate_with_a_bound_counts_with_its_bound() -> None:
    ends = [end(min(30.0, 10 + 10 * rate / 500), rate, role="dripped") for rate in RATES]
    found = of_dripped(stalled(10.0), [replace(one, went=round(one.rate * 10)) for one in ends])
    assert (found.kind, found.seconds) == ("absolute", 30.0)
    assert found.idle_seconds == pytest.approx(10.0015)


def test_silence_is_compared_with_slow_heads() -> None:
    silent = [end(5.0, attack="silent")] * 4
    heads = [end(None, 10.0, attack="slow-header", role="dripped")]
    found = deadlines([*silent, *heads, *[end(5.0, attack="slow-header")] * 4])
    assert found["silent"].kind == "idle"
    assert found["slow-header"].kind == "idle"


def test_what_failed_is_not_measured() -> None:
    assert deadlines([replace(end(None, attack="silent"), trouble="Connection refused")]) == {}


def test_the_pinned_names_of_attacks_are_there() -> None:
    assert {"silent", "slow-header", "endless-header", "slow-body", "stalled-body", "slow-read", "idle", "tls-silent",
            "websocket-silent"} <= set(NAMES)  # fmt: skip


def test_pings_are_answered_with_their_payload() -> None:
    assert pongs(b"\x89\x02ab\x81\x01x\x89\x00") == b"\x8a\x82\0\0\0\0ab\x8a\x80\0\0\0\0"
    assert pongs(b"\x82\x7e\x01\x00") == b""


def of_heads(*others: Seen) -> list[Seen]:
    """What was seen of slow heads under a minimum rate of 50 bytes per second after a second, and of others."""
    heads = [replace(one, attack="slow-header") for one in (*stalled(1.0), *with_minimum(1.0, 50.0))]
    return [*heads, *others]


def test_one_rate_cannot_tell_a_minimum_rate_which_slow_heads_can() -> None:
    endless = [end(None, 180.0, attack="endless-header", role="dripped") for _ in range(4)]
    late = [end(1.25, 10.0, attack="pipelined", role="dripped")]
    silent = [replace(one, attack="pipelined") for one in stalled(1.0)]
    found = deadlines(of_heads(*endless, *silent, *late))
    for name in ("endless-header", "pipelined"):
        assert found[name].kind == "min-rate", name
        assert found[name].min_rate == found["slow-header"].min_rate
        assert found[name].seconds == pytest.approx(1.0, abs=0.01)


def test_a_minimum_rate_that_an_endless_head_reaches_late_is_no_absolute_deadline() -> None:
    endless = [end(3.0, 40.0, attack="endless-header", role="dripped") for _ in range(4)]
    found = deadlines(of_heads(*endless))["endless-header"]
    assert (found.kind, found.idle_seconds) == ("min-rate", None)


def test_a_minimum_rate_that_puts_off_an_end_by_less_than_chance_is_that_of_slow_heads() -> None:
    silent = [replace(one, attack="pipelined") for one in stalled(1.198)]
    # 12 bytes are a quarter of a second at 50 per second, which would be seen
    for least, kind in ((50.0, "absolute"), (400.0, "min-rate")):
        late = end(1.2, 10.0, attack="pipelined", role="dripped", went=12)
        heads = [replace(one, attack="slow-header") for one in (*stalled(1.0), *with_minimum(1.0, least))]
        found = deadlines([*heads, *silent, late])["pipelined"]
        assert found.kind == kind
        assert found.seconds == pytest.approx(1.198, abs=0.01)
        assert found.min_rate == (None if kind == "absolute" else pytest.approx((least, least), rel=0.01))


@pytest.mark.parametrize(("seconds", "kind"), [(0.85, "min-rate"), (None, "none")])
def test_silence_has_the_minimum_rate_of_slow_heads_whose_opening_has_paid_before(
    seconds: float | None, kind: str
) -> None:
    found = deadlines([*of_heads(), *[replace(one, attack="silent") for one in stalled(seconds)]])
    assert (found["silent"].kind, found["slow-header"].kind) == (kind, "min-rate")
    assert found["silent"].min_rate == (found["slow-header"].min_rate if seconds else None)


def test_silence_that_ends_when_all_heads_have_ended_is_no_minimum_rate() -> None:
    # a minimum rate with a bound of 40 s
    heads = [*stalled(10.0), *(end(min(40.0, 10 + 10 * rate / 500), rate, role="dripped") for rate in RATES)]
    silent = [end(41.5, attack="silent")] * 4
    found = deadlines([*silent, *(replace(one, attack="slow-header") for one in heads)])["silent"]
    assert (found.kind, found.min_rate) == ("absolute", None)


def test_an_idle_timeout_of_heads_stays_one() -> None:
    heads = [replace(one, attack="slow-header") for one in (*stalled(1.0), *at_all_rates(None))]
    endless = [end(None, 180.0, attack="endless-header", role="dripped") for _ in range(4)]
    assert deadlines([*heads, *endless])["endless-header"].kind == "idle"


def test_where_some_were_ended_the_others_tell_for_how_long_was_watched() -> None:
    found = of_stalled([end(0.0), end(0.001), end(None), end(None)], [])
    assert (found.kind, found.watched) == ("none", LIMIT)
