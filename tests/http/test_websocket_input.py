"""What a client may send to a websocket that is wrong, too large, too much, or cut: one close, one reason, nothing
left, and the next client is served."""

from __future__ import annotations

import itertools
import os
import struct
import sys
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked
from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory

from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.http import Limits, Reason
from deadlined.http.wire.frames import MOST_PIECES
from deadlined.runtime import current_host
from tests.support.http import Client, Site, only, serving
from tests.support.websocket import (
    BINARY,
    CLOSE,
    CONT,
    HANDSHAKE,
    MASK,
    PING,
    PONG,
    TEXT,
    UPGRADE,
    Told,
    accepting,
    all_ended,
    close_frame,
    closing,
    deflated,
    frame,
    handler,
    peer,
    raw,
)

KIB = 1024
MIB = 1024 * KIB

SNOW = "\N{SNOWMAN}".encode()


@asynccontextmanager
async def site_of(told: Any, limits: Limits | None = None) -> AsyncIterator[Site]:
    """Serve `told`; afterwards the next client is served, and no timer or descriptor of a websocket is left."""
    async with serving(handler(told), only(ws_close=5, write_grace=10), limits) as site:
        yield site
        fresh = await peer(site)
        await fresh.close()
        site.hang_up()
        await all_ended(site)
        poller = current_host().statistics().poller
        assert poller.timers.stored == poller.timers.zombies
        assert poller.descriptors == 1
        assert site.server.statistics().reasons[Reason.SERVER_ERROR] == 0


INVALID: dict[str, tuple[bytes, int]] = {
    "unmasked": (frame(TEXT, b"a", mask=b""), 1002),
    "rsv1": (frame(TEXT, b"a", rsv=4), 1002),
    "rsv2": (frame(TEXT, b"a", rsv=2), 1002),
    "rsv3": (frame(BINARY, b"a", rsv=1), 1002),
    "rsv-of-a-ping": (frame(PING, b"a", rsv=4), 1002),
    **{f"opcode-{opcode}": (frame(opcode, b"a"), 1002) for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)},
    "continuation-of-nothing": (frame(CONT, b"a"), 1002),
    "message-in-a-message": (frame(TEXT, b"a", fin=False) + frame(TEXT, b"b"), 1002),
    "long-ping": (frame(PING, b"x" * 126), 1002),
    "long-pong": (frame(PONG, b"x" * 126), 1002),
    "long-close": (frame(CLOSE, b"\x03\xe8" + b"x" * 124), 1002),
    "ping-in-pieces": (frame(PING, b"a", fin=False), 1002),
    "close-in-pieces": (frame(CLOSE, b"\x03\xe8", fin=False), 1002),
    "close-of-one-byte": (frame(CLOSE, b"\x03"), 1002),
    "close-in-a-message": (frame(TEXT, b"a", fin=False) + closing(1000), 1002),
    "close-reason-no-utf8": (frame(CLOSE, b"\x03\xe8\xff"), 1007),
    **{f"close-{code}": (closing(code), 1002) for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535)},
    "text-no-utf8": (frame(TEXT, b"\xff"), 1007),
    "text-cut-in-a-letter": (frame(TEXT, SNOW[:2]), 1007),
    "text-surrogate": (frame(TEXT, b"\xed\xa0\x80"), 1007),
    "text-overlong": (frame(TEXT, b"\xc0\xaf"), 1007),
    "text-no-utf8-in-pieces": (frame(TEXT, SNOW[:2], fin=False) + frame(CONT, b"x"), 1007),
    "text-no-utf8-before-its-end": (frame(TEXT, b"\xce\xba\xff", fin=False), 1007),
    "length-2^63": (frame(BINARY, b"", length=1 << 63), 1009),
    "length-2^64-1": (frame(BINARY, b"", length=(1 << 64) - 1), 1009),
    "length-17-MiB": (frame(BINARY, b"", length=17 * MIB), 1009),
}


@pytest.mark.parametrize(("bad", "code"), INVALID.values(), ids=INVALID)
async def test_an_invalid_frame_is_closed_with_its_code(bad: bytes, code: int, autojump_clock: MockClock) -> None:
    told = Told()
    async with site_of(told) as site:
        client = await raw(site)
        await client.send(frame(TEXT, b"before") + bad)
        await wait_all_tasks_blocked()
        await client.send_what_is_taken(frame(TEXT, b"after"))
        # the echo of the first message, then the close
        assert (await close_frame(client))[0] == code
        ended = await site.ended()
        assert ended.reason is (Reason.MESSAGE_TOO_LARGE if code == 1009 else Reason.PROTOCOL_ERROR)
        assert told.messages[0] == {"type": "websocket.receive", "text": "before"}
        assert all(message.get("text") != "after" for message in told.messages)


@pytest.mark.parametrize("name", INVALID)
async def test_an_invalid_frame_is_noticed_byte_by_byte(name: str, autojump_clock: MockClock) -> None:
    bad, code = INVALID[name]
    told = Told()
    async with site_of(told) as site:
        client = await raw(site)
        for byte in bad:
            await client.send_what_is_taken(bytes([byte]))
            await wait_all_tasks_blocked()
        assert (await close_frame(client))[0] == code
        await wait_all_tasks_blocked()
        assert told.disconnect[0] == code


@pytest.mark.parametrize("code", [1000, 1001, 1002, 1003, 1007, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999])
async def test_every_code_that_a_client_may_close_with_is_answered(code: int, autojump_clock: MockClock) -> None:
    told = Told()
    async with site_of(told) as site:
        client = await raw(site)
        await client.send(closing(code, "why"))
        assert await close_frame(client) == (code, "why")
        assert await site.reason() is Reason.DONE
        await wait_all_tasks_blocked()
        assert told.disconnect == (code, "why")


async def test_a_close_without_a_code_is_a_1005(autojump_clock: MockClock) -> None:
    told = Told()
    async with site_of(told) as site:
        client = await raw(site)
        await client.send(frame(CLOSE))
        assert await close_frame(client) == (1005, "")
        await site.ended()
        await wait_all_tasks_blocked()
        assert told.disconnect == (1005, "")


# sizes


@pytest.mark.parametrize("pieces", [1, 2, 10])
@pytest.mark.parametrize("compressed", [False, True])
async def test_a_message_of_the_greatest_size_passes_and_one_byte_more_does_not(
    compressed: bool, pieces: int, autojump_clock: MockClock
) -> None:
    told = Told()
    told.echoes = False
    async with site_of(told, Limits(max_message=1000)) as site:
        for size in (1000, 1001):
            client = await (deflating(site) if compressed else raw(site))
            message = os.urandom(size - 500) + bytes(500)
            await client.send(in_pieces(message, pieces, compressed))
            await wait_all_tasks_blocked()
            assert (told.messages[-1:] == [{"type": "websocket.receive", "bytes": message}]) == (size == 1000)
        assert (await close_frame(client))[0] == 1009
        assert await site.reason() is Reason.MESSAGE_TOO_LARGE


async def test_a_frame_may_be_limited_apart_from_its_message(autojump_clock: MockClock) -> None:
    told = Told()
    async with site_of(told, Limits(max_frame=100)) as site:
        client = await peer(site)
        await client.client.send(in_pieces(b"x" * 1000, 10, False))
        assert await client.message() == b"x" * 1000
        await client.client.send(frame(BINARY, b"x" * 101))
        assert (await client.closed())[0] == 1009


@pytest.mark.parametrize("limits", [Limits(max_message=100), Limits(max_frame=98)])
@pytest.mark.parametrize("opcode", [PING, PONG])
async def test_a_control_frame_in_a_message_is_no_part_of_it(
    opcode: int, limits: Limits, autojump_clock: MockClock
) -> None:
    told = Told()
    async with site_of(told, limits) as site:
        client = await raw(site)
        control = frame(opcode, b"c" * 125)
        await client.send(frame(TEXT, b"x" * 98, fin=False) + control + frame(CONT, b"yy"))
        await wait_all_tasks_blocked()
        assert told.messages == [{"type": "websocket.receive", "text": "x" * 98 + "yy"}]


@pytest.mark.parametrize("limits", [Limits(max_message=10), Limits(max_frame=10)])
async def test_a_control_frame_has_a_limit_of_its_own(limits: Limits, autojump_clock: MockClock) -> None:
    told = Told()
    async with site_of(told, limits) as site:
        client = await raw(site)
        await client.send(frame(PING, b"p" * 125) + closing(1000, "r" * 123))
        assert await close_frame(client) == (1000, "r" * 123)
        assert await site.reason() is Reason.DONE
        await wait_all_tasks_blocked()
        assert told.disconnect == (1000, "r" * 123)
        # a message behind it is limited as before
        client = await raw(site)
        await client.send(frame(PING, b"p" * 125) + frame(TEXT, b"x" * 11))
        assert (await close_frame(client))[0] == 1009


def in_pieces(message: bytes, pieces: int, compressed: bool) -> bytes:
    data = deflated(message) if compressed else message
    size = -(-len(data) // pieces)
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    frames = [
        frame(BINARY if i == 0 else CONT, part, fin=i == len(parts) - 1, rsv=4 if compressed and i == 0 else 0)
        for i, part in enumerate(parts)
    ]
    return b"".join(frames)


async def deflating(site: Site) -> Client:
    """Return a client that has agreed on permessage-deflate, and writes its own frames."""
    client = await site.connect()
    await client.send(UPGRADE + b"sec-websocket-extensions: permessage-deflate; client_max_window_bits=12\r\n\r\n")
    head = b""
    while b"\r\n\r\n" not in head:
        head += await client.receive()
    assert b"permessage-deflate" in head
    return client


def bomb(size: int) -> bytes:
    """Return the payload of a compressed message that inflates to `size` zeros."""
    return deflated(bytes(size))


@pytest.mark.parametrize("pieces", [1, 3])
async def test_a_deflate_bomb_is_cut_before_it_is_inflated(pieces: int, autojump_clock: MockClock) -> None:
    payload = bomb(64 * MIB)
    assert len(payload) < MIB // 8
    size = -(-len(payload) // pieces)
    parts = [payload[at : at + size] for at in range(0, len(payload), size)]
    told = Told()
    async with site_of(told, Limits(max_message=MIB)) as site:
        client = await deflating(site)
        frames = [
            frame(BINARY if i == 0 else CONT, part, fin=i == pieces - 1, rsv=0 if i else 4, mask=bytes(4))
            for i, part in enumerate(parts)
        ]
        tracemalloc.start()
        for each in frames:
            await client.send_what_is_taken(each)
        assert (await close_frame(client))[0] == 1009
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # as far as it may go, and joined; what was read, and what the test itself holds
        assert peak < 4 * MIB
        assert await site.reason() is Reason.MESSAGE_TOO_LARGE


async def test_bad_deflate_is_a_protocol_error(autojump_clock: MockClock) -> None:
    async with site_of(Told()) as site:
        client = await deflating(site)
        await client.send(frame(BINARY, b"\xff\xff\xff\xff", rsv=4))
        assert (await close_frame(client))[0] == 1002


async def test_a_window_that_zlib_does_not_have_is_declined(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unwarned(*_: object) -> None:
        raise ValueError("Invalid initialization option")

    # as websockets does below 17.2
    monkeypatch.setattr(ServerPerMessageDeflateFactory, "process_request_params", unwarned)
    async with site_of(Told()) as site:
        client = await site.connect()
        await client.send(UPGRADE + b"sec-websocket-extensions: permessage-deflate; server_max_window_bits=8\r\n\r\n")
        head = await client.receive()
        assert head.startswith(b"HTTP/1.1 101 ")
        assert b"sec-websocket-extensions" not in head


@pytest.mark.parametrize("piece", [b"", b"x"], ids=["empty", "one-byte"])
async def test_the_pieces_of_a_message_are_bounded_in_number_and_not_kept(
    piece: bytes, autojump_clock: MockClock
) -> None:
    told = Told()
    async with site_of(told) as site:
        client = await raw(site)
        await client.send(frame(BINARY, b"", fin=False))
        many = frame(CONT, piece, fin=False) * 4096
        # counted and not traced, which would take five times as long
        before = sys.getallocatedblocks()
        for _ in range(MOST_PIECES // 4096 - 1):
            await client.send_what_is_taken(many)
            await wait_all_tasks_blocked()
        assert sys.getallocatedblocks() - before < MOST_PIECES // 8
        await client.send_what_is_taken(many)
        assert (await close_frame(client))[0] == 1008
        assert await site.reason() is Reason.PROTOCOL_ERROR


# floods


async def test_a_flood_of_pings_is_answered_and_the_next_client_is_served_meanwhile() -> None:
    async with site_of(Told()) as site:
        client, other = await raw(site), await peer(site)

        async def flood() -> None:
            for _ in range(50):
                await client.send(frame(PING, b"12345678") * 500)

        async def read() -> None:
            answers = 0
            while answers < 25_000 * 10:
                answers += len(await client.receive())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood)
            nursery.start_soon(read)
            for _ in range(10):
                await other.say("hello")
                assert await other.message() == "hello"


async def test_a_flood_of_messages_is_not_read_while_the_application_does_not_receive(
    autojump_clock: MockClock,
) -> None:
    go = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await accepting(receive, send)
        await go.wait()
        for number in range(2000):
            assert (await receive())["text"] == f"{number:0200}"
        await send({"type": "websocket.send", "text": "all"})
        await receive()

    async with serving(handler(app), only(ws_close=5)) as site:
        client = await peer(site)

        async def flood() -> None:
            await client.client.send(b"".join(frame(TEXT, b"%0200d" % number) for number in range(2000)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood)
            await wait_all_tasks_blocked()
            (connection,) = site.server._connections
            upgraded: Any = connection._upgraded
            # one read more than the bound
            assert 64 <= len(upgraded._inbox) <= 64 + 65536 // 200
            go.set()
            assert await client.message() == "all"


# a client that goes


STEPS = {
    "in-the-head": b"",
    "in-the-length": frame(TEXT, b"x" * 200)[:3],
    "in-the-mask": frame(TEXT, b"x" * 10)[:4],
    "in-the-payload": frame(TEXT, b"x" * 200)[:100],
    "between-pieces": frame(TEXT, b"a", fin=False),
    "after-a-message": frame(TEXT, b"a"),
}


WAYS = ["half-close", "reset", "close"]


def go_away(client: Client, how: str) -> None:
    if how == "half-close":
        client.conn.shutdown_write()
    elif how == "reset":
        client.reset()
    else:
        client.conn.close()


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("sent", STEPS.values(), ids=STEPS)
async def test_a_client_that_goes_at_any_step(sent: bytes, how: str, autojump_clock: MockClock) -> None:
    told = Told()
    async with site_of(told) as site:
        client = await raw(site)
        await client.send(sent)
        await wait_all_tasks_blocked()
        go_away(client, how)
        ended = await site.ended()
        await wait_all_tasks_blocked()
        assert ended.reason in (Reason.CLIENT_CLOSED, Reason.CLIENT_RESET)
        assert told.disconnect == (1006, "")


@pytest.mark.parametrize("how", WAYS)
async def test_a_client_that_goes_in_the_closing_handshake(how: str, autojump_clock: MockClock) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await accepting(receive, send)
        await receive()
        await send({"type": "websocket.close", "code": 4000})

    async with serving(handler(app), only(ws_close=5)) as site:
        client = await raw(site)
        await client.send(frame(TEXT, b"go"))
        await wait_all_tasks_blocked()
        go_away(client, how)
        ended = await site.ended()
        assert ended.reason in (Reason.DONE, Reason.CLIENT_RESET)
        assert ended.elapsed < 1


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("how", ["half-close", "close"])
async def test_a_slow_application_receives_all_that_a_client_has_sent_before_it_left(
    how: str, asks: bool, autojump_clock: MockClock
) -> None:
    """A ping, or the answer to one, would make the system of a client that has closed its socket reset the
    connection."""
    received: list[Any] = []
    ended = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await accepting(receive, send)
        while (message := await receive())["type"] != "websocket.disconnect":
            received.append(message["text"])
            await trio.sleep(0.1)
        received.append((message["code"], message["reason"]))
        ended.set()

    messages = [f"{number:0100}" for number in range(1500)]
    # the application has as long as it likes to receive what was read
    async with serving(handler(app), only(ws_ping=20, ws_pong=20), cancel_on_disconnect=False) as site:
        client = await raw(site)
        # the server reads three times, the second and third time after the client has left; the ping is in the second
        sent = [frame(TEXT, message.encode()) for message in messages]
        sent[1100:1100] = [frame(PING, b"x")] * asks
        await client.send(b"".join(sent) + closing(1000, "bye"))
        go_away(client, how)
        with trio.fail_after(1000):
            await ended.wait()
        assert received == [*messages, (1000, "bye")]
        assert await site.reason() is Reason.DONE


async def test_an_application_that_stops_receiving_does_not_keep_a_client_that_has_left(
    autojump_clock: MockClock,
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await accepting(receive, send)
        for _ in range(10):
            await trio.sleep(5)
            await receive()
        await trio.sleep_forever()

    async with serving(handler(app), only(ws_ping=20, ws_pong=20)) as site:
        client = await raw(site)
        await client.send(frame(TEXT, b"x" * 100) * 1100)
        client.conn.shutdown_write()
        ended = await site.ended()
        assert ended.reason is Reason.CLIENT_CLOSED
        # at the second look after the last message, which was received at 50
        assert ended.elapsed == pytest.approx(80, abs=0.1)


async def test_what_comes_with_the_request_belongs_to_the_websocket(autojump_clock: MockClock) -> None:
    told = Told()
    async with site_of(told) as site:
        client = await site.connect()
        await client.send(HANDSHAKE + frame(TEXT, b"early") + frame(TEXT, b"bird")[:4])
        await wait_all_tasks_blocked()
        await client.send(frame(TEXT, b"bird")[4:] + closing(1000))
        await site.ended()
        await wait_all_tasks_blocked()
    assert [message.get("text") for message in told.messages[:2]] == ["early", "bird"]


# any segmentation

FRAMES = st.lists(
    st.one_of(
        st.tuples(st.just(TEXT), st.text(max_size=300)),
        st.tuples(st.just(BINARY), st.binary(max_size=300)),
        st.tuples(st.just(PING), st.binary(max_size=125)),
        st.tuples(st.just(PONG), st.binary(max_size=125)),
    ),
    max_size=8,
)


@settings(max_examples=25)
@given(frames=FRAMES, cuts=st.lists(st.integers(1, 400), max_size=10), fragments=st.integers(1, 4))
def test_no_segmentation_changes_what_is_received(
    frames: list[tuple[int, Any]], cuts: list[int], fragments: int
) -> None:
    sent = b""
    expected = []
    pongs = b""
    for opcode, content in frames:
        payload = content.encode() if isinstance(content, str) else content
        if opcode in (PING, PONG):
            sent += frame(opcode, payload)
            if opcode == PING:
                pongs += frame(PONG, payload, mask=b"")
            continue
        expected.append(content)
        size = len(payload) // fragments + 1
        parts = [payload[at : at + size] for at in range(0, len(payload), size)] or [b""]
        for i, part in enumerate(parts):
            sent += frame(CONT if i else opcode, part, fin=i == len(parts) - 1)
    received: list[Any] = []
    answers = bytearray()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await accepting(receive, send)
        while (message := await receive())["type"] != "websocket.disconnect":
            received.append(message["text"] if "text" in message else message["bytes"])

    async def main() -> None:
        async with serving(handler(app)) as site:
            client = await raw(site)
            at = 0
            for cut in itertools.chain(cuts, [len(sent)]):
                if at < len(sent):
                    await client.send(sent[at : at + cut])
                    await wait_all_tasks_blocked()
                at += cut
            await client.send(closing(1000))
            answers.extend(await client.rest())
            await site.ended()
            await wait_all_tasks_blocked()

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert received == expected
    assert bytes(answers) == pongs + b"\x88\x02\x03\xe8"


def test_the_frames_of_these_tests_are_frames() -> None:
    assert frame(TEXT, b"Hello", mask=b"\x37\xfa\x21\x3d").hex() == "818537fa213d7f9f4d5158"
    assert frame(PING, b"", mask=b"") == b"\x89\x00"
    assert frame(BINARY, bytes(300), mask=MASK)[:4] == b"\x82\xfe" + struct.pack("!H", 300)
