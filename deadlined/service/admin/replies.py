"""What the admin listener answers: a status, fields and a body. Errors are problem details (RFC 9457)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"

# an answer is about this moment, and a browser must take it for what it says it is
_ALWAYS = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]

Fields = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Reply:
    """A whole response."""

    status: int
    kind: bytes
    body: bytes
    fields: tuple[tuple[bytes, bytes], ...] = ()

    def headers(self) -> Fields:
        """Return all header fields."""
        length = b"%d" % len(self.body)
        return [(b"content-type", self.kind), (b"content-length", length), *_ALWAYS, *self.fields]


def text(status: int, line: str) -> Reply:
    """Answer one line of text."""
    return Reply(status, TEXT, f"{line}\n".encode())


def problem(status: int, sentence: str, *fields: tuple[bytes, bytes]) -> Reply:
    """Answer an error, with a sentence for people."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": sentence}
    return Reply(status, b"application/problem+json", json.dumps(body).encode() + b"\n", fields)
