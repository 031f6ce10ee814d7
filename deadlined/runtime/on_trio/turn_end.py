"""Calls at the end of a turn of trio's loop, after its last task and before the loop waits for events.

Facts      A turn runs each task that was ready when it began, once. `run_sync_soon` is made for other threads: each
           call writes to a socket, and is made by a task in the middle of a later turn. Trio's instruments are called
           at the end of a turn; by then the loop has chosen how long it will wait.
Hazard     A task that is scheduled at that moment, or a deadline that is set, would wait until the loop has waited.
Answer     While calls are due a task of our own is ready, so that the loop will not wait. Without it nothing is called.
Cost       A step of that task for each turn with calls. An instrument is called in every turn.

This module is interpreted: trio reads the methods of an instrument's class.
"""

from __future__ import annotations

from collections.abc import Callable

import trio
from trio.lowlevel import add_instrument, enable_ki_protection, remove_instrument

from .parking import TaskParker, yield_shielded

Call = Callable[[], object]


class TurnEnd(trio.abc.Instrument):
    """Makes calls at the end of the turn while `run` runs, a task of the owner's nursery."""

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._parker = TaskParker(self._cancelled)
        # the task is parked, and must be woken for a call
        self._is_parked = False
        # calls can be made
        self.is_open: bool = False
        self._failure: BaseException | None = None

    @enable_ki_protection
    def call(self, function: Call) -> None:
        """Call `function()` once, at the end of this turn. It must not raise. Only while `is_open`."""
        self._calls.append(function)
        if self._is_parked:
            self._is_parked = False
            self._parker.wake()

    @enable_ki_protection
    async def run(self) -> None:
        """Keep the loop from waiting while calls are due, until cancelled."""
        self.is_open = True
        add_instrument(self)
        try:
            while self._failure is None:
                if self._calls:
                    await yield_shielded
                else:
                    self._is_parked = True
                    await self._parker
            raise self._failure
        finally:
            self.is_open = self._is_parked = False
            remove_instrument(self)
            self._make_calls()

    @enable_ki_protection
    def before_io_wait(self, timeout: float) -> None:
        """Make the calls. Trio's loop calls it at the end of each turn."""
        if self._calls and timeout <= 0.0:
            try:
                self._make_calls()
            except BaseException as error:
                # raised here it would only be logged
                self._failure = error

    def _make_calls(self) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            call()

    def _cancelled(self) -> None:
        self._is_parked = False
