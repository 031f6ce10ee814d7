"""A plain ASGI application with a path for each thing that a websocket may do, or must not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import deadlined

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# what applications were told, by the word that their client has sent as the query
told: dict[str, list[Any]] = {}


async def accepted(receive: Receive, send: Send, **fields: Any) -> None:
    """Take the first message, which must be the connect, and accept."""
    message = await receive()
    assert message == {"type": "websocket.connect"}, message
    await send({"type": "websocket.accept", **fields})


def content(message: Message) -> dict[str, Any]:
    """Return the part of a message that was received which is to be sent back."""
    text = message.get("text")
    return {"text": text} if text is not None else {"bytes": message["bytes"]}


def tell(scope: Message, what: Any) -> None:
    """Note what the application was told."""
    told.setdefault(scope["query_string"].decode(), []).append(what)


# those that behave


async def echo(scope: Message, receive: Receive, send: Send) -> None:
    """Send back what comes, and note the end."""
    await accepted(receive, send)
    while (message := await receive())["type"] == "websocket.receive":
        try:
            await send({"type": "websocket.send", **content(message)})
        except OSError:
            tell(scope, "send failed")
    tell(scope, ["disconnect", message["code"], message["reason"]])


async def digest(scope: Message, receive: Receive, send: Send) -> None:
    """Answer each message with its kind, its length and its SHA-1."""
    await accepted(receive, send)
    while (message := await receive())["type"] == "websocket.receive":
        text = message.get("text")
        kind, data = ("binary", message["bytes"]) if text is None else ("text", text.encode())
        said = f"{kind} {len(data)} {hashlib.sha1(data).hexdigest()}"
        await send({"type": "websocket.send", "text": said})


async def deaf(scope: Message, receive: Receive, send: Send) -> None:
    """Accept, and receive nothing until the server drains."""
    await accepted(receive, send)
    await send({"type": "websocket.send", "text": "deaf"})
    await scope["extensions"]["deadlined"].draining


async def push(scope: Message, receive: Receive, send: Send) -> None:
    """Send without an end, and note how that ends."""
    await accepted(receive, send)
    try:
        while True:
            await send({"type": "websocket.send", "bytes": bytes(16384)})
    except OSError as error:
        tell(scope, "send failed")
        message = await receive()
        tell(scope, [message["type"], message["code"]])
        raise error


async def close_first(scope: Message, receive: Receive, send: Send) -> None:
    """Close, then receive."""
    await accepted(receive, send)
    await send({"type": "websocket.close", "code": 4000, "reason": "first"})
    message = await receive()
    tell(scope, [message["type"], message["code"], message["reason"]])


async def subprotocol(scope: Message, receive: Receive, send: Send) -> None:
    """Choose the last subprotocol that is offered."""
    await accepted(receive, send, subprotocol=scope["subprotocols"][-1])
    await send({"type": "websocket.send", "text": ",".join(scope["subprotocols"])})


async def many(scope: Message, receive: Receive, send: Send) -> None:
    """Send as many messages as the client asks for, and close."""
    await accepted(receive, send)
    number = int((await receive())["text"])
    for each in range(number):
        await send({"type": "websocket.send", "text": str(each)})
    await send({"type": "websocket.close"})


async def refuse(scope: Message, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.close"})


# those that misbehave


async def never_accept(scope: Message, receive: Receive, send: Send) -> None:
    """Wait, and note that the client has left."""
    await receive()
    tell(scope, (await receive())["type"])


async def hang(scope: Message, receive: Receive, send: Send) -> None:
    """Neither accept nor listen."""
    await deadlined.sleep(3600)


async def accept_twice(scope: Message, receive: Receive, send: Send) -> None:
    await accepted(receive, send)
    await send({"type": "websocket.accept"})


async def send_before(scope: Message, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.send", "text": "too early"})


async def send_after(scope: Message, receive: Receive, send: Send) -> None:
    """Send after the close, note what that raises, and go on."""
    await accepted(receive, send)
    await send({"type": "websocket.close", "code": 4000})
    try:
        await send({"type": "websocket.send", "text": "too late"})
    except Exception as error:
        tell(scope, ["send", isinstance(error, OSError)])
    try:
        await send({"type": "websocket.close"})
    except Exception as error:
        tell(scope, ["close", isinstance(error, OSError)])


async def send_to_nobody(scope: Message, receive: Receive, send: Send) -> None:
    """Send after the client has left, and note what that raises."""
    await accepted(receive, send)
    assert (await receive())["type"] == "websocket.disconnect"
    try:
        while True:
            await send({"type": "websocket.send", "text": "anybody?"})
    except OSError:
        tell(scope, "OSError")
    # any number of times
    tell(scope, [(await receive())["type"] for _ in range(3)])


async def raise_before(scope: Message, receive: Receive, send: Send) -> None:
    raise LookupError("meant to fail")


async def raise_after(scope: Message, receive: Receive, send: Send) -> None:
    await accepted(receive, send)
    raise LookupError("meant to fail")


async def raise_in_the_end(scope: Message, receive: Receive, send: Send) -> None:
    await accepted(receive, send)
    assert (await receive())["type"] == "websocket.disconnect"
    raise LookupError("meant to fail")


async def return_before(scope: Message, receive: Receive, send: Send) -> None:
    await receive()


async def return_after(scope: Message, receive: Receive, send: Send) -> None:
    await accepted(receive, send)


async def unknown(scope: Message, receive: Receive, send: Send) -> None:
    await accepted(receive, send)
    await send({"type": "http.response.start", "status": 200})


async def empty(scope: Message, receive: Receive, send: Send) -> None:
    await accepted(receive, send)
    await send({"type": "websocket.send"})


async def bad_code(scope: Message, receive: Receive, send: Send) -> None:
    """Close with a code that no close frame may have; a correct close is still possible."""
    await accepted(receive, send)
    for code in (0, 999, 1004, 1005, 1006, 1015, 2999, 5000, 65536, -1):
        try:
            await send({"type": "websocket.close", "code": code})
        except Exception as error:
            tell(scope, [code, isinstance(error, OSError)])
    await send({"type": "websocket.close", "code": 4000, "reason": "at last"})


async def long_reason(scope: Message, receive: Receive, send: Send) -> None:
    await accepted(receive, send)
    try:
        await send({"type": "websocket.close", "reason": "é" * 62})
    except Exception as error:
        tell(scope, isinstance(error, OSError))
    await send({"type": "websocket.close", "code": 4000, "reason": "é" * 61 + "e"})


async def bad_subprotocol(scope: Message, receive: Receive, send: Send) -> None:
    await accepted(receive, send, subprotocol="not offered")


PATHS = {
    f"/{function.__name__.replace('_', '-')}": function
    for function in (
        *(echo, digest, deaf, push, close_first, subprotocol, many, refuse),
        *(never_accept, hang, accept_twice, send_before, send_after, send_to_nobody, raise_before, raise_after),
        *(raise_in_the_end, return_before, return_after, unknown, empty, bad_code, long_reason, bad_subprotocol),
    )
}


async def app(scope: Message, receive: Receive, send: Send) -> None:
    """Route websockets by the path; answer requests with what applications were told."""
    if scope["type"] == "lifespan":
        raise NotImplementedError
    if scope["type"] == "websocket":
        await PATHS[scope["path"]](scope, receive, send)
        return
    body = json.dumps(told.get(scope["query_string"].decode(), [])).encode()
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
