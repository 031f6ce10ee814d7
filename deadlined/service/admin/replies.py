"""What the admin listener answers: a status, fields and a body. Errors are problem details (RFC 9457)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from importlib.resources import files

from ...http import Exchange

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"

# an answer must not be kept, and a browser must not guess its type
_ALWAYS = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]

_POLICY = (
    b"content-security-policy",
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
)

Fields = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Reply:
    """A response: its body, or what sends it piece by piece."""

    status: int
    kind: bytes
    body: bytes
    fields: tuple[tuple[bytes, bytes], ...] = ()
    stream: Callable[[Exchange], Awaitable[None]] | None = None

    def headers(self) -> Fields:
        """Return all header fields."""
        length = [(b"content-length", b"%d" % len(self.body))] if self.stream is None else []
        return [(b"content-type", self.kind), *length, *_ALWAYS, *self.fields]


@cache
def page(file: str, kind: bytes) -> Reply:
    """Answer a file of the live page, which may load nothing from elsewhere and be in no other page's frame."""
    return Reply(200, kind, files(__package__).joinpath("page", file).read_bytes(), (_POLICY,))


def text(status: int, line: str) -> Reply:
    """Answer one line of text."""
    return Reply(status, TEXT, f"{line}\n".encode())


def problem(status: int, sentence: str, *fields: tuple[bytes, bytes]) -> Reply:
    """Answer an error, with a sentence for people."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": sentence}
    return Reply(status, b"application/problem+json", json.dumps(body).encode() + b"\n", fields)
