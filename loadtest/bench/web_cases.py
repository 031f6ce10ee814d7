"""The cases of the HTTP benchmarks: applications of real frameworks first, then plain pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..frameworks import FASTAPI, STARLETTE
from ..servers import ROOT
from .web_servers import APP

CONNECTIONS: Final = 64

_CLOSE: Final = ("-H", "Connection: close")
_UPLOAD: Final = ("-s", str(ROOT / "loadtest" / "clients" / "upload.lua"))
_UPLOAD_10K: Final = ("-s", str(ROOT / "loadtest" / "clients" / "upload_10k.lua"))

_UPLOAD_1M: Final = ("-s", str(ROOT / "loadtest" / "clients" / "upload_1m.lua"))

# what a browser sends with a page
_BROWSER: Final = tuple(
    word
    for field in (
        "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36",
        "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
        "Accept-Language: en-US,en;q=0.5",
        "Accept-Encoding: gzip, deflate, br, zstd",
        "Cache-Control: no-cache",
        "Sec-Fetch-Dest: document",
        "Sec-Fetch-Mode: navigate",
        "Sec-Fetch-Site: none",
        "Sec-Fetch-User: ?1",
        "Upgrade-Insecure-Requests: 1",
        "Cookie: session=0123456789abcdef0123456789abcdef; theme=dark",
    )
    for word in ("-H", field)
)


@dataclass(frozen=True)
class Case:
    """The requested path, wrk's options, whether the allocator keeps its memory, the application, and connections."""

    path: str
    options: Sequence[str] = ()
    neutral: bool = True
    app: str = APP
    connections: int = CONNECTIONS


MAIN: Final = "hello"
DEFAULTS: Final = "hello, default malloc"
JSON: Final = "Starlette JSON"
ITEM: Final = "FastAPI"
PIECES: Final = "Starlette, 20 pieces"
EVENTS: Final = "Starlette, 20 events 1 ms apart, 256 connections"
SLEEP: Final = "Starlette, sleeps 10 ms, 256 connections"
UPLOAD: Final = "Starlette, 10 kB up"
LARGE: Final = "Starlette, 100 kB down"
CLOSING: Final = "Starlette JSON, closing"
ALONE: Final = "Starlette JSON, one connection"
BLOCKING: Final = "FastAPI, a function in a thread"
FILE: Final = "Starlette, a file of 3 kB"
BEHIND: Final = "Starlette, 1 MB up behind a middleware, 8 connections"
BROWSER: Final = "a browser's head"
MANY: Final = "hello, 1,000 connections"

CASES: Final[Mapping[str, Case]] = {
    JSON: Case("/json", app=STARLETTE),
    ITEM: Case("/items/7?note=new", app=FASTAPI),
    PIECES: Case("/pieces", app=STARLETTE),
    EVENTS: Case("/events", app=STARLETTE, connections=256),
    SLEEP: Case("/sleep", app=STARLETTE, connections=256),
    UPLOAD: Case("/upload", _UPLOAD_10K, app=STARLETTE),
    LARGE: Case("/large", app=STARLETTE),
    CLOSING: Case("/json", _CLOSE, app=STARLETTE),
    ALONE: Case("/json", app=STARLETTE, connections=1),
    BLOCKING: Case("/blocking", app=FASTAPI),
    FILE: Case("/file", app=STARLETTE),
    BEHIND: Case("/behind/upload", _UPLOAD_1M, app=STARLETTE, connections=8),
    BROWSER: Case("/", _BROWSER),
    MANY: Case("/", connections=1000),
    MAIN: Case("/"),
    "JSON 1 KiB": Case("/json"),
    "64 KiB down": Case("/large"),
    "64 KiB up": Case("/upload", _UPLOAD),
    "hello, closing": Case("/", _CLOSE),
    "JSON 1 KiB, closing": Case("/json", _CLOSE),
    "64 KiB down, closing": Case("/large", _CLOSE),
    "64 KiB up, closing": Case("/upload", (*_UPLOAD, *_CLOSE)),
    DEFAULTS: Case("/", neutral=False),
}
