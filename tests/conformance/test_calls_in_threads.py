"""Calls in threads of the event loop's pool: what they return and raise, and a cancellation, which does not wait."""

from __future__ import annotations

import threading

import pytest

from deadlined.runtime import Event, call_soon, current_host
from tests.support.conformance import SURELY, Loop, on_each_loop


@on_each_loop
async def test_a_function_is_called_in_another_thread(loop: Loop) -> None:
    assert await current_host().in_thread(threading.get_ident) != threading.get_ident()


@on_each_loop
async def test_what_it_raises_is_raised(loop: Loop) -> None:
    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await current_host().in_thread(fail)


@on_each_loop
async def test_a_cancellation_does_not_wait_for_it(loop: Loop) -> None:
    begun, goes_on, ended = Event(), threading.Event(), Event()
    call = call_soon()

    def wait() -> None:
        call(begun.set)
        assert goes_on.wait(SURELY)
        call(ended.set)

    async def call_it() -> None:
        await current_host().in_thread(wait)

    async with loop.tasks() as tasks:
        running = tasks.start(call_it)
        await begun.wait()
        running.cancel()
        await running.wait()
        assert running.cancelled
        assert not ended.is_set()
        goes_on.set()
        await ended.wait()
