"""What ASGI passes: the types of its three callables, and awaitables and bytes that both protocols need."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Generator, Iterator, MutableMapping
from types import CodeType
from typing import Any, Final, cast

from ..errors import Kept
from ..http import Exchange, ResponseError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# a name of this module, which compiled code finds faster than another's
_get_ident: Final = threading.get_ident


def copied(data: Any) -> bytes:
    """Return the bytes of a bytearray or memoryview, which the application may change while they are sent."""
    try:
        return bytes(memoryview(data))
    except TypeError:
        # bytes() alone would make n zeros of a number
        raise ResponseError(f"what is sent must be bytes, not {type(data).__name__}") from None


def start(exchange: Exchange, event: dict[str, Any]) -> None:
    """Start the response that a message with `status` and `headers` describes. Raise as `Exchange.start`, and
    ResponseError for a status that is not an int."""
    status = event.get("status")
    if not isinstance(status, int):
        raise ResponseError(f"the status of a response must be an int, not {type(status).__name__}")
    exchange.start(status, event.get("headers", ()))


class Sender:
    """What an application is given as `send`, callable with a message. An abstract base class. Made in the event loop.

    Calling it returns an awaitable, most often one that is done and shared by all messages; a coroutine function would
    make one each time. But asgiref (Channels' synchronous consumers, WsgiToAsgi) warns unless
    `inspect.iscoroutinefunction` is true, which looks for these attributes.
    """

    __slots__ = ("_home_thread",)

    def __init__(self) -> None:
        # the event loop's. Not `_thread`: mypyc would make a keyword of C of it
        self._home_thread = _get_ident()

    def __call__(self, message: Message) -> Awaitable[None]:
        """Send a message, and return an awaitable for the part of it that must wait: often nothing.

        The awaitable raises ResponseError if the message is wrong or out of order, Disconnected if the peer is gone.
        The call itself does not, so that a caller that sends to many peers and gathers the awaitables reaches all
        others. If a peer of HTTP leaves while the awaitable waits, it returns, and the application is cancelled.

        A call in another thread than the event loop's sends nothing. The event loop sends when it awaits the awaitable:
        `asyncio.run_coroutine_threadsafe(send(message), loop)` does that. RuntimeError if another event loop awaits it.
        """
        if _get_ident() != self._home_thread:
            return self._send_in_loop(message)
        try:
            return self.send(message)
        except Exception as error:
            return _failed(Kept(error))

    def send(self, message: Message) -> Awaitable[None]:
        """Do what the call does, but raise at once."""
        raise NotImplementedError

    async def _send_in_loop(self, message: Message) -> None:
        if _get_ident() != self._home_thread:
            raise RuntimeError("a message can be sent by the server's event loop only, not by one of another thread")
        await self.send(message)

    @property
    def __name__(self) -> str:
        return "send"

    @property
    def __code__(self) -> CodeType:
        return _CODE

    @property
    def __defaults__(self) -> None:
        return None

    @property
    def __kwdefaults__(self) -> None:
        return None


async def _failed(error: Kept) -> None:
    error.reraise()


# compiled functions have no code object of their own
_CODE: Final = next(
    made
    for made in compile("async def send(message): pass", "<deadlined.asgi>", "exec").co_consts
    if isinstance(made, CodeType)
)


# an iterator that has ended, and does so again whenever it is asked
_NOTHING: Final[Iterator[Any]] = iter(())


class _Done:
    """A coroutine that is done. One object serves all sends; a coroutine function would make one for each."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        return cast(Generator[Any, None, None], _NOTHING)

    def send(self, value: None) -> None:
        """End at once. `send`, `throw` and `close` make it a coroutine, which a nursery and `create_task` accept."""
        raise StopIteration

    def throw(self, error: BaseException) -> None:
        """Raise `error`."""
        raise error

    def close(self) -> None:
        """Do nothing."""


DONE: Final = _Done()
