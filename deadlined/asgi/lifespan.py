"""The lifespan of an ASGI application: it starts before the first connection and ends after the last."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Any

import trio

from .handler import App, Message

_log = logging.getLogger("deadlined.asgi")


class LifespanFailed(RuntimeError):  # noqa: N818, the outcome's name
    """The application reported that it cannot start."""


class Lifespan:
    """`async with Lifespan(app) as state`: the application runs between startup and shutdown.

    Every request gets a copy of `state`. An application that raises before it has sent `lifespan.startup.complete` is
    served without a lifespan, and that is logged; one that returns before is, too. LifespanFailed if it sends
    `lifespan.startup.failed`. At the end it gets `lifespan.shutdown` and `grace` seconds to finish; then it is
    cancelled.
    """

    def __init__(self, app: App, grace: float = 5.0) -> None:
        self._app = app
        self.grace = grace
        self._state: dict[str, Any] = {}
        self._to_app_send, self._to_app = trio.open_memory_channel[Message](2)
        self._started = trio.Event()
        self._stopped = trio.Event()
        self._complete = False
        self._failure: str | None = None
        self._nursery_manager = trio.open_nursery()
        self._nursery: trio.Nursery | None = None

    async def __aenter__(self) -> dict[str, Any]:
        self._nursery = await self._nursery_manager.__aenter__()
        self._nursery.start_soon(self._run)
        self._to_app_send.send_nowait({"type": "lifespan.startup"})
        try:
            await self._started.wait()
        except BaseException:
            # cancelled, or Ctrl-C: __aexit__ will not be called
            self._nursery.cancel_scope.cancel()
            await self._nursery_manager.__aexit__(None, None, None)
            raise
        if self._failure is not None:
            self._nursery.cancel_scope.cancel()
            await self._nursery_manager.__aexit__(None, None, None)
            raise LifespanFailed(self._failure)
        return self._state

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._nursery is not None
        if self._complete and error is None:
            self._to_app_send.send_nowait({"type": "lifespan.shutdown"})
            with trio.move_on_after(self.grace) as grace:
                await self._stopped.wait()
            if grace.cancelled_caught:
                _log.error("the application did not finish its lifespan shutdown within %g s", self.grace)
        self._nursery.cancel_scope.cancel()
        return await self._nursery_manager.__aexit__(kind, error, traceback)

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self._state}
        try:
            await self._app(scope, self._receive, self._send)
        except Exception as error:
            if self._complete:
                _log.exception("the application's lifespan failed")
            elif self._failure is None:
                _log.info("the application is served without a lifespan, it raised %r", error)
        finally:
            self._started.set()
            self._stopped.set()

    async def _receive(self) -> Message:
        return await self._to_app.receive()

    async def _send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "lifespan.startup.complete":
            self._complete = True
            self._started.set()
        elif kind == "lifespan.startup.failed":
            self._failure = message.get("message") or "the application reported a failed startup"
            self._started.set()
        elif kind == "lifespan.shutdown.complete":
            self._stopped.set()
        elif kind == "lifespan.shutdown.failed":
            _log.error("the application's shutdown failed: %s", message.get("message", ""))
            self._stopped.set()
        else:
            raise RuntimeError(f"a lifespan knows no message {kind!r}")
