"""The tables `[[route]]` of the file: timeouts and limits of some requests, and whether they are logged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from ...http import Limits, Route, Timeouts
from ...http.routes import NOT_PER_ROUTE, PER_ROUTE, Routes
from .file import Key
from .kinds import quoted, shown
from .settings import SETTINGS, nearest

# the key of the tables
TABLE: Final = "route"

# what a table may have beside timeouts and limits
ACCESS_LOG: Final = "access_log"
_OTHERS: Final = ("path", "methods", ACCESS_LOG)
# what frameworks write for a part that varies, and where a path ends in a URL; a route with it would match nothing. A
# path that has it itself is percent-encoded
_PATTERN: Final = re.compile(r"[*{}<>]|(?<=/):")
_END: Final = re.compile(r"[?#]")
_ENCODED: Final = re.compile(rf"%|{_PATTERN.pattern}|{_END.pattern}")

# what most routes are for (RFC 9110, 9.3, and RFC 5789). Others are allowed, unless they are one of these with a typing
# error: more like it than any registered method is
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_ALIKE: Final = 0.75

_KEYS: Final = dict.fromkeys((*_OTHERS, *PER_ROUTE))


def read_routes(value: Any, path: str, at: Mapping[Key, int], problems: list[str]) -> tuple[Route, ...]:
    """Return the routes of the file `path`. `at`: the lines of its keys. Add a line to `problems` for each mistake."""
    if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
        problems.append(
            f"{path}:{at.get((TABLE,), at.get((TABLE, 0), 1))}: {TABLE}: write a table [[{TABLE}]] for each"
        )
        return ()
    routes = []
    for number, table in enumerate(value):
        line = at.get((TABLE, number), at.get((TABLE,), 1))
        overrides, wrong = _overrides(table)
        if not wrong:
            try:
                routes.append(Route(_path(table), _methods(table.get("methods", [])), overrides, _is_logged(table)))
            except ValueError as error:
                problems.append(f"{path}:{line}: {TABLE}: {error}")
        for key, why in wrong.items():
            problems.append(f"{path}:{at.get((TABLE, number, key), line)}: {TABLE}: {key}: {why}")
    try:
        Routes(routes, Timeouts(), Limits())
    except ValueError as error:
        problems.append(f"{path}: {TABLE}: {error}")
    return tuple(routes)


def as_toml(routes: tuple[Route, ...]) -> str:
    """Return the tables from which `read_routes` returns `routes`."""
    parts = []
    for route in routes:
        lines = [f"[[{TABLE}]]", f"path = {quoted(_ENCODED.sub(_encoded, route.path))}"]
        if route.methods:
            lines.append(f"methods = [{', '.join(map(quoted, sorted(route.methods)))}]")
        lines += [f"{name} = {SETTINGS[name].kind.toml(value)}" for name, value in route.overrides.items()]
        if not route.observed:
            lines.append(f"{ACCESS_LOG} = false")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def as_dictionaries(routes: tuple[Route, ...]) -> list[dict[str, Any]]:
    """Return the routes for JSON."""
    return [
        {"path": route.path, "methods": sorted(route.methods)}
        | {name: SETTINGS[name].kind.text(value) for name, value in route.overrides.items()}
        | ({} if route.observed else {ACCESS_LOG: "false"})
        for route in routes
    ]


def _overrides(table: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, ValueError]]:
    """Return the timeouts and limits of a table, and what is wrong with its keys."""
    found: dict[str, float] = {}
    wrong: dict[str, ValueError] = {}
    for key, given in table.items():
        try:
            if (seconds_or_size := _override(key, given)) is not None:
                found[key] = seconds_or_size
        except ValueError as error:
            wrong[key] = error
    return found, wrong


def _override(key: str, value: Any) -> float | None:
    """Return the value of a timeout or a limit, None for another key of a table. ValueError if it is wrong."""
    if key == ACCESS_LOG:
        SETTINGS[key].accept(value)
    if key in _OTHERS:
        return None
    if key in NOT_PER_ROUTE:
        raise ValueError(f"cannot be set for a route: {NOT_PER_ROUTE[key]}")
    if key not in PER_ROUTE:
        is_setting = f"; {key} is a setting of the whole server" if key in SETTINGS else nearest(key, _KEYS)
        raise ValueError(f"unknown key{is_setting}")
    found: float = SETTINGS[key].accept(value)
    return found


def _path(table: Mapping[str, Any]) -> str:
    path = table.get("path")
    if path is None:
        raise ValueError('path is missing: write one, such as path = "/upload"')
    if not isinstance(path, str):
        raise ValueError(f'path: {shown(path)} is not text: write one such as "/upload"')
    if path.startswith("/"):
        _require_plain(path)
    return unquote(path, errors="replace")


def _require_plain(path: str) -> None:
    """Raise ValueError for a pattern, and for a path with a query or a fragment."""
    if end := _END.search(path):
        raise ValueError(
            f"{path!r} is more than a path: write {path[: end.start()]}, without a query; {_or_encoded(end)}"
        )
    if found := _PATTERN.search(path):
        above = path[: path.rindex("/", 0, found.start()) or 1]
        raise ValueError(
            f"{path!r} is a pattern, and a route is for its path and all below it: write {above}; {_or_encoded(found)}"
        )


def _or_encoded(found: re.Match[str]) -> str:
    return f"or {_encoded(found)} for a path that has a {found[0]!r}"


def _encoded(found: re.Match[str]) -> str:
    return f"%{ord(found[0]):02X}"


def _is_logged(table: Mapping[str, Any]) -> bool:
    found: bool = SETTINGS[ACCESS_LOG].accept(table.get(ACCESS_LOG, True))
    return found


def _methods(value: Any) -> frozenset[str]:
    methods = [value] if isinstance(value, str) else value
    if not isinstance(methods, list) or not all(isinstance(method, str) for method in methods):
        raise ValueError(f'methods: {shown(value)} is not a list of texts: write one such as ["POST"]')
    if "*" in methods:
        raise ValueError("methods: '*' is no pattern here: leave methods out for a route of all of them")
    for method in methods:
        _require_no_slip(method)
    return frozenset(methods)


def _require_no_slip(method: str) -> None:
    from difflib import get_close_matches

    if method not in _METHODS and (meant := get_close_matches(method, _METHODS, n=1, cutoff=_ALIKE)):
        raise ValueError(f"methods: {method!r} is no usual method; did you mean {meant[0]}?")
