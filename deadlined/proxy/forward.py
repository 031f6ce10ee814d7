"""One request on its way: to an upstream, again to another one if that is safe, and an answer if none has answered.

Facts      An upstream that fails may have done what the request asks for.
Hazard     A request that is repeated may be done twice (RFC 9110, 9.2.2). Retries multiply the load of upstreams that
           fail because of their load.
Answer     A request is sent again only if that is safe (`errors.may_repeat`), and within a budget. A response that
           breaks off ends the client's connection so that its part does not look whole. What is forwarded is written
           anew from what was parsed.
Cost       An object per request, and one per try.
"""

from __future__ import annotations

import logging
from typing import Final

from ..http import Disconnected, Exchange, Responder, ResponseCut, answer_problem, request_head
from .attempt import Attempt
from .errors import UNSEEN, Failure, Overloaded, UpstreamError, bare, may_repeat
from .methods import ALWAYS_PASSED, own_answer
from .shared import Shared
from .upstream import Upstream

_log: Final = logging.getLogger("deadlined.proxy")


class Forwarder(Responder):
    """Forwards the request of one exchange. `run` does so in a task. With `upstream`, which was acquired and has an
    idle connection, it is a Responder, which forwards without a task where possible."""

    __slots__ = ("_attempt", "_exchange", "_failed", "_fresh", "_head", "_repeated", "_shared", "_tries", "_upgrade")

    def __init__(self, exchange: Exchange, shared: Shared, upstream: Upstream | None = None) -> None:
        self._exchange = exchange
        self._shared = shared
        self._upgrade, lines = shared.lines(exchange)
        request = exchange.request
        self._head = request_head(request.method, request.path_and_query, (), lines)
        # the upstreams that have failed, or have closed an idle connection: they may be ending
        self._failed: list[Upstream] = []
        self._tries = 0
        # an upstream may have seen a try that has failed
        self._repeated = False
        # an idle connection was stale: use a new one
        self._fresh = False
        # the try that goes on without a task
        self._attempt = None if upstream is None else self._new_attempt(upstream)
        shared.budget.deposit()

    # implements Responder

    def begin(self) -> None:
        assert self._attempt is not None
        self._attempt.begin()

    def abandon(self) -> None:
        assert self._attempt is not None
        self._attempt.abandon()

    async def run(self) -> None:
        """Forward the request, and answer it. Raise ResponseCut if the response has broken off; Disconnected, or a
        group of it, if the client is gone."""
        request, shared = self._exchange.request, self._shared
        if request.method not in ALWAYS_PASSED:
            answer = own_answer(request)
            if answer is not None:
                await self._answer(*answer)
                return
        error = await (self._try() if self._attempt is None else self._finish(self._attempt))
        while isinstance(error, UpstreamError) and self._repeats(error):
            self._log(logging.INFO, error, "sent once more")
            await shared.begin_retry(error, self._failed)
            error = await self._try()
        if isinstance(error, Overloaded):
            shared.overloaded += 1
            _log.warning("%s: %s: answered with 503", self._exchange.request.line, error.detail)
            await self._answer(503, "overloaded", error.detail)
        elif error is not None:
            await self._give_up(error)

    async def _try(self) -> UpstreamError | Overloaded | None:
        """Send the request to an upstream, and its response to the client. Return why that has failed, None if it has
        not."""
        shared = self._shared
        try:
            upstream = await shared.balancer.acquire(self._failed, shared.timeouts.upstream_queue)
        except Overloaded as full:
            return bare(full)
        return await self._finish(self._new_attempt(upstream))

    async def _finish(self, attempt: Attempt) -> UpstreamError | Overloaded | None:
        """Run `attempt` to its end. Return what `_try` returns."""
        try:
            await attempt.run()
        except UpstreamError as error:
            self._note_failure(attempt.upstream, error)
            return bare(error)
        except Overloaded as full:
            return bare(full)
        return None

    def _new_attempt(self, upstream: Upstream) -> Attempt:
        self._tries += 1
        return Attempt(self._exchange, self._shared, upstream, self._head, self._upgrade, self._fresh)

    def _note_failure(self, upstream: Upstream, error: UpstreamError) -> None:
        error.upstream = str(upstream.address)
        self._fresh = error.stale
        if upstream not in self._failed:
            self._failed.append(upstream)

    def _repeats(self, error: UpstreamError) -> bool:
        request = self._exchange.request
        if not may_repeat(error, request.method, request.has_body, self._tries, self._repeated):
            return False
        self._repeated = self._repeated or error.failure not in UNSEEN
        # what costs no upstream anything needs no budget
        return error.stale or error.failure is Failure.CONNECT or self._shared.budget.withdraw()

    async def _give_up(self, error: UpstreamError) -> None:
        """Answer for the upstream, or cut its response."""
        if error.started:
            self._log(logging.WARNING, error, "the response has broken off")
            raise ResponseCut(error.status, error.detail) from error
        self._log(logging.WARNING, error, f"answered with {error.status}")
        await self._answer(error.status, str(error.failure), error.detail)

    def _log(self, level: int, error: UpstreamError, outcome: str) -> None:
        line = self._exchange.request.line
        _log.log(level, "%s: %s: %s (%s): %s", line, error.upstream, error.detail, error.failure, outcome)

    async def _answer(self, status: int, reason: str, detail: str) -> None:
        """Answer in the proxy's own name. `reason` and `detail` are only for a failure."""
        if status != 200:
            await answer_problem(self._exchange, status, reason, detail)
            return
        try:
            self._exchange.start(status, [(b"content-length", b"0")])
            await self._exchange.send(b"", False)
        except Disconnected:
            return
