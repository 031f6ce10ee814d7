"""The supervisor's part of the admin process: what cannot be started is tried again, and ends nothing."""

from __future__ import annotations

import dataclasses
import errno
import os
import selectors
import socket
import time
from collections.abc import Iterator
from typing import NoReturn

import pytest

from deadlined.service.admin.address import open_admin
from deadlined.service.admin.oversight import AdminProcess
from deadlined.service.config.rereading import Reloaded
from deadlined.service.workers.overseer import Controls
from tests.support.runtime import forks

pytestmark = forks


class Watched:
    """An admin process that ends with its supervisor, and what its supervisor logs."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, object]]] = []
        self.selector = selectors.DefaultSelector()
        self.process = AdminProcess(
            open_admin("127.0.0.1:0", None),
            self._serve,
            lambda event, **fields: self.said.append((event, fields)),
        )
        self.controls = Controls(
            self.selector, lambda why: None, lambda by: Reloaded("reloaded"), lambda: None, lambda: False, 1
        )

    def _serve(self, end: socket.socket) -> None:
        end.recv(1)


@pytest.fixture
def watched() -> Iterator[Watched]:
    found = Watched()
    yield found
    found.process.end()
    found.selector.close()


@pytest.mark.parametrize(
    ("module", "name", "number"), [(socket, "socketpair", errno.EMFILE), (os, "fork", errno.EAGAIN)]
)
def test_one_that_cannot_be_started_is_tried_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, module: object, name: str, number: int
) -> None:
    def refuse() -> NoReturn:
        raise OSError(number, "none is left")

    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with monkeypatch.context() as patch:
        patch.setattr(module, name, refuse)
        watched.process.begin(watched.controls)
        line = ("cannot start the admin process", {"level": "error", "why": "none is left", "again_in": 1.0})
        assert watched.said == [line]
        # a second later, and no earlier
        assert watched.process.until() == 1001.0
        clock[0] = 1000.9
        watched.process.tick()
        assert watched.said == [line]
        clock[0] = 1001.0
        watched.process.tick()
        assert watched.said == [line, line]
    clock[0] = 1002.0
    watched.process.tick()
    assert watched.process.until() == float("inf")
    assert watched.said == [line, line]


@pytest.mark.parametrize("wanted", [1, 2, 3])
def test_it_is_ready_once_as_many_serve_as_there_should_be_also_if_that_becomes_less(
    watched: Watched, wanted: int
) -> None:
    watched.process.begin(dataclasses.replace(watched.controls, wanted=4))
    for pid in (1, 2, 3):
        watched.process.joined(pid, pid, lambda kind, payload: None)
    for pid in (1, 2):
        watched.process.is_ready(pid)
    assert watched.process._status() == "starting"
    watched.process.want(wanted)
    assert watched.process._status() == ("ready" if wanted < 3 else "starting")
    # one that is added later, or replaced, does not take it out of its rotation
    watched.process.want(4)
    assert watched.process._status() == ("ready" if wanted < 3 else "starting")
