"""An ASGI 3 application as a handler of exchanges.

Facts      ASGI passes dictionaries: a scope, and messages through `receive` and `send` (asgi.readthedocs.io, HTTP 2.4).
Hazard     An application may receive and send from different tasks, receive for ever to learn of a disconnect, send
           after the peer has gone, or send messages in the wrong order.
Answer     One small object per request keeps the order. What the peer does becomes `http.disconnect`; what the
           application does wrong is raised in the application. A send that waits when the peer leaves returns, and the
           application is cancelled in its next wait: neither an error of the send nor a cancellation in it would reach
           the async generator whose piece is sent, which stands at its `yield`. Without `cancel_on_disconnect` the
           scope is that of HTTP 2.3, in which a send after the disconnect does nothing.
           ASGI has methods in capitals. `head` would be HEAD to an application, which sends no body, and another method
           to a proxy, which waits for one: it is answered with 501.
Cost       An object, a bound method and a scope per request; no task.
"""

from __future__ import annotations

from collections.abc import Awaitable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote_to_bytes

from ..http import Disconnected, Draining, Exchange, Reason, ResponseError, answer_problem
from ..runtime import Event, checkpoint
from .budget import time_budget
from .messages import DONE, App, Message, Receive, Scope, Send, Sender, copied, start
from .tls import tls_extension
from .websocket import asks_for_websocket, serve_websocket

if TYPE_CHECKING:
    # loaded only where proxies are trusted
    from ..http.forwarded import TrustedProxies

__all__ = [
    "App",
    "AsgiHandler",
    "DeadlinesExtension",
    "Message",
    "Receive",
    "Scope",
    "Send",
    "check_root_path",
]

_VERSIONS: Final = {"version": "3.0", "spec_version": "2.5"}

# of a server that leaves handlers alone when their clients leave: from 2.4 on a send after that must raise OSError
_WITHOUT_ERRORS: Final = {"version": "3.0", "spec_version": "2.3"}

_NOT_HEAD: Final = "the method HEAD is written in capitals: written otherwise it is another method (RFC 9110, 9.1)"

# methods in capitals, which almost all requests have
_USUAL: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))

# what of a path need not be escaped (RFC 3986, 3.3)
_PATH: Final = "/!$&'()*+,;=:@~"

# the keys of a scope
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

    `set_read_deadline(when)`, `set_write_deadline(when)`, `set_handler_deadline(when)` take absolute seconds on the
    event loop's clock (`deadlined.current_time()`), `inf` for none, and replace the server's deadlines for the rest of
    the request; NaN is a ValueError, and a call outside of the event loop a RuntimeError. `deadline` is when the
    application must have returned, absolute, `inf` for never. `await draining` returns when the server begins to drain,
    so that an endless response can end by itself; `draining.is_set()` tells whether it has begun. Each is both an
    attribute and a key.
    """

    __slots__ = ("_exchange",)

    _NAMES: Final = ("set_read_deadline", "set_write_deadline", "set_handler_deadline", "deadline", "draining")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def set_read_deadline(self, when: float) -> None:
        """Let receiving the rest of the body fail at `when`: the application gets `http.disconnect`."""
        self._exchange.set_read_deadline(when)

    def set_write_deadline(self, when: float) -> None:
        """Reset the connection unless the peer has taken each send, a current one included, by `when`."""
        self._exchange.set_write_deadline(when)

    def set_handler_deadline(self, when: float) -> None:
        """Cancel the application at `when`; the peer gets 504 if nothing was answered yet."""
        self._exchange.set_handler_deadline(when)

    @property
    def deadline(self) -> float:
        """When the application must have returned, absolute; `inf` for never."""
        return self._exchange.deadline

    @property
    def draining(self) -> Draining:
        """An awaitable that returns when the server begins to drain. Can be awaited any number of times."""
        return self._exchange.draining

    def __deepcopy__(self, memo: dict[int, Any]) -> DeadlinesExtension:
        """Return this object: a copy of a scope belongs to the same request."""
        return self

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
        """Return the value of a key, `default` if there is no such key."""
        return self[name] if name in self._NAMES else default

    def keys(self) -> KeysView[str]:
        """Return the keys, as any mapping does."""
        return self._as_dict().keys()

    def values(self) -> ValuesView[Any]:
        """Return the values."""
        return self._as_dict().values()

    def items(self) -> ItemsView[str, Any]:
        """Return the keys with their values."""
        return self._as_dict().items()

    def _as_dict(self) -> dict[str, Any]:
        return {name: self[name] for name in self._NAMES}


# registered instead of derived, because a class without an interpreted base is instantiated much faster when compiled
Mapping.register(DeadlinesExtension)


class AsgiHandler:
    """A handler that calls `app` for each exchange. Each request gets a shallow copy of the lifespan's `state`.

    `root_path`: where a proxy has mounted the application; it is put in front of each path, as ASGI demands. ValueError
    for one that is not like "/shop". `trusted_proxies`: those whose `Forwarded` and `X-Forwarded-*` fields are
    believed, None for none. `trust_deadline_headers`: whether the time that a client says it waits (`grpc-timeout`,
    `x-envoy-expected-rq-timeout-ms`, `request-timeout`) shortens the handler's deadline, from the end of the head.
    """

    def __init__(
        self,
        app: App,
        state: dict[str, Any] | None = None,
        *,
        root_path: str = "",
        trusted_proxies: TrustedProxies | None = None,
        trust_deadline_headers: bool = False,
    ) -> None:
        self._app = app
        self._root_path = check_root_path(root_path)
        self._trusted_proxies = trusted_proxies
        self._trust_deadline_headers = trust_deadline_headers
        self._state = {} if state is None else state
        # the values that most scopes share, and all keys: copying a dictionary is faster than filling one
        self._template: dict[str, Any] = dict.fromkeys(_KEYS) | {
            "type": "http",
            "scheme": "http",
            "query_string": b"",
            "root_path": self._root_path,
        }

    def __call__(self, exchange: Exchange) -> Awaitable[None]:
        """Return an awaitable that serves one request. It raises what the application raises."""
        if asks_for_websocket(exchange):
            return serve_websocket(self._app, self._scope(exchange, "GET"), exchange)
        if self._trust_deadline_headers:
            _shorten(exchange)
        given = exchange.request.method
        method = given if given in _USUAL else given.upper()
        scope = self._scope(exchange, method)
        if method == "HEAD" and given != "HEAD":
            return answer_problem(exchange, 501, Reason.PROTOCOL_ERROR, _NOT_HEAD)
        channel = _Channel(exchange)
        if not exchange.cancel_on_disconnect:
            scope["asgi"] = _WITHOUT_ERRORS.copy()
            channel = _PatientChannel(exchange)
        # ASGI has nothing but a disconnect to receive after the response
        exchange.ends_receives = True
        exchange.quiet_sends = True
        return self._app(scope, channel.receive, channel)

    def before_wait(self, exchange: Exchange) -> None:
        """Set the deadline of a request that must wait for its turn: its client's time runs already. For
        `HttpServer(before_wait=...)`."""
        if self._trust_deadline_headers and not asks_for_websocket(exchange):
            _shorten(exchange)

    def _scope(self, exchange: Exchange, method: str) -> Scope:
        request = exchange.request
        scope = self._template.copy()
        raw_path = request.path_and_query
        # a target is ASCII; searching it as bytes costs more than decoding it
        path = raw_path.decode("ascii")
        if "?" in path:
            raw_path, _, scope["query_string"] = raw_path.partition(b"?")
            path = raw_path.decode("ascii")
        if "%" in path:
            path = unquote_to_bytes(raw_path).decode("utf-8", "replace")
        # `*` stands for the server, and for no path of it (RFC 9110, 7.1)
        if self._root_path and raw_path != b"*":
            path = self._root_path + path
            raw_path = quote(self._root_path, _PATH).encode("ascii") + raw_path
        # an application may change what it is given
        scope["asgi"] = _VERSIONS.copy()
        scope["http_version"] = request.version
        scope["method"] = method
        scope["path"] = path
        scope["raw_path"] = raw_path
        scope["headers"] = request.headers
        scope["scheme"] = exchange.scheme
        scope["client"] = exchange.client
        scope["server"] = exchange.server_address
        scope["state"] = self._state.copy()
        scope["extensions"] = {"deadlined": DeadlinesExtension(exchange)}
        tls = exchange.tls
        if tls is not None:
            scope["extensions"]["tls"] = tls_extension(tls)
        if self._trusted_proxies is not None:
            self._set_origin(scope, exchange, self._trusted_proxies)
        return scope

    def _set_origin(self, scope: Scope, exchange: Exchange, proxies: TrustedProxies) -> None:
        """Set in `scope`, and for the log, where the request comes from, if trusted proxies say so."""
        origin = proxies.origin(exchange.request.headers, exchange.client, exchange.scheme, exchange.server_address)
        if origin is not None:
            exchange.forwarded_client = origin.client
            scope["client"] = origin.client
            scope["scheme"] = origin.scheme
            scope["server"] = origin.server


def _shorten(exchange: Exchange) -> None:
    """End the handler's time when its client stops waiting, if that is earlier than the server's deadline."""
    when = exchange.head_done + time_budget(exchange.request.headers)
    if when < exchange.deadline:
        exchange.set_handler_deadline(when)


class _Channel(Sender):
    """`receive` and `send` of one request; it is itself `send`."""

    __slots__ = ("_exchange", "_receive_ended", "_receiving", "_request_given")

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self._exchange = exchange
        # True once the application got an `http.request`
        self._request_given = False
        self._receiving = False
        # set for the tasks that wait while another one receives; None if there are none
        self._receive_ended: Event | None = None

    async def receive(self) -> Message:
        """Return the next message. Tasks that receive at the same time, for example to learn of the disconnect, take
        turns."""
        while self._receiving:
            if self._receive_ended is None:
                self._receive_ended = Event()
            await self._receive_ended.wait()
        self._receiving = True
        try:
            return await self._next_message()
        finally:
            self._receiving = False
            if self._receive_ended is not None:
                self._receive_ended.set()
                self._receive_ended = None

    async def _next_message(self) -> Message:
        exchange = self._exchange
        was_complete = exchange.writer.complete
        body = None
        if was_complete or (exchange.body_done and self._request_given):
            await exchange.wait_disconnected()
        else:
            try:
                body = exchange.try_receive()
                if body is None:
                    body = await exchange.receive()
            except Disconnected:
                body = None
        if body is None:
            if exchange.sends or exchange.writer.complete != was_complete:
                # frameworks cancel the task that sends
                await exchange.let_sends_return()
            return {"type": "http.disconnect"}
        self._request_given = True
        return {"type": "http.request", "body": body, "more_body": not exchange.body_done}

    def send(self, message: Message) -> Awaitable[None]:
        event: dict[str, Any] = message if isinstance(message, dict) else dict(message)
        # compiled code compares a `str` faster than an object
        kind = str(event["type"])
        if kind == "http.response.start":
            start(self._exchange, event)
        elif kind == "http.response.body":
            exchange = self._exchange
            body = event.get("body", b"")
            if not exchange.try_send(body if isinstance(body, bytes) else copied(body), bool(event.get("more_body"))):
                return exchange.finish_send()
        else:
            raise ResponseError(f"an HTTP response has no message {kind!r}")
        return DONE


class _PatientChannel(_Channel):
    """`receive` and `send` of a request whose application is left alone when its client leaves.

    What is sent to nobody is discarded: an error would end the application before its end, and a bridge to threads may
    wait for ever for the task that the error has ended.
    """

    __slots__ = ()

    def send(self, message: Message) -> Awaitable[None]:
        try:
            return _Channel.send(self, message)
        except Disconnected:
            return checkpoint()


def check_root_path(path: str) -> str:
    """Return a path at which an application can be mounted. ValueError for one that is not empty and not like
    "/shop"."""
    if path and (not path.startswith("/") or path.endswith("/")):
        raise ValueError(f"{path!r} is not a path to mount at: write one like /shop, without a slash at its end")
    return path
