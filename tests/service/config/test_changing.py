"""What of a configuration can change while a service runs."""

from __future__ import annotations

import math

import msgspec
import pytest

from deadlined.http import Limits, Route, Timeouts
from deadlined.proxy import ProxyLimits, ProxyTimeouts
from deadlined.service.config import SETTINGS, ServeConfig
from deadlined.service.config.changing import apply, changes, encode, merged

ROUTE = Route("/upload", frozenset({"POST"}), {"body_grace": math.inf, "max_body": 5.0})
HIDDEN = Route("/healthz", frozenset(), {}, observed=False)


def test_deadlines_limits_and_routes_change() -> None:
    old = ServeConfig()
    new = ServeConfig(timeouts=Timeouts(idle=5, handler=math.inf, drain=1), limits=Limits(max_body=7), routes=(ROUTE,))
    found = changes(old, new)
    assert found.needs_restart == []
    assert found.changed.pop("route") == (
        "[]",
        '[{"path":"/upload","methods":["POST"],"body_grace":"off","max_body":"5"}]',
    )
    assert found.changed == {
        "idle": ("75s", "5s"),
        "drain": ("30s", "1s"),
        "max_body": (found.changed["max_body"][0], "7"),
    }
    assert merged(old, new) == new


def test_deadlines_and_limits_of_upstreams_change() -> None:
    old = ServeConfig(upstream=("a:1",))
    timeouts, limits = ProxyTimeouts(upstream_queue=1), ProxyLimits(upstream_connections=9)
    new = msgspec.structs.replace(old, proxy_timeouts=timeouts, proxy_limits=limits)
    assert changes(old, new).changed == {"upstream_queue": ("10s", "1s"), "upstream_connections": ("off", "9")}
    assert merged(old, new) == apply(old, encode(new)) == new


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("port", 1), ("host", "::1"), ("bind", (":1",)), ("uds", "x"), ("workers", 3), ("loop", "uvloop")),
        *(("http", "h11"), ("queue", "wheel"), ("precise", True), ("app", "a:b"), ("factory", True)),
        *(("upstream", ("a:1",)), ("command", ("x", "{uds}"))),
        *(("admin", ":1"), ("log_level", "debug"), ("trusted_proxies", ("unix",))),
        *(("access_log", False), ("access_log_lines", "errors"), ("log_query", False)),
        ("access_log_fields", ("referer",)),
    ],
)
def test_what_needs_a_restart_is_named_and_stays(name: str, value: object) -> None:
    old = ServeConfig()
    new = msgspec.structs.replace(old, **{name: value, "timeouts": Timeouts(idle=5)})
    found = changes(old, new)
    assert (found.needs_restart, list(found.changed)) == ([name], ["idle"])
    assert merged(old, new) == msgspec.structs.replace(old, timeouts=Timeouts(idle=5))


def test_a_certificate_changes_but_no_service_begins_or_ceases_to_speak_tls() -> None:
    plain, one = ServeConfig(), ServeConfig(certfile="a.pem")
    other = ServeConfig(certfile="b.pem", keyfile="k.pem", tls_min="1.3")
    assert changes(one, other).changed == {
        "certfile": ("a.pem", "b.pem"),
        "keyfile": (None, "k.pem"),
        "tls_min": ("1.2", "1.3"),
    }
    assert merged(one, other) == other
    (shown, _) = changes(ServeConfig(certfile="a\udcff"), one).changed["certfile"]
    assert shown == r"a\udcff"
    for before, after in ((plain, one), (one, plain)):
        assert changes(before, after).needs_restart == ["certfile"]
        assert merged(before, after) == before


def test_nothing_has_changed_if_nothing_is_different() -> None:
    assert changes(ServeConfig(routes=(ROUTE,)), ServeConfig(routes=(ROUTE,))) == changes(ServeConfig(), ServeConfig())


def test_what_can_change_goes_to_another_process_and_nothing_else() -> None:
    running = ServeConfig(port=80, workers=2, certfile="b")
    new = ServeConfig(
        port=81,
        timeouts=Timeouts(idle=math.inf, body_grace=0.5),
        limits=Limits(max_requests=9),
        routes=(ROUTE, HIDDEN),
        # a byte that is not UTF-8
        certfile="c\udcff",
        tls_min="1.3",
    )
    assert apply(running, encode(new)) == msgspec.structs.replace(new, port=80, workers=2)


def test_every_setting_is_either() -> None:
    """A new one must be thought about: is it taken over?"""
    live = {name for name, setting in SETTINGS.items() if setting.owner is not ServeConfig}
    assert live | {"certfile", "keyfile", "key_password_file", "client_ca", "ciphers", "tls_min"} < set(SETTINGS)
