"""An ASGI 3 application as a handler of exchanges.

Facts      ASGI speaks in dictionaries: a scope, and messages through `receive` and `send` (asgi.readthedocs.io, HTTP
           2.4).
Hazard     An application may receive and send from different tasks, receive for ever to learn of a disconnect, send
           after the peer has gone, or say things in the wrong order.
Answer     One small object per request keeps the order; what the peer does is a `http.disconnect`, what the
           application does wrong is an exception in the application.
Cost       Two bound methods and a scope per request; no task.
"""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
    Generator,
    ItemsView,
    Iterator,
    KeysView,
    Mapping,
    MutableMapping,
    ValuesView,
)
from typing import Any, Final, cast
from urllib.parse import unquote_to_bytes

import trio

from ..http import Disconnected, Exchange, ResponseError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_VERSIONS: Final = {"version": "3.0", "spec_version": "2.4"}

# of a scope
_KEYS: Final = (
    "type",
    "asgi",
    "http_version",
    "method",
    "scheme",
    "path",
    "raw_path",
    "query_string",
    "root_path",
    "headers",
    "client",
    "server",
    "state",
    "extensions",
)


class DeadlinesExtension:
    """`scope["extensions"]["deadlined"]`: an application moves the deadlines of its own request.

    `set_read_deadline(when)`, `set_write_deadline(when)`, `set_handler_deadline(when)` take absolute times of the
    run's clock (`trio.current_time()`), `inf` for none, and replace the server's deadlines for the rest of the
    request. `deadline` is when the application must be done, absolute, `inf` if it may take its time. As attributes
    or as keys.
    """

    __slots__ = ("_exchange",)

    _NAMES: Final = ("set_read_deadline", "set_write_deadline", "set_handler_deadline", "deadline")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def set_read_deadline(self, when: float) -> None:
        """Receiving the rest of the body fails at `when`: the application sees `http.disconnect`."""
        self._exchange.set_read_deadline(when)

    def set_write_deadline(self, when: float) -> None:
        """What is being sent, and all that follows, must be taken by `when`, else the connection is reset."""
        self._exchange.set_write_deadline(when)

    def set_handler_deadline(self, when: float) -> None:
        """The application is cancelled at `when`, and the peer is answered 504 if nothing was answered yet."""
        self._exchange.set_handler_deadline(when)

    @property
    def deadline(self) -> float:
        """When the application must be done."""
        return self._exchange.deadline

    def __getitem__(self, name: str) -> Any:
        if name not in self._NAMES:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._NAMES)

    def __len__(self) -> int:
        return len(self._NAMES)

    def __contains__(self, name: object) -> bool:
        return name in self._NAMES

    def get(self, name: str, default: Any = None) -> Any:
        """As of any mapping, like the three that follow."""
        return self[name] if name in self._NAMES else default

    def keys(self) -> KeysView[str]:
        return self._as_dict().keys()

    def values(self) -> ValuesView[Any]:
        return self._as_dict().values()

    def items(self) -> ItemsView[str, Any]:
        return self._as_dict().items()

    def _as_dict(self) -> dict[str, Any]:
        return {name: self[name] for name in self._NAMES}


# not derived from, because an object of a class that is wholly compiled is made much faster
Mapping.register(DeadlinesExtension)


class AsgiHandler:
    """Calls `app` for each exchange. `state` is what the lifespan left for the requests; each gets a shallow copy."""

    def __init__(self, app: App, state: dict[str, Any] | None = None) -> None:
        self._app = app
        self._state = {} if state is None else state
        # what is the same in most scopes, and the keys of the rest: to copy a dictionary is faster than to fill one
        self._template: dict[str, Any] = dict.fromkeys(_KEYS) | {
            "type": "http",
            "asgi": _VERSIONS,
            "scheme": "http",
            "query_string": b"",
            "root_path": "",
        }

    def __call__(self, exchange: Exchange) -> Awaitable[None]:
        """Serve one request: to be awaited. What the application raises passes through."""
        cycle = _Cycle(exchange)
        return self._app(self._scope(exchange), cycle.receive, cycle.send)

    def _scope(self, exchange: Exchange) -> Scope:
        request = exchange.request
        link = exchange.link
        scope = self._template.copy()
        raw_path = request.path_and_query
        # looked at as text, because searching bytes costs more than all this; a target is ASCII
        path = raw_path.decode("ascii")
        if "?" in path:
            raw_path, _, scope["query_string"] = raw_path.partition(b"?")
            path = raw_path.decode("ascii")
        if "%" in path:
            path = unquote_to_bytes(raw_path).decode("utf-8", "replace")
        if link.server.ssl_context is not None:
            scope["scheme"] = "https"
        scope["http_version"] = request.version
        scope["method"] = request.method
        scope["path"] = path
        scope["raw_path"] = raw_path
        scope["headers"] = request.headers
        scope["client"] = link.client
        scope["server"] = link.local
        scope["state"] = self._state.copy()
        scope["extensions"] = {"deadlined": DeadlinesExtension(exchange)}
        return scope


class _Cycle:
    """`receive` and `send` of one request."""

    __slots__ = ("_exchange", "_receiving", "_started", "_turn")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._started = False
        self._receiving = False
        self._turn: trio.Event | None = None

    async def receive(self) -> Message:
        """The next message. Tasks that ask at the same time, say to learn of the disconnect, take turns."""
        while self._receiving:
            if self._turn is None:
                self._turn = trio.Event()
            await self._turn.wait()
        self._receiving = True
        try:
            return await self._next_message()
        finally:
            self._receiving = False
            if self._turn is not None:
                self._turn.set()
                self._turn = None

    async def _next_message(self) -> Message:
        exchange = self._exchange
        if exchange.writer.complete or (exchange.body_done and self._started):
            await exchange.wait_disconnected()
            return {"type": "http.disconnect"}
        try:
            body = await exchange.receive()
        except Disconnected:
            return {"type": "http.disconnect"}
        self._started = True
        return {"type": "http.request", "body": body, "more_body": not exchange.body_done}

    def send(self, message: Message) -> Awaitable[None]:
        """To be awaited. What need not wait is done when it is called, and the await finds it done."""
        event: dict[str, Any] = message if isinstance(message, dict) else dict(message)
        # a string that is known to be one is compared faster
        kind = str(event["type"])
        if kind == "http.response.start":
            self._exchange.start(event["status"], event.get("headers", ()))
        elif kind == "http.response.body":
            exchange = self._exchange
            body = event.get("body", b"")
            if not exchange.try_send(body if isinstance(body, bytes) else bytes(body), bool(event.get("more_body"))):
                return exchange.finish_send()
        else:
            raise ResponseError(f"an HTTP response knows no message {kind!r}")
        return _DONE


class _Done:
    """A coroutine that has nothing to do: one for all, where each call of a coroutine function makes one."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        return cast(Generator[Any, None, None], iter(()))

    def send(self, value: None) -> None:
        """As of any coroutine, like the two that follow, so that it can also be given to a nursery."""
        raise StopIteration

    def throw(self, error: BaseException) -> None:
        raise error

    def close(self) -> None:
        return


_DONE: Final = _Done()
