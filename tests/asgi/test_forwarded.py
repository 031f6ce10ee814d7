"""What the application and the log see of a client whose proxy is trusted."""

from __future__ import annotations

from typing import Any

import pytest

from deadlined.asgi import AsgiHandler
from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http.trusted import TrustedProxies
from tests.support.serving import LOCALHOST, say, serving
from tests.support.websocket import UPGRADE


@pytest.mark.parametrize("trusted", [True, False])
async def test_the_application_and_the_record_see_the_client(trusted: bool) -> None:
    seen: list[dict[str, Any]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(dict(scope))
        await say(send)

    proxies = TrustedProxies([LOCALHOST]) if trusted else None
    async with serving(app, trusted_proxies=proxies) as served:
        fields = b"x-forwarded-for: 6.6.6.6, [2001:db8::1]:8\r\nx-forwarded-proto: https\r\n"
        await served.ask(b"GET / HTTP/1.0\r\nhost: a\r\n" + fields + b"\r\n")
        await served.ended()
        if trusted:
            assert (seen[0]["client"], seen[0]["scheme"]) == (("2001:db8::1", 8), "https")
            assert [record.peer for record in served.requests] == ["[2001:db8::1]:8"]
        else:
            assert (seen[0]["client"][0], seen[0]["scheme"]) == (LOCALHOST, "http")
            assert served.requests[0].peer.startswith(f"{LOCALHOST}:")
        assert served.connections[0].peer.startswith(f"{LOCALHOST}:"), "a connection is the proxy's"
        assert (b"host", b"a") in seen[0]["headers"]


@pytest.mark.parametrize(("told", "scheme"), [(b"https", "wss"), (b"wss", "wss"), (b"http", "ws"), (b"", "ws")])
@pytest.mark.parametrize("trusted", [True, False])
async def test_a_websocket_has_the_scheme_that_its_client_used(trusted: bool, told: bytes, scheme: str) -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["scheme"])
        await send({"type": "websocket.close"})

    proxies = TrustedProxies([LOCALHOST]) if trusted else None
    async with serving(app, trusted_proxies=proxies) as served:
        field = b"x-forwarded-proto: %b\r\n" % told if told else b""
        assert (await served.ask(UPGRADE + field + b"\r\n")).status == 403
    assert seen == [scheme if trusted else "ws"]


def test_a_handler_believes_nobody_by_default() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise NotImplementedError

    assert AsgiHandler(app)._trusted_proxies is None
