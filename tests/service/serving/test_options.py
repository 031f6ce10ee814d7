"""Options of a configuration that the server of a serving process must have."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from trio.testing import MockClock

from deadlined.http import Limits, Timeouts
from deadlined.proxy import ProxyLimits
from deadlined.service import ServeConfig
from deadlined.service.config.rereading import Configuration
from deadlined.service.content.proxied import Upstreams
from deadlined.service.process.garbage import watch_garbage
from deadlined.service.serving import running
from deadlined.service.serving.running import Service

UPSTREAM = ("127.0.0.1:1",)


async def settings_of(config: ServeConfig) -> Any:
    """Return the options of the server that a process with this configuration makes."""
    voice: Any = SimpleNamespace(log=None, access=None)
    parent: Any = SimpleNamespace(link=None, hangup=None, notifier=None, starting=None)
    content = Upstreams(config)
    service = Service(Configuration(config, None), voice, parent, content, None)
    async with content as handler:
        with watch_garbage() as garbage:
            return service._server(handler, None, garbage)._settings


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("timeouts", Timeouts(idle=3), Timeouts(idle=3)),
        ("limits", Limits(max_connections=3), Limits(max_connections=3)),
        ("cancel_on_disconnect", False, False),
        ("ws_compression", False, False),
        ("access_log_fields", ("referer",), (b"referer",)),
    ],
)
async def test_the_server_has_the_option(name: str, value: object, expected: object, autojump_clock: MockClock) -> None:
    own = {"access_log_fields": "recorded_fields"}.get(name, name)
    options: dict[str, Any] = {name: value}
    found = await settings_of(ServeConfig(upstream=UPSTREAM, **options))
    assert getattr(found, own) == expected
    assert getattr(await settings_of(ServeConfig(upstream=UPSTREAM)), own) != expected


@pytest.mark.parametrize(("upstream_connections", "clients"), [(math.inf, 90), (10, 170)])
async def test_without_a_limit_of_connections_it_leaves_descriptors_to_upstreams(
    upstream_connections: float, clients: float, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(running, "free_descriptors", lambda: 200)
    limits = ProxyLimits(upstream_connections=upstream_connections)
    found = await settings_of(ServeConfig(upstream=UPSTREAM, proxy_limits=limits))
    assert found.limits == Limits(max_connections=clients)
