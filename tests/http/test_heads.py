"""Heads that wait, with exchanges that are played."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import cast

import pytest

from deadlined.http.exchange import Exchange
from deadlined.http.heads import HOLD, HeldHeads
from deadlined.poll import Poller
from tests.support.builds import interpreted_only

pytestmark = interpreted_only


class Played:
    """An exchange that notes that its head was sent, or fails at that."""

    def __init__(self, sent: list[Played], fails: bool = False) -> None:
        self.request = SimpleNamespace(line="GET /played")
        self._sent = sent
        self._fails = fails

    def send_head(self) -> None:
        if self._fails:
            raise OSError("played")
        self._sent.append(self)


def test_one_that_fails_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    now, armed, sent = [0.0], list[float](), list[Played]()
    poller = SimpleNamespace(
        clock=SimpleNamespace(now=lambda: now[0]), set_timer=lambda timer, when: armed.append(when)
    )
    heads = HeldHeads(cast(Poller, poller))
    failing, good, later = Played(sent, fails=True), Played(sent), Played(sent)
    for exchange in (failing, good, good):
        heads.add(cast(Exchange, exchange))
    now[0] = HOLD / 2
    heads.add(cast(Exchange, later))
    now[0] = HOLD
    with caplog.at_level(logging.ERROR):
        heads.send()
    assert sent == [good]
    assert armed == [HOLD, HOLD * 1.5]
    assert "GET /played failed inside the server" in caplog.text
    now[0] = HOLD * 1.5
    heads.send()
    assert sent == [good, later]
