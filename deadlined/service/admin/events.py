"""The stream of the live page: the service once a second, as server-sent events, until the client leaves or a drain.

Facts      A page may stay open for days, in a tab that is not in view. A browser reopens a stream by itself after an
           end or an error of the network, and not after an answer other than 200: the page does so then.
Hazard     A stream has no end that a deadline could bound; a client that does not read holds memory.
Answer     Each event has a deadline of its own, and a client that does not take it is cut. Each event waits for its
           time slot, as every other question does. There are MOST streams at most. A drain, which lasts for less than
           the time between two events, wakes those that wait for the next.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ...http import Exchange
from ...runtime import Event, current_time
from .picture import Question
from .service import UnavailableError

# streams at once: one for each open page
MOST = 10

# seconds between two events, and within which a client must have taken one
PERIOD = 1.0
_PATIENCE = 10.0

Ask = Callable[[Question], Awaitable[bytes]]


class Streams:
    """The open streams of a listener. `ask(question)` returns the data of an event."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._open = 0
        self._ending = Event()

    @property
    def full(self) -> bool:
        """True if no further stream may be opened."""
        return self._open >= MOST

    def end(self) -> None:
        """End all streams after the event that each has begun."""
        self._ending.set()

    async def run(self, exchange: Exchange, question: Question) -> None:
        """Send events as the body of a response that was started, until the client leaves, or `end` is called."""
        self._open += 1
        try:
            exchange.set_handler_deadline(float("inf"))
            while not self._ending.is_set():
                begun = current_time()
                event = await self._event(question)
                exchange.set_write_deadline(current_time() + _PATIENCE)
                await exchange.send(event, more=True)
                # what an event has taken is part of its second
                await self._ending.wait_until(begun + PERIOD)
            await exchange.send(b"", more=False)
        finally:
            self._open -= 1

    async def _event(self, question: Question) -> bytes:
        try:
            return b"data: %b\n\n" % (await self._ask(question)).rstrip(b"\n")
        except UnavailableError:
            # a comment: it keeps the connection alive and changes nothing in the page
            return b": busy\n\n"
