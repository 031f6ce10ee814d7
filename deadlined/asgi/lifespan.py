"""The lifespan of an ASGI application: it starts before the first connection and ends after the last."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ..runtime import Event, Group, current_time, is_loops_cancellation, open_group, protected_from_interrupts
from .messages import App, Message, Receive, Scope, Send

_log = logging.getLogger("deadlined.asgi")

# seconds that an application's shutdown may take even if the drain before it has used up its time
LEAST_GRACE = 1.0

# seconds that what is around the application, such as a middleware with an `async with`, may take to close once the
# application has reported the end of its shutdown. Nobody is told of one that never ends
_CLOSING = 1.0

# seconds between two looks at a deadline that may move
_INTERVAL = 0.05

# what follows when a lifespan ends although nobody has told it to
_WITHOUT = ", and the application is served without it"

# what is said of an error after the cancellation; raised, it would hide what has ended the block
_FAILED_LATE = "the application's lifespan failed when it was cancelled"

# what the application receives, in this order
_MESSAGES = ("lifespan.startup", "lifespan.shutdown")

LIFESPANS = ("auto", "on", "off")


class LifespanFailed(RuntimeError):  # noqa: N818, the outcome's name
    """The application reported that it cannot start."""


class Lifespan:
    """`async with Lifespan(app) as state`: the application runs between startup and shutdown.

    Every request gets a copy of `state`, which is an attribute, too, from the beginning.

    Startup: the block begins once the application has sent `lifespan.startup.complete`; `started`, if given, is called
    then, and from then on the application must be told to shut down. If it returns or raises an Exception before that,
    it is served without a lifespan, and the exception is logged; if `mode` is "on", LifespanFailed is raised instead.
    LifespanFailed is also raised if the application sends `lifespan.startup.failed`, or raises another BaseException
    (SystemExit, or asyncio's CancelledError because it has cancelled its own task). KeyboardInterrupt passes. `error`
    is what the application raised before it had started, None if nothing.

    In the block: what the application raises is logged, and requests are served.

    Shutdown: the end of the block sends `lifespan.shutdown` to an application that has started, unless `shut_down` has
    done so. The application has `grace` seconds to finish, and one of them at most to return after it has sent
    `lifespan.shutdown.complete`; then it is cancelled. An Exception that it raises after that is logged. If an error
    has ended the block or the startup, it has LEAST_GRACE seconds at most. A scope of trio's around the block cancels
    the application as well, at once.

    With the `mode` "off" the application is told nothing, and the state is empty. ValueError for any mode that is none
    of LIFESPANS.
    """

    def __init__(
        self, app: App, grace: float = 5.0, *, mode: str = "auto", started: Callable[[], object] | None = None
    ) -> None:
        if mode not in LIFESPANS:
            raise ValueError(f"lifespan {mode!r}: it is one of {', '.join(LIFESPANS)}")
        self._app = _told_nothing if mode == "off" else app
        self._note_start = started
        self.grace = grace
        self._required = mode == "on"
        self.error: BaseException | None = None
        self.state: dict[str, Any] = {}
        self._group: Group | None = None
        # how many of _MESSAGES the application has received
        self._received = 0
        self._shutdown = Event()
        self._started = Event()
        self._stopped = Event()
        # it has returned, or waits for a message that will not come
        self._closed = Event()
        # it has sent `lifespan.startup.complete`
        self._complete = False
        # why it could not start; None if it could, or is served without a lifespan
        self._failure: str | None = None
        # what it says of its failed shutdown, until that is logged: frameworks raise the same afterwards
        self._complaint: str | None = None
        # the application is cancelled from now on
        self._ending = False

    # Ctrl-C comes where these wait: it must not leave the group open
    @protected_from_interrupts
    async def __aenter__(self) -> dict[str, Any]:
        group = self._group = open_group()
        await group.__aenter__()
        group.start_soon(self._run)
        try:
            await self._started.wait()
        except BaseException as error:
            # cancelled, or Ctrl-C: __aexit__ will not be called
            await self._leave(group, error)
            # also if the group has taken the cancellation for its own: there is none any more
            raise
        if self._failure is not None:
            await self._cancel(group, None)
            raise LifespanFailed(self._failure) from self.error
        return self.state

    @protected_from_interrupts
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        assert self._group is not None
        return await self._leave(self._group, error)

    async def shut_down(self, deadline: Callable[[], float], least: float = 0.0) -> None:
        """Tell the application to finish, and return when it has. Return at `deadline()` in any case, which is absolute
        and may move, or after `least` seconds if that is later: what a drain leaves the application at least, 0 if this
        follows no drain. The application is not cancelled.

        Call it in the block, once. It does nothing if the application has not started.
        """
        if not self._complete or self._shutdown.is_set():
            return
        self._shutdown.set()
        begun = current_time()
        while not await self._stopped.wait_until(min(max(deadline(), begun + least), current_time() + _INTERVAL)):
            if (ends := max(deadline(), begun + least)) <= current_time():
                seconds = round(ends - begun, 3)
                remedy = "; a longer drain (--drain) gives it more" if least else ""
                _log.error("the application did not finish its lifespan shutdown within %g s%s", seconds, remedy)
                return
        await self._closed.wait_until(min(max(deadline(), begun + least), current_time() + _CLOSING))

    async def _leave(self, group: Group, error: BaseException | None) -> bool | None:
        """Shut the application down, cancel what is left of it, and leave the group with `error`."""
        ends = current_time() + (self.grace if error is None else min(self.grace, LEAST_GRACE))
        try:
            await self.shut_down(lambda: ends)
        except BaseException as interruption:
            # cancelled, or Ctrl-C: the group must not stay open
            if not await self._cancel(group, interruption):
                raise
            return None
        return await self._cancel(group, error)

    async def _cancel(self, group: Group, error: BaseException | None) -> bool | None:
        """Cancel what is left of the application, and leave the group with `error`."""
        self._ending = True
        group.cancel()
        return await group.__aexit__(type(error) if error else None, error, error.__traceback__ if error else None)

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        try:
            await self._app(scope, self._receive, self._send)
            self._note_return()
        except KeyboardInterrupt:
            # `__aenter__` must not succeed if it runs before this error has reached it
            self._failure = "it was interrupted"
            raise
        except BaseException as error:
            if is_loops_cancellation(error) or (self._ending and not isinstance(error, Exception)):
                raise
            self._note_failure(error)
        finally:
            self._log_complaint()
            for event in (self._started, self._stopped, self._closed):
                event.set()

    @property
    def _is_known(self) -> bool:
        """True if the application has received the first message, and so knows lifespans."""
        return self._received > 0

    def _note_return(self) -> None:
        if self._required and not self._complete and self._failure is None:
            self._failure = self._unfinished("it returned")

    def _note_failure(self, error: BaseException) -> None:
        if self._ending or self._complete:
            self._complaint = None
            _log.error(_FAILED_LATE if self._ending else self._what_failed, exc_info=error)
            return
        self.error = error
        if self._failure is not None:
            return
        if not isinstance(error, Exception):
            self._failure = f"it raised {error!r}"
        elif self._required:
            self._failure = self._unfinished(f"it raised {error!r}")
        else:
            level, shown = (logging.WARNING, error) if self._is_known else (logging.INFO, None)
            _log.log(level, "the application is served without a lifespan, it raised %r", error, exc_info=shown)

    @property
    def _what_failed(self) -> str:
        return "the application's " + ("shutdown failed" if self._shutdown.is_set() else f"lifespan failed{_WITHOUT}")

    def _log_complaint(self) -> None:
        """Log what the application has said of its failed shutdown, if it has not raised it."""
        if self._complaint is None:
            return
        # one that is cancelled without having been told to shut down fails because of that
        level = logging.DEBUG if self._ending and not self._shutdown.is_set() else logging.ERROR
        _log.log(level, "%s: %s", self._what_failed, self._complaint)

    def _unfinished(self, what: str) -> str:
        """Return why a lifespan that is required has failed."""
        return f"{what} before lifespan.startup.complete" if self._is_known else f"it has no lifespan, {what}"

    async def _receive(self) -> Message:
        # one that has swallowed its cancellation, as asyncio allows, is not told again
        if self._is_known and not self._ending:
            await self._shutdown.wait()
        if self._received == len(_MESSAGES):
            # nothing comes after the shutdown
            self._closed.set()
            await Event().wait()
        self._received += 1
        return {"type": _MESSAGES[self._received - 1]}

    async def _send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "lifespan.startup.complete":
            if self._note_start is not None:
                self._note_start()
            self._complete = True
            self._started.set()
        elif kind == "lifespan.startup.failed":
            self._failure = message.get("message") or "the application reported a failed startup"
            self._started.set()
        elif kind == "lifespan.shutdown.complete":
            if not self._ending and not self._shutdown.is_set():
                # a task group around its `yield` was cancelled, for example
                _log.warning("the application's lifespan ended before its shutdown%s", _WITHOUT)
            self._stopped.set()
        elif kind == "lifespan.shutdown.failed":
            self._complaint = message.get("message") or "it has not said why"
            self._stopped.set()
        else:
            raise RuntimeError(f"a lifespan has no message {kind!r}")


async def _told_nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """Stand for an application whose lifespan is not run."""
