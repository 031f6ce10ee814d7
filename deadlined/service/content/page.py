"""The application that is served when none is given: a live page of the server's connections and their deadlines."""

from __future__ import annotations

import json
import math
from importlib.resources import files
from typing import Any

from ...asgi.handler import Message, Receive, Scope, Send
from ...http import HttpServer


class LivePage:
    """An ASGI application: `/` is the page, `/connections` its data as JSON, all else 404. Set `server` before it is
    served."""

    def __init__(self) -> None:
        self.server: HttpServer | None = None
        self._page = files(__package__).joinpath("page.html").read_bytes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            # nothing to start or to end
            return
        status, kind, body = self._answer(scope["path"])
        start: Message = {
            "type": "http.response.start",
            "status": status,
            "headers": [(b"content-type", kind), (b"cache-control", b"no-store")],
        }
        await send(start)
        await send({"type": "http.response.body", "body": body})

    def _answer(self, path: str) -> tuple[int, bytes, bytes]:
        if path == "/":
            return 200, b"text/html; charset=utf-8", self._page
        if path == "/connections":
            return 200, b"application/json", json.dumps(self._snapshot()).encode()
        return 404, b"text/plain; charset=utf-8", b"not found: try / or /connections\n"

    def _snapshot(self) -> dict[str, Any]:
        assert self.server is not None, "LivePage.server is not set"
        statistics = self.server.statistics()
        return {
            "draining": self.server.draining,
            "accepted": statistics.accepted,
            "requests": statistics.requests,
            "reasons": dict(statistics.reasons),
            "worst_lateness": statistics.worst_lateness,
            "connections": [
                {
                    "id": info.id,
                    "peer": info.peer,
                    "phase": info.phase,
                    "age": round(info.age, 3),
                    "left": None if info.left == math.inf else round(max(info.left, 0.0), 3),
                    "requests": info.requests,
                }
                for info in self.server.connections()
            ],
        }
