"""The table of deadlines against a copy of what was designed, its formulas, and the limits' defaults."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, fields

import pytest

from deadlined.http import RULES, Action, BadRequest, Limits, Phase, Reason, Timeouts
from deadlined.http.policy import (
    IDLE_BUFFER,
    IDLE_GRACE,
    LINGER,
    LINGER_MOST,
    LINGER_RATE,
    NEW_GRACE,
    REUSE_GRACE,
    STALL,
    STALL_CHECK,
    age_deadline,
    body_deadline,
    handler_deadline,
    handshake_deadline,
    header_deadline,
    idle_deadline,
    last_head_deadline,
    on_expiry,
    on_handler_failure,
    on_refusal,
    reuse_deadline,
    stall_check_deadline,
    stall_deadline,
    why_last,
    write_deadline,
)
from deadlined.http.state import NONE, SENT, STARTED

INF = math.inf

# field: phase, reason, status, only if a byte came, reset, the handler is cancelled
TABLE: dict[str, tuple[str, str, int | None, bool, bool, bool]] = {
    "handshake": ("handshake", "handshake_timeout", None, False, False, False),
    "read_header": ("header", "header_timeout", 408, True, False, False),
    "read": ("body", "read_timeout", 408, True, False, False),
    "body_grace": ("body", "body_rate", 408, True, False, False),
    "write_grace": ("write", "write_timeout", None, False, True, True),
    "write": ("write", "write_timeout", None, False, True, True),
    "idle": ("idle", "idle_timeout", None, False, False, False),
    "handler": ("handler", "handler_timeout", 504, False, True, True),
    "connection_age": ("idle", "connection_age", None, False, False, False),
    "drain": ("drain", "drain_timeout", None, False, True, True),
    "ws_pong": ("websocket", "pong_timeout", None, False, False, False),
    "ws_close": ("websocket", "close_timeout", None, False, False, False),
}
COLUMNS = ("phase", "reason", "status", "needs_byte", "reset", "cancels")

# what a websocket is closed with; those that are not here reset it, close it without a word, or do not concern it
CODES = {"read": 1008, "body_grace": 1008, "handler": 1011, "connection_age": 1001, "drain": 1012, "ws_pong": 1011}


def test_the_table_has_a_rule_for_each_timeout_that_ends_a_connection() -> None:
    timeouts = {field.name for field in fields(Timeouts) if not field.name.endswith("_rate")}
    # after `ws_ping` the peer is sent a ping, and what waits for `request_queue` is answered
    assert set(RULES) == set(TABLE) == timeouts - {"ws_ping", "request_queue"}


def test_each_code_of_a_close_is_as_designed() -> None:
    assert {field: rule.code for field, rule in RULES.items() if rule.code is not None} == CODES


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("field", TABLE)
def test_each_cell_is_as_designed(field: str, column: str) -> None:
    assert getattr(RULES[field], column) == TABLE[field][COLUMNS.index(column)]


@pytest.mark.parametrize("field", TABLE)
def test_a_rule_knows_its_field_and_explains_each_status(field: str) -> None:
    assert RULES[field].field == field
    assert bool(RULES[field].detail) == (RULES[field].status is not None)


def test_the_reasons_are_a_closed_set() -> None:
    deadlines = {rule.reason.value for rule in RULES.values()}
    others = {
        "client_closed",
        "client_reset",
        "protocol_error",
        "header_too_large",
        "message_too_large",
        "keepalive_limit",
        "server_error",
        "upstream_failed",
        "done",
    }
    assert {reason.value for reason in Reason} == deadlines | others
    assert not deadlines & others


def test_the_phases_are_a_closed_set() -> None:
    phases = ["handshake", "header", "body", "handler", "write", "idle", "drain", "websocket", "tunnel", "closing"]
    assert [phase.value for phase in Phase] == phases


# rule, a byte came, state of the response -> status, reset
EXPIRIES = [
    *(("handshake", came, NONE, None, False) for came in (False, True)),
    ("read_header", False, NONE, None, False),
    ("read_header", True, NONE, 408, False),
    ("read", False, NONE, None, False),
    ("read", True, NONE, 408, False),
    ("read", True, STARTED, None, False),
    ("body_grace", True, NONE, 408, False),
    ("body_grace", True, STARTED, None, False),
    *((rule, True, response, None, True) for rule in ("write", "write_grace") for response in (NONE, STARTED)),
    *(("idle", came, NONE, None, False) for came in (False, True)),
    ("handler", False, NONE, 504, False),
    ("handler", True, NONE, 504, False),
    ("handler", True, STARTED, None, True),
    ("handler", True, SENT, None, False),
    *(("drain", came, response, None, True) for came in (False, True) for response in (NONE, STARTED)),
    ("drain", True, SENT, None, False),
]


@pytest.mark.parametrize(("rule", "came", "response", "status", "reset"), EXPIRIES)
def test_an_expiry_answers_or_resets_or_closes(
    rule: str, came: bool, response: int, status: int | None, reset: bool
) -> None:
    action = on_expiry(RULES[rule], byte_came=came, response=response)
    assert action == Action(RULES[rule].reason, status, reset, RULES[rule].cancels)


@pytest.mark.parametrize("rule", RULES)
def test_a_peer_that_was_told_already_is_told_nothing_more_but_by_the_drain(rule: str) -> None:
    action = on_expiry(RULES[rule], byte_came=True, response=NONE, dead=True)
    # what still leaves is cut by a reset, too
    reset = rule in ("drain", "write", "write_grace")
    assert action == Action(RULES[rule].reason, None, reset, RULES[rule].cancels)


@pytest.mark.parametrize("rule", RULES)
def test_a_handler_that_is_left_alone_is_not_cancelled_for_a_peer_that_does_not_read(rule: str) -> None:
    action = on_expiry(RULES[rule], byte_came=True, response=STARTED, spares=True)
    assert action.cancels is (RULES[rule].cancels and rule not in ("write", "write_grace"))


@pytest.mark.parametrize(("rule", "came", "blamed"), [
    ("idle", False, False), ("read_header", False, False), ("read_header", True, True), ("handshake", False, True),
    ("read", False, False), ("read", True, True), ("body_grace", True, True), ("write_grace", False, True),
])  # fmt: skip
def test_a_drain_does_not_blame_a_connection_that_has_asked_nothing(rule: str, came: bool, blamed: bool) -> None:
    action = on_expiry(RULES[rule], byte_came=came, response=NONE, draining=True)
    assert action.reason is (RULES[rule].reason if blamed else Reason.DONE)


@pytest.mark.parametrize(("response", "blamed"), [(NONE, True), (STARTED, True), (SENT, False)])
@pytest.mark.parametrize("rule", ["read", "body_grace"])
def test_a_drain_does_not_blame_a_client_for_a_body_that_was_answered(rule: str, response: int, blamed: bool) -> None:
    action = on_expiry(RULES[rule], byte_came=True, response=response, draining=True)
    assert action.reason is (RULES[rule].reason if blamed else Reason.DONE)


@pytest.mark.parametrize(("response", "status"), [(NONE, 413), (STARTED, None), (SENT, None)])
def test_a_refusal_is_answered_unless_a_response_was_started(response: int, status: int | None) -> None:
    bad = BadRequest(413, "too long", Reason.PROTOCOL_ERROR)
    assert on_refusal(bad, response) == Action(Reason.PROTOCOL_ERROR, status)


def test_a_failed_handler_is_a_500_or_a_reset_of_what_is_incomplete() -> None:
    assert on_handler_failure(NONE) == Action(Reason.SERVER_ERROR, 500)
    assert on_handler_failure(STARTED) == Action(Reason.SERVER_ERROR, reset=True)
    assert on_handler_failure(STARTED, shows_end=True) == Action(Reason.SERVER_ERROR)
    assert on_handler_failure(SENT) is None
    assert on_handler_failure(STARTED, stopped=True) == Action(Reason.DONE, reset=True)
    assert on_handler_failure(NONE, stopped=True) == Action(Reason.SERVER_ERROR, 500)


# keep-alive, draining, number of the request, now -> the reason if it is the connection's last
LASTS = [
    (True, False, 1, 0.0, None),
    (False, False, 1, 0.0, Reason.DONE),
    (True, True, 1, 0.0, Reason.DONE),
    (True, False, 3, 0.0, Reason.KEEPALIVE_LIMIT),
    (False, False, 3, 0.0, Reason.DONE),
    (True, False, 1, 100.0, Reason.CONNECTION_AGE),
    (True, False, 3, 100.0, Reason.KEEPALIVE_LIMIT),
]


@pytest.mark.parametrize(("keep_alive", "draining", "requests", "now", "reason"), LASTS)
def test_the_last_response_and_its_reason(
    keep_alive: bool, draining: bool, requests: int, now: float, reason: Reason | None
) -> None:
    assert why_last(keep_alive, draining, requests, Limits(max_requests=3), now, 100.0) is reason


def test_the_handshake_is_timed_from_accept() -> None:
    assert handshake_deadline(100.0, Timeouts(handshake=7)) == 107.0


def test_the_head_is_timed_by_whichever_of_its_two_timeouts_is_shorter() -> None:
    assert header_deadline(100.0, Timeouts(read_header=7)) == (107.0, RULES["read_header"])
    assert header_deadline(100.0, Timeouts(read_header=7, read=8)) == (107.0, RULES["read_header"])
    assert header_deadline(100.0, Timeouts(read_header=7, read=7)) == (107.0, RULES["read_header"])
    assert header_deadline(100.0, Timeouts(read_header=7, read=6)) == (106.0, RULES["read"])
    assert header_deadline(100.0, Timeouts(read_header=INF)) == (INF, RULES["read_header"])


@pytest.mark.parametrize(
    ("received", "deadline"), [(0, 130.0), (1, 130.002), (500, 131.0), (5_000, 140.0), (1_000_000, 2130.0)]
)
def test_a_body_earns_time_by_apaches_formula(received: int, deadline: float) -> None:
    timeouts = Timeouts(body_grace=20, body_min_rate=500)
    assert body_deadline(INF, 110.0, received, timeouts) == (deadline, RULES["body_grace"])


def test_a_rate_of_inf_earns_a_body_nothing() -> None:
    assert body_deadline(INF, 0.0, 10**9, Timeouts(body_grace=20, body_min_rate=INF))[0] == 20.0


def test_read_bounds_head_and_body_together_whatever_the_rate() -> None:
    timeouts = Timeouts(body_grace=20, body_min_rate=500)
    assert body_deadline(125.0, 104.0, 0, timeouts) == (124.0, RULES["body_grace"])
    assert body_deadline(125.0, 104.0, 500, timeouts) == (125.0, RULES["body_grace"])
    assert body_deadline(125.0, 104.0, 501, timeouts) == (125.0, RULES["read"])


@pytest.mark.parametrize(
    ("length", "deadline"), [(0, 110.0), (1, 110.0), (2_400, 110.0), (4_800, 120.0), (240_000, 1100.0)]
)
def test_a_send_earns_time_by_kestrels_formula(length: int, deadline: float) -> None:
    timeouts = Timeouts(write_grace=10, write_min_rate=240)
    assert write_deadline(100.0, INF, length, timeouts) == (deadline, RULES["write_grace"])


def test_write_bounds_the_response_whatever_the_rate() -> None:
    timeouts = Timeouts(write_grace=10, write_min_rate=240)
    assert write_deadline(101.0, 110.0, 1, timeouts) == (110.0, RULES["write"])
    assert write_deadline(100.0, 110.0, 1, timeouts) == (110.0, RULES["write_grace"])
    assert write_deadline(100.0, 110.0, 10**6, timeouts) == (110.0, RULES["write"])
    assert write_deadline(90.0, 110.0, 1, timeouts) == (100.0, RULES["write_grace"])


def test_idle_is_closed_a_second_later_than_it_is_advertised() -> None:
    assert IDLE_BUFFER == 1.0
    assert idle_deadline(100.0, Timeouts(idle=75)) == 176.0
    assert idle_deadline(100.0, Timeouts(idle=INF)) == INF


def test_the_handler_is_timed_from_the_end_of_the_head() -> None:
    assert handler_deadline(100.0, Timeouts(handler=3)) == 103.0
    assert handler_deadline(100.0, Timeouts()) == INF


@pytest.mark.parametrize(("jitter", "deadline"), [(-1.0, 190.0), (0.0, 200.0), (0.5, 205.0), (1.0, 210.0)])
def test_the_age_is_spread_by_a_tenth(jitter: float, deadline: float) -> None:
    assert age_deadline(100.0, jitter, Timeouts(connection_age=100)) == pytest.approx(deadline, abs=1e-9)
    assert age_deadline(100.0, jitter, Timeouts()) == INF


@pytest.mark.parametrize(
    ("idle_since", "until", "deadline"),
    [
        (100.0, INF, 101.5),
        (99.0, INF, 100.5),
        (98.6, INF, 100.1),
        (0.0, INF, 100.1),
        # in the first half of what is left of the drain
        (100.0, 102.0, 101.0),
        (0.0, 100.1, 100.05),
        (100.0, 100.0, 100.0),
        # the drain was cut
        (100.0, -INF, -INF),
    ],
)
def test_a_drain_keeps_a_connection_that_was_used_a_moment_ago(
    idle_since: float, until: float, deadline: float
) -> None:
    assert reuse_deadline(100.0, idle_since, REUSE_GRACE, until) == pytest.approx(deadline)


@pytest.mark.parametrize(
    ("now", "until", "deadline"),
    [
        (100.0, 130.0, 105.0),
        (100.0, INF, 105.0),
        (103.5, 130.0, 105.0),
        # it has a moment in any case
        (104.0, 130.0, 105.5),
        # in the first half of what is left of the drain
        (100.0, 102.0, 101.0),
        (104.0, 105.0, 104.5),
        # the drain was cut
        (100.0, -INF, -INF),
    ],
)
def test_a_drain_gives_a_head_five_seconds_from_its_beginning(now: float, until: float, deadline: float) -> None:
    assert last_head_deadline(now, 100.0, until) == deadline


def test_the_fixed_times_are_as_documented() -> None:
    assert (LINGER, LINGER_RATE, LINGER_MOST) == (2.0, 65536, 30.0)
    assert (NEW_GRACE, IDLE_GRACE, REUSE_GRACE) == (5.0, 0.1, 1.5)


DEFAULTS = {
    "handshake": 10.0,
    "read_header": 10.0,
    "read": INF,
    "body_grace": 20.0,
    "body_min_rate": 500.0,
    "write_grace": 10.0,
    "write_min_rate": 240.0,
    "write": INF,
    "idle": 75.0,
    "handler": INF,
    "request_queue": 5.0,
    "connection_age": INF,
    "drain": 30.0,
    "ws_ping": 20.0,
    "ws_pong": 20.0,
    "ws_close": 5.0,
}


def test_the_timeouts_defaults_are_as_designed() -> None:
    assert {field.name: getattr(Timeouts(), field.name) for field in fields(Timeouts)} == DEFAULTS


def test_the_limits_defaults_are_as_designed() -> None:
    assert {field.name: getattr(Limits(), field.name) for field in fields(Limits)} == {
        "max_connections": INF,
        "max_head": 16384,
        "max_headers": 100,
        "max_body": INF,
        "max_requests": INF,
        "max_running": INF,
        "max_waiting": 1000,
        "max_message": 16 * 1024 * 1024,
        "max_frame": 16 * 1024 * 1024,
    }


@pytest.mark.parametrize("value", [math.nan, -1.0, -1e-9, -INF])
@pytest.mark.parametrize("field", DEFAULTS)
def test_a_timeout_that_is_no_length_of_time_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{field} must be"):
        Timeouts(**{field: value})


@pytest.mark.parametrize("field", DEFAULTS)
def test_zero_is_a_timeout_but_not_a_rate_nor_a_period(field: str) -> None:
    if field.endswith("_rate") or field == "ws_ping":
        with pytest.raises(ValueError, match=f"^{field} must be greater than 0"):
            Timeouts(**{field: 0.0})
    else:
        assert getattr(Timeouts(**{field: 0.0}), field) == 0.0


@pytest.mark.parametrize("field", DEFAULTS)
def test_inf_turns_each_timeout_off(field: str) -> None:
    assert getattr(Timeouts(**{field: INF}), field) == INF


@pytest.mark.parametrize("value", [math.nan, 0, -1, 0.5, -INF])
@pytest.mark.parametrize("field", [field.name for field in fields(Limits)])
def test_a_limit_below_one_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{field} must be at least 1"):
        Limits(**{field: value})


def test_timeouts_and_limits_are_frozen_and_named() -> None:
    with pytest.raises(FrozenInstanceError):
        Timeouts().idle = 1.0  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        Limits().max_head = 1.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        Timeouts(1.0)  # type: ignore[call-arg]


def test_a_stall_has_a_minute_or_the_grace_if_that_is_longer() -> None:
    assert stall_deadline(5.0, Timeouts()) == 5.0 + STALL
    assert stall_deadline(5.0, Timeouts(write_grace=3600)) == 3605.0
    assert stall_deadline(5.0, Timeouts(write_grace=INF)) == INF


def test_a_send_that_waits_is_looked_at_until_its_deadline() -> None:
    assert stall_check_deadline(100.0, 160.0) == stall_check_deadline(100.0, INF) == 100.0 + STALL_CHECK
    assert stall_check_deadline(100.0, 103.0) == 103.0
