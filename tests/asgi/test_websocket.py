"""The contract of ASGI's websocket: the scope, the messages and their order, every end, as an application sees it."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked
from wsproto.events import BytesMessage, Ping, TextMessage

from deadlined.asgi import App, AsgiHandler
from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import Reason, ResponseError
from tests.support.http import LAST_GET, only, serving
from tests.support.serving import failures, say
from tests.support.websocket import (
    ACCEPT,
    CONNECT,
    HANDSHAKE,
    UPGRADE,
    Told,
    accepting,
    handler,
    peer,
    stranger,
)

ROOT = Path(__file__).parents[2]

Act = Callable[[Receive, Send], Awaitable[object]]


def app_of(act: Act) -> App:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await act(receive, send)

    return app


def after_accept(act: Act) -> App:
    """Return an application that accepts, and then acts."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await accepting(receive, send)
        await act(receive, send)

    return app


async def test_the_scope_is_as_the_specification_says(autojump_clock: MockClock) -> None:
    told = Told()
    async with serving(AsgiHandler(told, {"pool": 1})) as site:
        client = await stranger(site)
        await client.open("/a%20b/c?d=%20e", ["chat", "super.chat"], origin="https://a.example")
        await client.close()
        await site.ended()
        (scope,) = told.scopes
        assert scope["server"] == ("127.0.0.1", site.port)
    assert scope["type"] == "websocket"
    assert scope["asgi"] == {"version": "3.0", "spec_version": "2.5"}
    assert (scope["http_version"], scope["scheme"]) == ("1.1", "ws")
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/a b/c", b"/a%20b/c", b"d=%20e")
    assert (scope["root_path"], scope["state"]) == ("", {"pool": 1})
    assert scope["subprotocols"] == ["chat", "super.chat"]
    assert (b"origin", b"https://a.example") in scope["headers"]
    assert scope["client"][0] == "127.0.0.1"
    assert set(scope["extensions"]) == {"deadlined", "websocket.http.response"}
    assert "method" not in scope


async def test_a_websocket_through_tls_has_its_scheme_and_echoes(autojump_clock: MockClock) -> None:
    told = Told()
    async with serving(handler(told), tls=True) as site:
        client = await peer(site)
        for message in ("a", b"b" * 100_000, "c" * 200_000):
            await client.say(message)
            assert await client.message() == message
        assert await client.close(3000, "so long") == (3000, "so long")
        assert await site.reason() is Reason.DONE
    assert told.scopes[0]["scheme"] == "wss"
    assert told.disconnect == (3000, "so long")


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("message", ["", "text \N{SNOWMAN}", b"", b"\x00\xff", "x" * 70_000, bytes(300_000)], ids=len)
async def test_messages_come_and_go_as_they_are(message: str | bytes, compressed: bool) -> None:
    told = Told()
    async with serving(handler(told)) as site:
        client = await peer(site, compressed=compressed)
        assert ("sec-websocket-extensions" in client.headers) is False
        for _ in range(3):
            await client.say(message)
            assert await client.message() == message
        await client.close()
    kind = "text" if isinstance(message, str) else "bytes"
    assert told.messages[0] == {"type": "websocket.receive", kind: message}


@pytest.mark.parametrize("on", [True, False])
async def test_compression_is_agreed_on_if_both_want_it(on: bool) -> None:
    async with serving(handler(Told()), ws_compression=on) as site:
        client = await site.connect()
        await client.send(UPGRADE + b"sec-websocket-extensions: permessage-deflate; client_max_window_bits\r\n\r\n")
        head = await client.receive()
        assert (b"sec-websocket-extensions: permessage-deflate" in head) is on


async def test_a_message_in_fragments_with_a_ping_between_them_is_one_message() -> None:
    told = Told()
    async with serving(handler(told)) as site:
        client = await peer(site)
        await client.send(TextMessage("one ", message_finished=False))
        await client.send(Ping(b"are you there"), TextMessage("two"))
        assert await client.pong() == b"are you there"
        assert await client.message() == "one two"


@pytest.mark.parametrize("kind", [bytearray, memoryview])
async def test_a_buffer_that_is_sent_is_copied(kind: Any) -> None:
    async def act(receive: Receive, send: Send) -> None:
        buffer = bytearray(b"before")
        await send({"type": "websocket.send", "bytes": kind(buffer)})
        buffer[:] = b"after!"

    async with serving(handler(after_accept(act))) as site:
        client = await peer(site)
        assert await client.message() == b"before"
        assert await client.closed() == (1000, "")


async def test_a_subprotocol_and_fields_are_sent() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send(
            {**ACCEPT, "subprotocol": scope["subprotocols"][1], "headers": [(b"x-a", b"1"), (b"set-cookie", b"c")]}
        )

    async with serving(handler(app)) as site:
        client = await stranger(site)
        await client.open("/", ["a", "b"])
        assert client.subprotocol == "b"
        assert client.headers["x-a"] == "1"
        assert "date" in client.headers
        assert await client.closed() == (1000, "")


@pytest.mark.parametrize(
    ("accept", "text"),
    [
        ({"subprotocol": "c"}, "has not offered the subprotocol 'c'"),
        ({"headers": [(b"Sec-WebSocket-Protocol", b"a")]}, "writes the field b'Sec-WebSocket-Protocol' itself"),
        ({"headers": [(b"connection", b"close")]}, "writes the field b'connection' itself"),
        ({"headers": [(b"x", b"a\r\nb: c")]}, "line end"),
        ({"headers": [(b"x y", b"a")]}, "invalid name"),
        ({"headers": [("x", "a")]}, "pairs of bytes"),
        ({"headers": [(b"x", 1)]}, "pairs of bytes"),
        ({"headers": 5}, "pairs of bytes"),
    ],
    ids=["subprotocol", "as-field", "framing", "line-end", "name", "text", "number", "no-list"],
)
async def test_an_accept_that_is_wrong_raises_and_can_be_repeated(accept: dict[str, Any], text: str) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        with pytest.raises(ResponseError, match=text):
            await send({**ACCEPT, **accept})
        await send(ACCEPT)

    async with serving(handler(app)) as site:
        client = await stranger(site)
        await client.open("/", ["a", "b"])
        assert await client.closed() == (1000, "")


# denial


@pytest.mark.usefixtures("parser")
async def test_a_close_instead_of_an_accept_is_a_403_and_the_connection_goes_on() -> None:
    seen: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await say(send, b"hello")
            return
        await receive()
        await send({"type": "websocket.close", "code": 4000})
        seen.append(await receive())

    async with serving(handler(app)) as site:
        client = await site.connect()
        assert (await client.get(HANDSHAKE)).status == 403
        assert (await client.get(LAST_GET)).body == b"hello"
        assert await site.reason() is Reason.DONE
        assert [record.status for record in site.records.requests] == [403, 200]
    assert seen == [{"type": "websocket.disconnect", "code": 1006, "reason": ""}]


async def test_a_denial_is_a_response_of_http() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.http.response.start", "status": 401, "headers": [(b"x-why", b"who")]})
        await send({"type": "websocket.http.response.body", "body": b"who are", "more_body": True})
        await send({"type": "websocket.http.response.body", "body": b" you?"})
        with pytest.raises(ResponseError):
            await send(ACCEPT)
        with pytest.raises(ResponseError):
            await send({"type": "websocket.close"})

    async with serving(handler(app)) as site:
        client = await stranger(site)
        denied = await client.ask()
        assert denied is not None
        assert (denied.status, denied.headers["x-why"], denied.body) == (401, "who", b"who are you?")


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (b"", 400),
        (b"sec-websocket-version: 13\r\nsec-websocket-key: AAAA\r\n", 400),
        (b"sec-websocket-version: 12\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n", 400),
        (b"sec-websocket-version: 13\r\n", 400),
    ],
    ids=["nothing", "short-key", "old-version", "no-key"],
)
async def test_a_request_that_is_no_handshake_is_refused_without_the_application(fields: bytes, status: int) -> None:
    told = Told()
    async with serving(handler(told)) as site:
        client = await site.connect()
        request = b"GET / HTTP/1.1\r\nhost: x\r\nupgrade: WebSocket\r\nconnection: keep-alive, Upgrade\r\n" + fields
        answer = await client.get(request + b"\r\n")
        assert (answer.status, answer.headers["sec-websocket-version"]) == (status, "13")
        # the connection is as good as before
        await client.send(HANDSHAKE)
        assert (await client.receive()).startswith(b"HTTP/1.1 101 ")
    assert len(told.scopes) == 1


@pytest.mark.parametrize(
    "request_",
    [
        HANDSHAKE.replace(b"connection: Upgrade\r\n", b""),
        HANDSHAKE.replace(b"websocket\r\n", b"h2c\r\n", 1),
        HANDSHAKE.replace(b"GET", b"POST", 1),
        HANDSHAKE.replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    ],
    ids=["not-of-this-connection", "h2c", "post", "http-1.0"],
)
@pytest.mark.usefixtures("parser")
async def test_what_does_not_ask_for_a_websocket_is_an_ordinary_request(request_: bytes) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await say(send, scope["type"].encode())

    async with serving(handler(app)) as site:
        client = await site.connect()
        assert (await client.get(request_)).body == b"http"


@pytest.mark.parametrize("body", [b"content-length: 3\r\n\r\nabc", b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n"])
@pytest.mark.usefixtures("parser")
async def test_a_handshake_with_a_body_is_refused_without_the_application(body: bytes) -> None:
    told = Told()
    async with serving(handler(told)) as site:
        client = await site.connect()
        assert (await client.get(UPGRADE + body)).status == 400
        # the body was discarded, and the connection is as good as before
        await client.send(UPGRADE + b"content-length: 0\r\n\r\n")
        assert (await client.receive()).startswith(b"HTTP/1.1 101 ")
    assert len(told.scopes) == 1


@pytest.mark.parametrize("names", [b"websocket, h2c", b"h2c\r\nupgrade: WebSocket", b"websocket\r\nupgrade: h2c"])
@pytest.mark.usefixtures("parser")
async def test_a_websocket_may_be_one_of_several_protocols_in_one_line_or_more(names: bytes) -> None:
    async with serving(handler(Told())) as site:
        client = await site.connect()
        await client.send(HANDSHAKE.replace(b"upgrade: websocket\r\n", b"upgrade: %b\r\n" % names))
        assert (await client.receive()).startswith(b"HTTP/1.1 101 ")


WITHOUT = """
import logging, sys
import trio
sys.modules["websockets"] = None
from tests.support.http import serving
from tests.support.websocket import HANDSHAKE, Told, handler

async def main():
    told = Told()
    async with serving(handler(told)) as site:
        client = await site.connect()
        for _ in range(2):
            assert (await client.get(HANDSHAKE)).status == 501
    assert told.scopes == []

logging.basicConfig(format="%(name)s: %(message)s")
trio.run(main)
"""


def test_without_the_library_an_upgrade_is_refused_and_the_log_names_the_extra_once() -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, cwd=ROOT, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("pip install 'deadlined[websockets]'") == 1
    assert ran.stderr.startswith("deadlined.asgi: GET /chat asks for a websocket")


# ends


async def test_the_clients_close_is_told_with_code_and_reason_after_the_messages_before_it(
    autojump_clock: MockClock,
) -> None:
    told = Told()
    told.echoes = False
    async with serving(handler(told)) as site:
        client = await peer(site)
        await client.send(TextMessage("a"), BytesMessage(b"b"))
        assert await client.close(4123, "no \N{SNOWMAN} more") == (4123, "no \N{SNOWMAN} more")
        await site.ended()
        await wait_all_tasks_blocked()
    assert [message.get("text", message.get("bytes")) for message in told.messages] == ["a", b"b", None]
    assert told.disconnect == (4123, "no \N{SNOWMAN} more")


async def test_the_applications_close_waits_for_the_clients_answer(autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    async def act(receive: Receive, send: Send) -> None:
        await send({"type": "websocket.close", "code": 4001, "reason": "enough"})
        seen.append(await receive())
        with pytest.raises(ResponseError, match="closed by the application"):
            await send({"type": "websocket.send", "text": "too late"})
        with pytest.raises(ResponseError, match="closed by the application"):
            await send({"type": "websocket.close"})

    async with serving(handler(after_accept(act))) as site:
        client = await peer(site)
        assert await client.closed() == (4001, "enough")
        assert await site.reason() is Reason.DONE
        (record,) = site.records.requests
    assert (record.status, record.reason) == (101, Reason.DONE)
    assert seen == [{"type": "websocket.disconnect", "code": 4001, "reason": "enough"}]


async def test_a_client_that_vanishes_is_a_1006() -> None:
    seen: list[Any] = []

    async def act(receive: Receive, send: Send) -> None:
        seen.extend([await receive() for _ in range(3)])
        seen.append("done")

    async with serving(handler(after_accept(act))) as site:
        client = await peer(site)
        client.client.reset()
        assert await site.reason() is Reason.CLIENT_RESET
        await wait_all_tasks_blocked()
    assert seen == [{"type": "websocket.disconnect", "code": 1006, "reason": ""}] * 3 + ["done"]


async def test_an_application_that_returns_closes_with_1000_and_needs_no_task_for_that(
    autojump_clock: MockClock,
) -> None:
    async def act(receive: Receive, send: Send) -> None:
        await send({"type": "websocket.send", "text": "bye"})

    async with serving(handler(after_accept(act)), only(ws_close=5)) as site:
        client = await peer(site, answers=False)
        assert await client.message() == "bye"
        await wait_all_tasks_blocked()
        assert site.server.statistics().background == 0
        assert await client.closed() == (1000, "")
        ended = await site.ended()
    assert ended.reason is Reason.CLOSE_TIMEOUT


async def test_an_application_that_raises_after_accept_closes_with_1011(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    async def act(receive: Receive, send: Send) -> None:
        await receive()
        raise ValueError("a mistake of the application")

    async with serving(handler(after_accept(act))) as site:
        client = await peer(site)
        await client.say("go")
        assert await client.closed() == (1011, "")
        assert await site.reason() is Reason.SERVER_ERROR
    (failure,) = failures(caplog)
    assert (failure.getMessage(), failure.levelno) == ("GET / failed", logging.ERROR)


async def test_an_application_that_raises_before_accept_is_a_500(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    async def act(receive: Receive, send: Send) -> None:
        raise ValueError("a mistake of the application")

    async with serving(handler(app_of(act))) as site:
        client = await stranger(site)
        denied = await client.ask()
        assert denied is not None
        assert denied.status == 500
        assert await site.reason() is Reason.SERVER_ERROR
    assert len(failures(caplog)) == 1


async def test_an_application_that_returns_before_accept_is_a_500(caplog: pytest.LogCaptureFixture) -> None:
    async def act(receive: Receive, send: Send) -> None:
        await receive()

    async with serving(handler(app_of(act))) as site:
        client = await stranger(site)
        denied = await client.ask()
        assert denied is not None
        assert denied.status == 500
    assert "before its response was complete" in str(failures(caplog)[0].exc_info)


async def test_an_application_that_never_accepts_ends_by_the_handlers_deadline(autojump_clock: MockClock) -> None:
    async def act(receive: Receive, send: Send) -> None:
        await trio.sleep_forever()

    async with serving(handler(app_of(act)), only(handler=7)) as site:
        client = await stranger(site)
        denied = await client.ask()
        assert denied is not None
        assert denied.status == 504
        assert (await site.ended()).reason is Reason.HANDLER_TIMEOUT


async def test_the_handlers_deadline_ends_with_the_accept(autojump_clock: MockClock) -> None:
    told = Told()
    async with serving(handler(told), only(handler=7)) as site:
        client = await peer(site)
        await trio.sleep(100)
        await client.say("still there")
        assert await client.message() == "still there"


@pytest.mark.parametrize("how", ["reset", "close"])
async def test_a_client_that_leaves_before_the_accept_is_told_to_a_receive(how: str, autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    async def act(receive: Receive, send: Send) -> None:
        seen.append(await receive())
        seen.append(await receive())
        with pytest.raises(OSError, match="gone"):
            await send(ACCEPT)

    async with serving(handler(app_of(act))) as site:
        client = await site.connect()
        await client.send(HANDSHAKE)
        await wait_all_tasks_blocked()
        client.reset() if how == "reset" else client.conn.close()
        ended = await site.ended()
        await wait_all_tasks_blocked()
    assert ended.reason is (Reason.CLIENT_RESET if how == "reset" else Reason.CLIENT_CLOSED)
    assert seen == [CONNECT, {"type": "websocket.disconnect", "code": 1006, "reason": ""}]


async def test_one_task_may_accept_while_others_receive(autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    async def act(receive: Receive, send: Send) -> None:
        await receive()

        async def listen() -> None:
            seen.append(await receive())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            nursery.start_soon(listen)
            await wait_all_tasks_blocked()
            await send(ACCEPT)
        await send({"type": "websocket.send", "text": "both"})

    async with serving(handler(app_of(act))) as site:
        client = await peer(site)
        await client.send(TextMessage("1"), TextMessage("2"))
        assert await client.message() == "both"
        assert await client.closed() == (1000, "")
    assert sorted(message["text"] for message in seen) == ["1", "2"]


WRONG_AFTER = [
    (ACCEPT, "accepted twice"),
    ({"type": "websocket.http.response.start", "status": 200}, "has no message"),
    ({"type": "http.response.start", "status": 200}, "has no message"),
    ({"type": "websocket.send"}, "needs `bytes`, or `text`"),
    ({"type": "websocket.send", "text": b"bytes"}, "needs `bytes`, or `text`"),
    ({"type": "websocket.send", "bytes": 3}, "must be bytes, not int"),
    ({"type": "websocket.close", "code": 1005}, "cannot be closed with the code 1005"),
    ({"type": "websocket.close", "code": 999}, "cannot be closed with the code 999"),
    ({"type": "websocket.close", "code": 5000}, "cannot be closed with the code 5000"),
    ({"type": "websocket.close", "code": "1000"}, "code of a close must be an int, not str"),
    ({"type": "websocket.close", "code": 1000.5}, "code of a close must be an int, not float"),
    ({"type": "websocket.close", "reason": 5}, "reason of a close must be a str, not int"),
    ({"type": "websocket.close", "reason": b"bye"}, "reason of a close must be a str, not bytes"),
    ({"type": "websocket.close", "code": 1000, "reason": "x" * 124}, "at most 123 bytes"),
    ({"type": "websocket.close", "code": 1000, "reason": "\N{SNOWMAN}" * 42}, "at most 123 bytes"),
]


@pytest.mark.parametrize(("wrong", "text"), WRONG_AFTER, ids=[str(i) for i in range(len(WRONG_AFTER))])
async def test_a_wrong_message_raises_and_harms_nothing(wrong: dict[str, Any], text: str) -> None:
    async def act(receive: Receive, send: Send) -> None:
        with pytest.raises(ResponseError, match=text):
            await send(wrong)
        await send({"type": "websocket.send", "text": "fine"})

    async with serving(handler(after_accept(act))) as site:
        client = await peer(site)
        assert await client.message() == "fine"
        assert await client.closed() == (1000, "")


@pytest.mark.parametrize("kind", ["websocket.send", "websocket.http.response.body", "http.response.start", "x"])
async def test_a_message_before_the_accept_raises(kind: str) -> None:
    async def act(receive: Receive, send: Send) -> None:
        with pytest.raises(ResponseError, match="not accepted"):
            await send({"type": kind, "text": "early"})
        await accepting(receive, send)

    async with serving(handler(app_of(act))) as site:
        client = await peer(site)
        assert await client.closed() == (1000, "")


async def test_a_text_that_is_no_unicode_raises_and_the_websocket_goes_on() -> None:
    async def act(receive: Receive, send: Send) -> None:
        with pytest.raises(UnicodeEncodeError):
            await send({"type": "websocket.send", "text": "\ud800"})
        await send({"type": "websocket.send", "text": "fine"})

    async with serving(handler(after_accept(act))) as site:
        client = await peer(site)
        assert await client.message() == "fine"


class WebSocketDisconnect(Exception):  # noqa: N818, as frameworks call it
    """What a framework makes of `websocket.disconnect`."""


@pytest.mark.parametrize(
    ("make", "logged"),
    [
        (WebSocketDisconnect, 0),
        (lambda: ExceptionGroup("", [WebSocketDisconnect(), ExceptionGroup("", [WebSocketDisconnect()])]), 0),
        (lambda: ExceptionGroup("", [WebSocketDisconnect(), ValueError()]), 1),
        (ValueError, 1),
    ],
    ids=["disconnect", "group", "mixed", "other"],
)
async def test_a_frameworks_disconnect_that_is_not_caught_is_no_failure(
    make: Callable[[], Exception], logged: int, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    async def act(receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "websocket.disconnect":
            continue
        raise make()

    async with serving(handler(after_accept(act))) as site:
        client = await peer(site)
        await client.close()
        await site.ended()
        await wait_all_tasks_blocked()
    assert len(failures(caplog)) == logged


async def test_a_frameworks_disconnect_while_the_client_is_there_is_a_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(receive: Receive, send: Send) -> None:
        raise WebSocketDisconnect

    async with serving(handler(after_accept(act))) as site:
        client = await peer(site)
        assert await client.closed() == (1011, "")
    assert len(failures(caplog)) == 1


def test_the_library_is_not_loaded_before_the_first_websocket() -> None:
    program = "import sys, deadlined.asgi, deadlined.cli; sys.exit('websockets' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
