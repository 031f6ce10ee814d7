"""A site of plain ASGI and the shop behind it: the same answers are expected of every server."""

# ruff: noqa: ASYNC110, as people write it

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import anyio

from tests.applications.sites.fastapi_site import app as shop

Message = Any


async def respond(send: Any, body: bytes, *headers: tuple[bytes, bytes], status: int = 200) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})


async def read(receive: Any) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body)


def told(value: Any) -> Any:
    """Return a value as JSON that keeps what is bytes, and what is a tuple, apart."""
    if isinstance(value, bytes):
        return {"bytes": value.decode("latin-1")}
    if isinstance(value, dict):
        return {key: told(each) for key, each in value.items()}
    if isinstance(value, list):
        return [told(each) for each in value]
    if isinstance(value, tuple):
        return {"tuple": [told(each) for each in value]}
    return value if isinstance(value, (str, int, float, type(None))) else {type(value).__name__: ""}


async def scope_of(scope: Any, receive: Any, send: Any) -> None:
    body = await read(receive)
    seen = {"scope": told({**scope, "headers": list(scope["headers"])}), "body": told(body)}
    seen["types"] = {key: type(value).__name__ for key, value in scope.items()}
    await respond(send, json.dumps(seen).encode(), (b"content-type", b"application/json"))


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body = await read(receive)
    await respond(send, body, (b"content-length", b"%d" % len(body)))


async def messages(_: Any, receive: Any, send: Any) -> None:
    """Answer with the messages of a whole body."""
    seen: list[Message] = []
    while not seen or seen[-1].get("more_body"):
        seen.append(await receive())
    kinds = {message["type"] for message in seen}
    joined = b"".join(message["body"] for message in seen)
    keys = sorted({key for message in seen for key in message})
    await respond(send, json.dumps([sorted(kinds), keys, len(joined)]).encode())


async def unread(_: Any, __: Any, send: Any) -> None:
    await respond(send, b"not read")


async def big(_: Any, __: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5000000")]})
    for number in range(50):
        await send({"type": "http.response.body", "body": bytes([number]) * 100_000, "more_body": number < 49})


async def pieces(_: Any, __: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for number in range(20):
        await send({"type": "http.response.body", "body": b"piece %d " % number, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def headers(_: Any, __: Any, send: Any) -> None:
    repeated = [(b"set-cookie", b"a=1"), (b"X-Mixed-Case", b"Kept"), (b"set-cookie", b"b=2; Path=/"), (b"x-empty", b"")]
    await respond(send, b"", *repeated, (b"x-latin", "é".encode("latin-1")), (b"content-length", b"0"), status=201)


async def no_content(_: Any, __: Any, send: Any) -> None:
    await respond(send, b"", status=204)


async def not_modified(_: Any, __: Any, send: Any) -> None:
    await respond(send, b"", (b"etag", b'"x"'), status=304)


async def odd_status(_: Any, __: Any, send: Any) -> None:
    await respond(send, b"odd", (b"content-length", b"3"), status=499)


async def closing(_: Any, __: Any, send: Any) -> None:
    await respond(send, b"last", (b"connection", b"close"), (b"content-length", b"4"))


async def tuples(_: Any, __: Any, send: Any) -> None:
    """Leave out all that may be left out."""
    await send({"type": "http.response.start", "status": 200, "headers": (item for item in [[b"x-list", b"1"]])})
    await send({"type": "http.response.body"})


async def fail(*_: Any) -> None:
    raise LookupError("meant to fail")


async def fail_after_start(_: Any, __: Any, send: Any) -> None:
    """Fail when nothing but the head was given to the server."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    raise LookupError("meant to fail")


async def fail_midway(_: Any, __: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"abc", "more_body": True})
    raise LookupError("meant to fail")


async def silent(*_: Any) -> None:
    """Return without an answer."""


async def incomplete(_: Any, __: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"abc", "more_body": True})


async def trailing(_: Any, __: Any, send: Any) -> None:
    """Go on after the response."""
    await respond(send, b"answered", (b"content-length", b"8"))
    await anyio.sleep(0.01)
    finished.append("trailing")


async def finished_so_far(_: Any, __: Any, send: Any) -> None:
    while "trailing" not in finished:
        await anyio.sleep(0.001)
    await respond(send, json.dumps(finished).encode())
    finished.clear()


async def after_the_end(_: Any, receive: Any, send: Any) -> None:
    """Answer, then tell what the next message is."""
    await read(receive)
    await respond(send, b"answered", (b"content-length", b"8"))
    finished.append((await receive())["type"])
    finished.append("trailing")


async def loop_of(_: Any, __: Any, send: Any) -> None:
    try:
        loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
    except RuntimeError:
        loop = "trio" if "trio" in sys.modules else "none"
    await respond(send, loop.encode())


async def deny(scope: Any, send: Any) -> None:
    """Deny a websocket, and answer with its scheme."""
    await send({"type": "websocket.http.response.start", "status": 200, "headers": []})
    await send({"type": "websocket.http.response.body", "body": scope["scheme"].encode()})


finished: list[str] = []

PAGES = {
    "/raw/scope": scope_of,
    "/raw/echo": echo,
    "/raw/messages": messages,
    "/raw/unread": unread,
    "/raw/big": big,
    "/raw/pieces": pieces,
    "/raw/headers": headers,
    "/raw/no-content": no_content,
    "/raw/not-modified": not_modified,
    "/raw/odd-status": odd_status,
    "/raw/closing": closing,
    "/raw/tuples": tuples,
    "/raw/fail": fail,
    "/raw/fail/after-start": fail_after_start,
    "/raw/fail/midway": fail_midway,
    "/raw/silent": silent,
    "/raw/incomplete": incomplete,
    "/raw/trailing": trailing,
    "/raw/finished": finished_so_far,
    "/raw/after-the-end": after_the_end,
    "/raw/loop": loop_of,
}


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await deny(scope, send)
    elif scope["type"] == "http" and scope["path"].startswith("/raw/"):
        page: Any = PAGES.get(scope["path"], scope_of)
        await page(scope, receive, send)
    else:
        await shop(scope, receive, send)
