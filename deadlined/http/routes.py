"""Timeouts and limits of some requests, and whether they are recorded: overrides by path and method.

Facts      An upload takes minutes where everything else takes seconds. A request's path is known with its head.
Hazard     One bound for all requests must fit the slowest. An application reads `/%75pload` as `/upload` and `post` as
           POST, so a route that compares other bytes than the application can be evaded. Some upstreams read `//upload`
           and `/a/../upload` as `/upload`, too, and others do not, as most ASGI applications.
Answer     The longest prefix that a path has, in whole segments and percent-decoded as an application sees it, decides.
           So does the method in capitals, though HTTP itself tells `post` and POST apart (RFC 9110, 9.1).
           A path whose route depends on how dot segments and repeated slashes are read is refused.
           What ends before the path is known, or is for more than one request, cannot be overridden.
Cost       Without routes one comparison per request. With them one for each route, until one matches; four times as
           many for a path with `//` or `/.` in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final
from urllib.parse import unquote

from ..value import Value
from .arguments import require_types
from .errors import BadRequest
from .timeouts import INF, Limits, Timeouts
from .wire.response import keep_alive_lines

_SLASHES: Final = re.compile("//+")
# a token (RFC 9110, 5.6.2) in capitals
_METHOD: Final = re.compile(r"[A-Z0-9!#$%&'*+.^_`|~-]+")

# why a field cannot be overridden
NOT_PER_ROUTE: Final = {
    "handshake": "it ends before a request has come",
    "read_header": "it ends before the path is known",
    "connection_age": "it is for the whole connection",
    "drain": "it is for the whole server",
    "max_connections": "it is for the whole server",
    "max_head": "it is checked before the path is known",
    "max_headers": "it is checked before the path is known",
    "max_requests": "it is for the whole connection",
    "max_waiting": "it is for all requests of a process",
}

_TIMEOUTS: Final = tuple(field.name for field in fields(Timeouts))
_LIMITS: Final = tuple(field.name for field in fields(Limits))

# what a route can override
PER_ROUTE: Final = tuple(name for name in (*_TIMEOUTS, *_LIMITS) if name not in NOT_PER_ROUTE)


@dataclass(frozen=True)
class Route(Value):
    """What holds for requests whose path, decoded, is `path` or lies below it, and whose method, in capitals, is one of
    `methods`, empty for all. `overrides`: fields of `Timeouts` and `Limits`, except those of NOT_PER_ROUTE;
    `max_running` only as `inf`, for requests that are handled at once and do not count. `observed`: the server's
    observer is given records of them.

    Raises ValueError for a path that does not begin with `/`, a method that is no token in capitals, and a field that
    cannot be overridden, and for what a set or a mapping has that is no text; TypeError for values of other types.
    """

    path: str
    methods: frozenset[str]
    overrides: Mapping[str, float]
    observed: bool = True

    def __post_init__(self) -> None:
        if not self.path.startswith("/"):
            raise ValueError(f"{self.path!r} is not a path for a route: write one like /upload")
        methods: Iterable[Any] = self.methods
        for method in methods:
            if not (isinstance(method, str) and _METHOD.fullmatch(method)):
                raise ValueError(f"{method!r} is not a method: write it in capitals, such as POST")
        names: Iterable[Any] = self.overrides
        for name in names:
            if name in NOT_PER_ROUTE:
                raise ValueError(f"{name} cannot be set for a route: {NOT_PER_ROUTE[name]}")
            if name not in PER_ROUTE:
                raise ValueError(f"{name} is neither a timeout nor a limit")
        self.applied(Timeouts(), Limits())
        if self.overrides.get("max_running", INF) != INF:
            raise ValueError("max_running can only be off for a route: a number is for all requests of a process")

    def applied(self, timeouts: Timeouts, limits: Limits) -> Choice:
        """Return these timeouts and limits with the overrides. Raise ValueError for a wrong value."""
        # what is no number is told by the classes
        overrides: Mapping[str, Any] = self.overrides
        of_timeouts = {name: value for name, value in overrides.items() if name in _TIMEOUTS}
        of_limits = {name: value for name, value in overrides.items() if name in _LIMITS}
        return Choice(replace(timeouts, **of_timeouts), replace(limits, **of_limits), self.observed)


require_types(
    Route,
    {
        "path": (str, "a text like /upload"),
        "methods": (frozenset, "a frozenset of texts like POST"),
        "overrides": (Mapping, "a mapping of names to numbers"),
        "observed": (bool, "True or False"),
    },
)


class Choice:
    """The timeouts and limits of a request. Immutable. `keep_alive_lines`: as in `Settings`. `observed`: the observer
    is given its record."""

    __slots__ = ("keep_alive_lines", "limits", "observed", "timeouts")

    def __init__(self, timeouts: Timeouts, limits: Limits, observed: bool) -> None:
        self.timeouts: Final = timeouts
        self.limits: Final = limits
        self.observed: Final = observed
        self.keep_alive_lines: Final = keep_alive_lines(timeouts.idle)


class Routes:
    """The routes of a server, applied to its timeouts and limits. Immutable. ValueError if two routes have a path and a
    method in common."""

    __slots__ = ("_choices",)

    def __init__(self, routes: Iterable[Route], timeouts: Timeouts, limits: Limits) -> None:
        # the longest path first, and for one path those with methods
        ordered = sorted(routes, key=lambda route: (-len(route.path.rstrip("/")), not route.methods))
        _require_distinct(ordered)
        self._choices: list[tuple[str, frozenset[str], Choice]] = [
            (route.path.rstrip("/"), route.methods, route.applied(timeouts, limits)) for route in ordered
        ]

    def choose(self, method: str, path_and_query: bytes) -> Choice | None:
        """Return what holds for a request, None if no route matches it. BadRequest if that depends on whether dot
        segments are removed from the path, or slashes merged."""
        path = path_and_query.partition(b"?")[0].decode("ascii")
        if "%" in path:
            path = unquote(path, errors="replace")
        method = method.upper()
        choice = self._find(method, path)
        if "//" in path or "/." in path:
            for other in _readings(path):
                if self._find(method, other) is not choice:
                    raise BadRequest(400, "the path can be read in several ways, for which different limits hold")
        return choice

    def _find(self, method: str, path: str) -> Choice | None:
        for prefix, methods, choice in self._choices:
            if path.startswith(prefix) and (not methods or method in methods):
                end = len(prefix)
                if len(path) == end or path[end] == "/":
                    return choice
        return None


def _readings(path: str) -> tuple[str, str, str]:
    """Return what servers make of a path: with slashes merged, without dot segments, and both."""
    merged = _SLASHES.sub("/", path)
    return merged, _without_dots(path), _without_dots(merged)


def _without_dots(path: str) -> str:
    """Return a path without its segments `.` and `..` (RFC 3986, 5.2.4)."""
    kept: list[str] = []
    for segment in path.split("/")[1:]:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    return "/" + "/".join(kept)


def _require_distinct(routes: list[Route]) -> None:
    for place, route in enumerate(routes):
        for other in routes[:place]:
            same = route.methods & other.methods or (not route.methods and not other.methods)
            if route.path.rstrip("/") == other.path.rstrip("/") and same:
                raise ValueError(f"two routes are for {route.path}; give it once, or for different methods")
