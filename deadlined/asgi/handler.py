"""An ASGI 3 application as a handler of exchanges.

Facts      ASGI describes a request by a dictionary, the scope (asgi.readthedocs.io, HTTP 2.5), which an application may
           change.
Answer     Each scope is a copy of one template. Without `cancel_on_disconnect` it is that of HTTP 2.3, in which a send
           after the disconnect does nothing.
           ASGI has methods in capitals. `head` would be HEAD to an application, which sends no body, and another method
           to a proxy, which waits for one: it is answered with 501.
Cost       A scope per request.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote_to_bytes

from ..http import Exchange, Reason, answer_problem
from .budget import time_budget
from .channel import Channel, PatientChannel
from .extension import DeadlinesExtension
from .messages import App, Message, Receive, Scope, Send
from .tls import tls_extension
from .websocket import asks_for_websocket, serve_websocket

if TYPE_CHECKING:
    # loaded only where proxies are trusted
    from ..http.trusted import TrustedProxies

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


class AsgiHandler:
    """A handler that calls `app` for each exchange. Each request gets a shallow copy of the lifespan's `state`.

    `root_path`: where a proxy has mounted the application; it is put in front of each path, as ASGI demands. ValueError
    for one that is not like "/shop". `trusted_proxies`: those whose `Forwarded` and `X-Forwarded-*` fields are
    believed, None for none. `trust_deadline_headers`: whether the time that a client says it waits (`grpc-timeout`,
    `x-envoy-expected-rq-timeout-ms`, `request-timeout`) shortens the handler's deadline, from the end of the head.
    `pathsend`: whether applications are offered to give the path of a file as a body (ASGI's `http.response.pathsend`).
    """

    def __init__(
        self,
        app: App,
        state: dict[str, Any] | None = None,
        *,
        root_path: str = "",
        trusted_proxies: TrustedProxies | None = None,
        trust_deadline_headers: bool = False,
        pathsend: bool = False,
    ) -> None:
        self._app = app
        self._root_path = check_root_path(root_path)
        self._trusted_proxies = trusted_proxies
        self._trust_deadline_headers = trust_deadline_headers
        self._pathsend = pathsend
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
        if self._pathsend:
            scope["extensions"]["http.response.pathsend"] = {}
        channel = Channel(exchange)
        if not exchange.cancel_on_disconnect:
            scope["asgi"] = _WITHOUT_ERRORS.copy()
            channel = PatientChannel(exchange)
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


def check_root_path(path: str) -> str:
    """Return a path at which an application can be mounted. ValueError for one that is not empty and not like
    "/shop"."""
    if path and (not path.startswith("/") or path.endswith("/")):
        raise ValueError(f"{path!r} is not a path to mount at: write one like /shop, without a slash at its end")
    return path
