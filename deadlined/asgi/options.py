"""The options of an application's server: what there are, and which part of it takes each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Final, TypedDict

from ..http import Limits, Observer, Route, Timeouts
from ..net import Listener, open_tcp_listeners, open_unix_listener

if TYPE_CHECKING:
    # loaded only where proxies are trusted
    from ..http.trusted import TrustedProxies

# the options that say where to listen, and those of the handler; all others are the HTTP server's
_PLACE: Final = ("host", "port", "uds", "listeners")
_HANDLER: Final = ("root_path", "trust_deadline_headers", "pathsend")
_PROXIES: Final = ("trusted_proxies", "forwarded_fields")


class ServerOptions(TypedDict, total=False):
    """The options of `AsgiServer` and `serve`, all by keyword. They mean what the same options of `deadlined serve` do.

    Where to listen: `host` ("127.0.0.1"; an empty one is all interfaces) and `port` (8000; 0 lets the system choose);
    or `uds`, the path of a unix socket; or `listeners`, which the server closes at its end.

    Of the application: `lifespan` ("auto"), or "on" if it must start without an error, or "off" to tell it nothing;
    `root_path` (""), where a proxy has mounted it; `trusted_proxies` (none), addresses and networks
    whose `Forwarded` and `X-Forwarded-*` fields are believed, "unix" for unix sockets; `forwarded_fields` ("both"), or
    "forwarded" or "x-forwarded" if they write only these; `trust_deadline_headers` (False); `pathsend` (False).

    Of the HTTP server, as `HttpServer` takes them: `timeouts`, `limits`, `routes`, `ssl_context`, `observer`, `parser`,
    `cancel_on_disconnect`, `ws_compression`.
    """

    host: str
    port: int
    uds: str | Path
    listeners: Iterable[Listener]
    lifespan: str
    root_path: str
    trusted_proxies: Iterable[str]
    forwarded_fields: str
    trust_deadline_headers: bool
    pathsend: bool
    timeouts: Timeouts
    limits: Limits
    routes: Iterable[Route]
    ssl_context: SSLContext
    observer: Observer
    parser: str
    cancel_on_disconnect: bool
    ws_compression: bool


class SortedOptions:
    """The options of a server, by the part of it that takes them. `lifespan`: how the application is started.
    `handler`: keywords of `AsgiHandler`. `http`: keywords of `HttpServer`. `listen` uses the rest.

    TypeError for an unknown option. TypeError and ValueError for proxies that cannot be trusted.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        if unknown := sorted(options.keys() - ServerOptions.__annotations__):
            raise TypeError(f"there is no option {unknown[0]!r}: choose of {', '.join(ServerOptions.__annotations__)}")
        rest = options.copy()
        self._place: Final = _taken(rest, _PLACE)
        self.lifespan: Final[str] = rest.pop("lifespan", "auto")
        proxies = _proxies(**_taken(rest, _PROXIES))
        self.handler: Final[dict[str, Any]] = {"trusted_proxies": proxies, **_taken(rest, _HANDLER)}
        self.http: Final = rest

    async def listen(self) -> list[Listener]:
        """Listen where the options say. ValueError if they say it in two ways, or `listeners` are none."""
        return await _listen(**self._place)


def _taken(options: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Take the options of these names out of `options`."""
    return {name: options.pop(name) for name in names if name in options}


def _proxies(trusted_proxies: Iterable[str] = (), forwarded_fields: str = "both") -> TrustedProxies | None:
    if isinstance(trusted_proxies, str):
        raise TypeError(f"trusted_proxies is several: write [{trusted_proxies!r}]")
    trusted = tuple(trusted_proxies)
    if not trusted:
        if forwarded_fields != "both":
            raise ValueError("forwarded_fields needs trusted_proxies")
        return None
    from ..http.trusted import TrustedProxies

    return TrustedProxies(trusted, forwarded_fields)


async def _listen(
    host: str | None = None,
    port: int | None = None,
    uds: str | Path | None = None,
    listeners: Iterable[Listener] | None = None,
) -> list[Listener]:
    ways = [host is not None or port is not None, uds is not None, listeners is not None]
    if sum(ways) > 1:
        raise ValueError("host and port, uds, and listeners are three ways to say where to listen: give one of them")
    if listeners is not None:
        return _checked(listeners)
    if uds is not None:
        return [await open_unix_listener(uds)]
    return await open_tcp_listeners(8000 if port is None else port, host="127.0.0.1" if host is None else host or None)


def _checked(listeners: Iterable[Listener]) -> list[Listener]:
    found = list(listeners)
    if not found:
        raise ValueError("listeners is empty, so that nobody could connect: give at least one")
    for each in found:
        if not isinstance(each, Listener):
            raise TypeError(f"listeners has a {type(each).__name__}: Listener.from_socket makes a Listener of a socket")
    return found
