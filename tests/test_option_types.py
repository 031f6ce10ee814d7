"""A value of a wrong type, given by a program to a class of options: named with its field, compiled or not."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
from dataclasses import replace
from typing import Any

import pytest

from deadlined.http import Limits, Route, Timeouts
from deadlined.proxy import Address, ProxyLimits, ProxyTimeouts

NUMBERS = [(Timeouts, "read_header"), (Limits, "max_head"), (ProxyTimeouts, "upstream_idle")]
NUMBERS += [(ProxyLimits, "upstream_connections")]


@pytest.mark.parametrize(("kind", "field"), NUMBERS)
@pytest.mark.parametrize("value", ["5s", None, True, b"5"])
def test_what_is_no_number_is_named(kind: Any, field: str, value: object) -> None:
    with pytest.raises(TypeError) as caught:
        kind(**{field: value})
    assert str(caught.value).startswith(f"{field} must be a number that is ")
    assert str(caught.value).endswith(f", or inf for off, not {value!r}")
    with pytest.raises(TypeError, match=f"^{field} must be"):
        replace(kind(), **{field: value})


@pytest.mark.parametrize(("kind", "field"), NUMBERS)
def test_a_number_that_no_float_can_hold_is_named(kind: Any, field: str) -> None:
    for value in (10**400, -(10**5000)):
        with pytest.raises(
            ValueError, match=f"^{field} must be a number that is .*; this one is too large for a float$"
        ):
            kind(**{field: value})


@pytest.mark.parametrize("field", ["read", "max_body"])
def test_a_route_names_a_number_that_no_float_can_hold(field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field} must be a number that is "):
        Route("/", frozenset(), {field: 10**400})


@pytest.mark.parametrize("field", ["body_min_rate", "ws_ping"])
def test_what_cannot_be_off_is_not_said_to_be(field: str) -> None:
    with pytest.raises(TypeError, match=f"^{field} must be a number that is greater than 0, not 'off'$"):
        Timeouts(**{field: "off"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((5, frozenset(), {}), "path must be a text like /upload, not 5"),
        (("/", {"POST"}, {}), "methods must be a frozenset of texts like POST, not {'POST'}"),
        (("/", "POST", {}), "methods must be a frozenset of texts like POST, not 'POST'"),
        (("/", frozenset(), None), "overrides must be a mapping of names to numbers, not None"),
        (("/", frozenset(), {"read": "5s"}), "read must be a number that is 0 or more, or inf for off, not '5s'"),
        (("/", frozenset(), {"max_running": "5"}), "max_running must be a number that is at least 1, or inf for off"),
        (("/", frozenset(), {}, 1), "observed must be True or False, not 1"),
    ],
)
def test_a_route_names_what_is_wrong(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(TypeError) as caught:
        Route(*arguments)
    assert str(caught.value).startswith(said)


def test_a_route_names_what_is_no_text() -> None:
    methods: Any = frozenset({b"POST"})
    with pytest.raises(ValueError, match=r"^b'POST' is not a method: "):
        Route("/", methods, {})
    overrides: Any = {5: 1}
    with pytest.raises(ValueError, match=r"^5 is neither a timeout nor a limit$"):
        Route("/", frozenset(), overrides)


def test_an_address_names_what_is_wrong() -> None:
    port: Any
    for port in ("80", 80.0, True):
        with pytest.raises(TypeError, match=f"^port must be a whole number, not {port!r}$"):
            Address("localhost", port)
    with pytest.raises(TypeError, match=r"^host must be a text, not None$"):
        Address(None, 80)  # type: ignore[arg-type]


def test_the_classes_are_as_they_were_otherwise() -> None:
    assert Timeouts(idle=5, read=math.inf) == pickle.loads(pickle.dumps(copy.deepcopy(Timeouts(idle=5.0))))
    assert Address("localhost", 80) == copy.copy(Address(host="localhost", port=80))
    assert [*inspect.signature(Address).parameters] == ["host", "port", "path"]
    with pytest.raises(TypeError, match="unexpected keyword argument 'reed'"):
        Timeouts(reed=5)  # type: ignore[call-arg]
