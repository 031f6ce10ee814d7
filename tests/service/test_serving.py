"""The command as a function: what it refuses, because only `deadlined.asgi.serve` can do it."""

from __future__ import annotations

import threading

import pytest

from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.service import ServeConfig, serve
from tests.support.conformance import Loop, on_each_loop


async def app_of_nobody(scope: Scope, receive: Receive, send: Send) -> None:
    """Never called."""


def test_the_configuration_of_the_command_takes_no_object_and_says_what_does() -> None:
    with pytest.raises(TypeError, match=r"not an object of type function: await deadlined\.asgi\.serve\(app\)"):
        ServeConfig(app=app_of_nobody)  # type: ignore[arg-type]


@on_each_loop
async def test_the_command_refuses_a_running_event_loop_and_says_what_serves_there(loop: Loop) -> None:
    with pytest.raises(RuntimeError, match=r"one runs here already: await deadlined\.asgi\.serve\(app\)"):
        serve(ServeConfig())


def test_the_command_refuses_a_thread_and_says_what_serves_there() -> None:
    raised: list[BaseException] = []

    def main() -> None:
        try:
            serve(ServeConfig())
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=main)
    thread.start()
    thread.join()
    assert "main thread only: run deadlined.asgi.serve(app)" in str(raised[0])
