"""Names of header fields that the access log may have."""

from __future__ import annotations

import re
from typing import Final

ALLOWED: Final = "write names of header fields, such as user-agent and x-request-id"

# RFC 9110, 5.6.2
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

# what a client proves by who it is
_SECRET: Final = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key", "x-auth-token"})


def check_field(text: str) -> None:
    """Raise ValueError for a text that is not the name of a header field, and for one whose value is a secret."""
    if not _TOKEN.fullmatch(text):
        raise ValueError(f"{text!r} is not the name of a header field: {ALLOWED}")
    if text.lower() in _SECRET:
        raise ValueError(f"{text} is never logged, because whoever reads it can act for the client: leave it out")
