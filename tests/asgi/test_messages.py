"""Receive and send: the application gets what the peer does, and an exception for what it does wrong itself."""

from __future__ import annotations

import re
from collections import UserDict
from collections.abc import Callable, Coroutine
from typing import Any

import h11
import pytest
import trio
from trio.testing import MockClock

from deadlined.asgi.handler import Message, Receive, Scope, Send
from deadlined.http import Disconnected, Reason
from tests.support.serving import CLOSING_GET, GET, failures, hello, say, serving, whole_body

pytestmark = pytest.mark.usefixtures("parser")

# sending


async def test_a_message_may_be_any_mapping() -> None:
    async def app(_: Scope, receive: Receive, send: Send) -> None:
        await send(UserDict({"type": "http.response.start", "status": 201}))
        await send(UserDict({"type": "http.response.body", "body": b"x"}))

    async with serving(app) as served:
        answer = await served.ask(GET)
    assert (answer.status, answer.body) == (201, b"x")


async def test_a_nursery_can_send() -> None:
    """What `send` returns is accepted wherever a coroutine is."""

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        for message in ({"type": "http.response.start", "status": 200}, {"type": "http.response.body", "body": b"x"}):
            sending: Any = send
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sending, message)

    async with serving(app) as served:
        assert (await served.ask(GET)).body == b"x"


async def test_a_send_that_need_not_wait_returns_a_coroutine_that_has_ended() -> None:
    done: list[Any] = []

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        done.append(send({"type": "http.response.start", "status": 200}))
        await send({"type": "http.response.body"})

    async with serving(app) as served:
        await served.ask(GET)
    (coroutine,) = done
    assert isinstance(coroutine, Coroutine)
    with pytest.raises(StopIteration):
        coroutine.send(None)
    with pytest.raises(KeyError):
        coroutine.throw(KeyError())
    coroutine.close()


# what may not be sent, and what may


async def start(send: Send, status: int = 200, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers or []})


async def no_start(send: Send) -> None:
    await send({"type": "http.response.body", "body": b"x"})


async def two_starts(send: Send) -> None:
    await start(send)
    await start(send)


async def unknown(send: Send) -> None:
    await send({"type": "http.response.poem"})


async def two_lines_in_a_header(send: Send) -> None:
    await start(send, headers=[(b"x", b"1\r\nset-cookie: y")])


async def number(send: Send) -> None:
    await start(send)
    await send({"type": "http.response.body", "body": 5})


async def text(send: Send) -> None:
    await start(send)
    await send({"type": "http.response.body", "body": "x"})


async def nothing(send: Send) -> None:
    await start(send)
    await send({"type": "http.response.body", "body": None})


async def informational(send: Send) -> None:
    await start(send, 101)


async def no_status(send: Send) -> None:
    await send({"type": "http.response.start"})


async def a_status_as_text(send: Send) -> None:
    await send({"type": "http.response.start", "status": "200"})


async def a_fraction_as_status(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200.0})
    await send({"type": "http.response.body", "body": b"x"})


def with_headers(headers: object, name: str) -> Callable[[Send], Coroutine[Any, Any, None]]:
    async def mistake(send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    mistake.__name__ = name
    return mistake


async def too_long(send: Send) -> None:
    await start(send, headers=[(b"content-length", b"1")])
    await send({"type": "http.response.body", "body": b"xx"})


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (no_start, "before the response was started"),
        (two_starts, "started twice"),
        (unknown, r"no message 'http\.response\.poem'"),
        (two_lines_in_a_header, "header field"),
        (informational, "from 200 to 999"),
        (no_status, "must be an int, not NoneType"),
        (a_status_as_text, "must be an int, not str"),
        (a_fraction_as_status, "must be an int, not float"),
        (with_headers([("x", "1")], "text_in_headers"), "pairs of bytes"),
        (with_headers([(b"x", 1)], "a_number_in_headers"), "pairs of bytes"),
        (with_headers([(b"content-length", 1)], "a_number_as_length"), "pairs of bytes"),
        (with_headers([(b"connection", "close")], "text_in_a_field_of_the_server"), "pairs of bytes"),
        (with_headers([(b"x", b"1", b"2")], "three_in_headers"), "pairs of bytes"),
        (with_headers({b"x": b"1"}, "a_dictionary_of_headers"), "pairs of bytes"),
        (with_headers(None, "headers_that_are_none"), "pairs of bytes"),
        (too_long, "longer than its Content-Length"),
        (number, "must be bytes, not int"),
        (text, "must be bytes, not str"),
        (nothing, "must be bytes, not NoneType"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
async def test_a_mistake_is_raised_in_the_application_and_answered_500(
    mistake: object, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    raised: list[BaseException] = []

    async def app(_: Scope, __: Receive, send: Send) -> None:
        assert callable(mistake)
        try:
            await mistake(send)
        except RuntimeError as error:
            raised.append(error)
            raise

    async with serving(app) as served:
        answer = await served.ask(GET)
        assert (await served.ended()).reason is Reason.SERVER_ERROR
    assert answer.status == 500
    assert re.search(says, str(raised[0]))
    assert len(failures(caplog)) == 1


async def test_a_body_after_the_end_is_raised_in_the_application_and_harms_no_response() -> None:
    async def app(_: Scope, __: Receive, send: Send) -> None:
        await say(send, b"done")
        with pytest.raises(RuntimeError, match="after the response was complete"):
            await send({"type": "http.response.body", "body": b"more"})

    async with serving(app) as served, served.client() as client:
        assert (await client.ask(GET)).body == b"done"
        assert (await client.ask(GET)).body == b"done"


async def test_an_application_that_returns_without_an_answer_is_500(caplog: pytest.LogCaptureFixture) -> None:
    async def app(_: Scope, __: Receive, ___: Send) -> None:
        await trio.lowlevel.checkpoint()

    async with serving(app) as served:
        assert (await served.ask(GET)).status == 500
    assert "before its response was complete" in caplog.text


async def test_going_on_sending_after_the_client_has_left_is_an_oserror() -> None:
    """A whole response is not: it may have been made before the application could know."""
    raised: list[OSError] = []

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        await whole_body(receive)
        assert (await receive())["type"] == "http.disconnect"
        await say(send, b"too late")
        try:
            for _times in range(32):
                await send({"type": "http.response.body", "body": b"later", "more_body": True})
        except OSError as error:
            raised.append(error)
            told.set()
            raise

    told = trio.Event()
    async with serving(app) as served:
        async with served.client() as client:
            await client.send(GET)
        assert (await served.ended()).reason is Reason.CLIENT_CLOSED
        await told.wait()
    assert [type(error) for error in raised] == [Disconnected]


async def test_streaming_to_a_client_that_has_left_ends() -> None:
    """By an OSError, or by the cancellation if that is first."""
    raised: list[BaseException] = []

    async def app(_: Scope, __: Receive, send: Send) -> None:
        await start(send)
        try:
            while True:
                await send({"type": "http.response.body", "body": bytes(65536), "more_body": True})
        except (OSError, trio.Cancelled) as error:
            raised.append(error)
            raise

    async with serving(app) as served:
        async with served.client() as client:
            await client.send(GET)
            await client.receive()
        assert (await served.ended()).reason is Reason.CLIENT_RESET
    assert len(raised) == 1


async def test_a_response_in_pieces_arrives_piece_by_piece() -> None:
    taken = trio.Event()

    async def app(_: Scope, __: Receive, send: Send) -> None:
        await start(send)
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await taken.wait()
        await send({"type": "http.response.body", "body": b"second", "more_body": True})
        await send({"type": "http.response.body"})

    async with serving(app) as served, served.client() as client:
        await client.send(GET)
        assert (await client.receive()).endswith(b"\r\n\r\n5\r\nfirst\r\n")
        taken.set()
        rest = await client.receive()
        while not rest.endswith(b"0\r\n\r\n"):
            rest += await client.receive()
        assert rest == b"6\r\nsecond\r\n0\r\n\r\n"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("more", [False, True])
async def test_a_body_may_be_any_buffer_of_bytes(kind: Callable[[bytes], object], more: bool) -> None:
    async def app(_: Scope, __: Receive, send: Send) -> None:
        await start(send)
        await send({"type": "http.response.body", "body": kind(b"hello"), "more_body": more})
        if more:
            await send({"type": "http.response.body", "body": kind(b"")})

    async with serving(app) as served, served.client() as client:
        for _ in range(2):
            assert (await client.ask(GET)).body == b"hello"
        assert (await client.ask(b"GET / HTTP/1.0\r\n\r\n")).body == b"hello"


@pytest.mark.parametrize("view", [memoryview(b"h.e.l.l.o.")[::2], memoryview(b"olleh")[::-1]])
async def test_a_view_need_not_be_contiguous(view: memoryview) -> None:
    async def app(_: Scope, __: Receive, send: Send) -> None:
        await start(send)
        await send({"type": "http.response.body", "body": view})

    async with serving(app) as served:
        assert (await served.ask(GET)).body == b"hello"


async def test_a_buffer_may_be_filled_anew_while_its_bytes_are_sent() -> None:
    size = 8 * 1024 * 1024

    async def app(_: Scope, __: Receive, send: Send) -> None:
        buffer = bytearray(b"a" * size)
        await start(send, headers=[(b"content-length", b"%d" % size)])
        sending = send({"type": "http.response.body", "body": buffer})
        buffer[:] = b"b" * size
        await sending

    async with serving(app) as served:
        assert (await served.ask(GET)).body == b"a" * size


async def test_head_is_answered_without_the_body_and_the_connection_goes_on() -> None:
    async with serving(hello) as served, served.client() as client:
        answer = await client.ask(b"HEAD / HTTP/1.1\r\nhost: a\r\n\r\n")
        assert (answer.status, answer.headers[b"content-length"], answer.body) == (200, b"5", b"")
        assert (await client.ask(GET)).body == b"hello"


@pytest.mark.parametrize("method", [b"head", b"Head", b"HEAd"])
async def test_head_in_small_letters_is_refused_and_the_connection_goes_on(method: bytes) -> None:
    """An application would be told HEAD, and send no body, which a proxy in front would wait for."""
    async with serving(hello) as served, served.client() as client:
        answer = await client.ask(method + b" / HTTP/1.1\r\nhost: a\r\n\r\n")
        assert (answer.status, answer.headers[b"content-type"]) == (501, b"application/problem+json")
        assert b"HEAD is written in capitals" in answer.body
        assert (await client.ask(GET)).body == b"hello"


async def test_headers_may_be_any_iterable_and_may_be_left_out() -> None:
    async def app(scope: Scope, __: Receive, send: Send) -> None:
        message: Message = {"type": "http.response.start", "status": 202}
        if scope["path"] == "/given":
            message["headers"] = iter([[b"X-A", b"1"]])
        await send(message)
        await send({"type": "http.response.body"})

    async with serving(app) as served:
        assert (await served.ask(GET)).status == 202
        assert (await served.ask(b"GET /given HTTP/1.1\r\nhost: a\r\n\r\n")).headers[b"x-a"] == b"1"


# an application that fails


async def test_an_application_that_fails_before_its_head_is_500_and_logged_once(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    async def app(_: Scope, __: Receive, send: Send) -> None:
        await start(send)
        raise LookupError("lost")

    async with serving(app) as served, served.client() as client:
        answer = await client.ask(GET)
        assert answer.status == 500
        assert b"lost" not in answer.body
        assert await client.at_end()
        assert (await served.ended()).reason is Reason.SERVER_ERROR
    (record,) = failures(caplog)
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], LookupError)
    assert record.getMessage() == "GET / failed"


async def test_an_application_that_fails_within_its_body_cuts_it_short(caplog: pytest.LogCaptureFixture) -> None:
    async def app(_: Scope, __: Receive, send: Send) -> None:
        await start(send)
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise LookupError("lost")

    async with serving(app) as served:
        with pytest.raises((trio.BrokenResourceError, h11.RemoteProtocolError)):
            await served.ask(CLOSING_GET)
        assert (await served.ended()).reason is Reason.SERVER_ERROR
    assert len(failures(caplog)) == 1


async def test_an_application_that_fails_after_its_response_has_answered(caplog: pytest.LogCaptureFixture) -> None:
    async def app(_: Scope, __: Receive, send: Send) -> None:
        await say(send, b"done")
        raise LookupError("lost")

    async with serving(app) as served:
        assert (await served.ask(GET)).body == b"done"
        await served.ended()
    assert len(failures(caplog)) == 1


async def test_one_failure_leaves_the_other_connections_alone() -> None:
    async def app(scope: Scope, __: Receive, send: Send) -> None:
        if scope["path"] == "/bad":
            raise LookupError("lost")
        await say(send, b"good")

    async with serving(app) as served, served.client() as client:
        assert (await client.ask(GET)).body == b"good"
        assert (await served.ask(b"GET /bad HTTP/1.1\r\nhost: a\r\n\r\n")).status == 500
        assert (await client.ask(GET)).body == b"good"


async def test_a_slow_application_has_all_the_time_by_default(autojump_clock: MockClock) -> None:
    async def app(_: Scope, __: Receive, send: Send) -> None:
        await trio.sleep(86400)
        await say(send, b"a day later")

    async with serving(app) as served:
        assert (await served.ask(GET)).body == b"a day later"
