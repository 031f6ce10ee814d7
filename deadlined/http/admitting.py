"""A handler whose requests wait for their turn, and the answer to those that get none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from .admission import Admission
from .errors import Disconnected
from .exchange import Exchange
from .state import Refusal
from .timeouts import INF
from .wire import problem

# seconds after which a client that got 503 is asked to come again
RETRY_AFTER: Final = b"5"

# sentences for people
_DETAILS: Final = {
    Refusal.QUEUE_FULL: "the server handles as many requests as it may, and as many wait as may wait",
    Refusal.QUEUE_TIMEOUT: "the server handles as many requests as it may, and this one has waited for its turn for "
    "too long",
    Refusal.CLIENT_LEFT: "the client had ended its side of the connection before the request had its turn",
}


class AdmittingHandler:
    """Calls `handler` for each exchange that gets a place of `admission`, and answers the others with 503. One whose
    route is not limited needs no place. `before_wait(exchange)` is called for each one that must wait."""

    __slots__ = ("_admission", "_before_wait", "_handler")

    def __init__(
        self,
        handler: Callable[[Exchange], Awaitable[object]],
        admission: Admission,
        before_wait: Callable[[Exchange], object] | None,
    ) -> None:
        self._handler = handler
        self._admission = admission
        self._before_wait = before_wait

    def __call__(self, exchange: Exchange) -> Awaitable[object]:
        """Return an awaitable that serves one request. It raises what the handler raises."""
        return self._handler(exchange) if exchange.limits.max_running == INF else self._serve(exchange)

    async def _serve(self, exchange: Exchange) -> None:
        refusal = None if self._admission.enter(exchange) else await self._wait(exchange)
        if refusal is not None:
            exchange.note_refusal(refusal)
            await answer_problem(exchange, 503, "overloaded", _DETAILS[refusal])
            return
        try:
            await self._handler(exchange)
        finally:
            self._admission.leave(exchange)

    async def _wait(self, exchange: Exchange) -> Refusal | None:
        if self._before_wait is not None:
            self._before_wait(exchange)
        return await self._admission.wait(exchange, exchange.timeouts.request_queue)


async def answer_problem(exchange: Exchange, status: int, reason: str, detail: str) -> None:
    """Answer in the server's own name with problem details (`wire.problem`), and with Retry-After if `status` is 503.
    The connection can be used again, as after any response. Do nothing if the peer is gone."""
    body = problem(status, reason, detail)
    fields = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/problem+json")]
    if status == 503:
        fields.append((b"retry-after", RETRY_AFTER))
    try:
        exchange.start(status, fields)
        await exchange.send(body, False)
    except Disconnected:
        return
