"""One serving process as the admin listener and the supervisor see it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping

import msgspec

from ...http import HttpServer
from ...poll import Poller
from ...proxy import ProxyStatistics
from ..config.rereading import Reloaded
from ..process.stalls import StallWatch
from .gather import Serving
from .picture import Answer, Picture, Question, State, Status, Worker
from .service import RefusedError, Service, UnavailableError
from .showing import shown

# the number of a process that serves alone: a supervisor counts from 1 as well
ONLY = 1

_log = logging.getLogger("deadlined.admin")


class LocalService(Service):
    """The serving process itself. `drain()` begins its drain, and is called at most once; it is None if the service
    would not end with this process. `reload()` reads the configuration again.

    The status is `starting` until `serving` is set, and `draining` once `begin_drain` was called.
    """

    def __init__(self, drain: Callable[[], object] | None, reload: Callable[[], Reloaded]) -> None:
        self.serving: Serving | None = None
        self._reload = reload
        self._drain = drain
        self._draining = False

    @property
    def status(self) -> Status:
        """The status now."""
        if self._draining:
            return "draining"
        return "starting" if self.serving is None else "ready"

    @property
    def _state(self) -> State:
        if self._draining:
            return "draining"
        if self.serving is None:
            return "starting"
        return "serving" if self.serving.available else "waiting"

    def begin(
        self,
        server: HttpServer,
        poller: Poller,
        stalls: StallWatch,
        proxied: Callable[[], ProxyStatistics | None] = lambda: None,
    ) -> None:
        """Note that the process serves. `proxied` returns what a proxy has counted, None if nothing is proxied."""
        self.serving = Serving(server, poller, lambda: stalls.count, proxied)

    def begin_drain(self) -> None:
        """Note that the drain has begun."""
        self._draining = True

    def configured(self, config: object) -> None:
        """Show another configuration from now on."""
        self.config: Mapping[str, object] | None = shown(config)

    async def ask(self, question: Question) -> Picture:
        if question.what == "drain":
            self._begin_own_drain()
        reloaded = self._reload() if question.what == "reload" else None
        answer = await self._answer(question) if question.what in ("counts", "connections") else None
        worker = Worker(worker=ONLY, pid=os.getpid(), up=True, state=self._state, answer=answer)
        return Picture(id=question.id, status=self.status, wanted=1, restarts=0, workers=[worker], reloaded=reloaded)

    def _begin_own_drain(self) -> None:
        if self._drain is None:
            raise RefusedError("--reload keeps the service when its application ends: send it SIGTERM")
        if self.serving is None:
            raise UnavailableError("the service is starting; it can be drained once it is ready")
        if not self._draining:
            self._draining = True
            self._drain()

    async def reply(self, question: bytes, worker: int) -> bytes:
        """Answer a supervisor's question as the worker process number `worker`. Return b"" if nothing is served yet, or
        if `question` is b"", which only asks whether the process answers."""
        answer = await self._answer(msgspec.json.decode(question, type=Question), worker) if question else None
        return b"" if answer is None else msgspec.json.encode(answer)

    def last_reply(self, worker: int) -> bytes:
        """Return the last counts, which the process sends unasked before it ends. Return b"" if nothing was served, or
        if they cannot be counted: that must not make an orderly drain a failure."""
        try:
            return b"" if self.serving is None else msgspec.json.encode(self.serving.last_answer(worker))
        except Exception:
            _log.exception("cannot tell the supervisor the last counts")
            return b""

    async def _answer(self, question: Question, worker: int = ONLY) -> Answer | None:
        return None if self.serving is None else await self.serving.answer(question, worker)
