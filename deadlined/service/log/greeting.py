"""The first screen of a server on a terminal: what is served where, and by which deadlines."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from ... import __version__
from ...http import Timeouts
from ...timers import COMPILED
from .figures import count_text, size_text, time_text
from .style import Style, harmless

# the deadlines of requests and responses
_OF_HTTP = ("read_header", "read", "body", "write", "handler")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a server is started with. `app`: the application, or what else is served. `http`: the parser, "" if what is
    served is not HTTP."""

    app: str
    urls: Sequence[str]
    loop: str
    http: str
    workers: int
    timeouts: Timeouts


def screen(facts: Facts, style: Style) -> str:
    """Return the lines of the first screen."""
    timers = "compiled" if COMPILED else "not compiled"
    title = f"deadlined {__version__} ({timers}), Python {platform.python_version()}"
    rows = [
        ("serving", harmless(facts.app)),
        ("on", style.paint("bold", "  ".join(map(harmless, facts.urls))) + style.paint("dim", "  Ctrl-C to stop")),
        ("with", ", ".join([facts.loop, *_parser(facts.http), _processes(facts.workers)])),
        *_deadlines(facts.timeouts, bool(facts.http), any(url.startswith(("https:", "tls:")) for url in facts.urls)),
    ]
    lines = [f"  {style.paint('dim', f'{name:<9}')}  {text}" for name, text in rows]
    return "\n".join([style.paint("bold", title), *lines]) + "\n"


def parser_in_use(name: str) -> str:
    """Return the parser that the choice `name` of --http stands for."""
    if name != "auto":
        return name
    return "h11" if find_spec("httptools") is None else "httptools"


def _parser(name: str) -> list[str]:
    return [parser_in_use(name)] if name else []


def _processes(workers: int) -> str:
    return "one process" if workers == 1 else count_text(workers, "worker process", "worker processes")


def _deadlines(timeouts: Timeouts, http: bool, tls: bool) -> list[tuple[str, str]]:
    """Return the rows of the deadlines: those that hold, and the names of those that are off."""
    body = f" + {size_text(timeouts.body_min_rate)}/s"
    write = f" or {size_text(timeouts.write_min_rate)}/s"
    shown = [
        *([("handshake", timeouts.handshake, "")] if tls else []),
        ("read_header", timeouts.read_header, ""),
        ("read", timeouts.read, ""),
        ("body", timeouts.body_grace, "" if timeouts.body_min_rate == math.inf else body),
        ("send", timeouts.write_grace, "" if timeouts.write_min_rate == math.inf else write),
        ("write", timeouts.write, ""),
        ("idle", timeouts.idle, ""),
        ("handler", timeouts.handler, ""),
        ("connection_age", timeouts.connection_age, ""),
        ("drain", timeouts.drain, ""),
    ]
    if not http:
        shown = [row for row in shown if row[0] not in _OF_HTTP]
    held = ", ".join(f"{name} {time_text(seconds)}{rate}" for name, seconds, rate in shown if seconds < math.inf)
    off = ", ".join(name for name, seconds, _ in shown if seconds == math.inf)
    return [*([("deadlines", held)] if held else []), *([("off", off)] if off else [])]
