"""What the package is compiled by: it must run where nothing but the package is, and end if something is wrong."""

from __future__ import annotations

import importlib.util
import socket
from math import ceil

import pytest

from deadlined import training
from deadlined.runtime import run

PARSERS = 2 if importlib.util.find_spec("httptools") else 1


def answers(share: float) -> int:
    return sum(training.CONNECTIONS * ceil(case.rounds * share) for case in training.CASES)


def test_it_asks_for_all_cases_on_each_event_loop_with_each_parser_through_tls_and_through_a_proxy() -> None:
    assert training.train(0.02) == len(training.LOOPS) * (PARSERS * answers(0.02) + answers(0.005) + answers(0.01))


@pytest.mark.parametrize("loop", training.LOOPS)
def test_a_proxy_ends_with_an_error_if_a_request_is_not_answered(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = training.Case(b"no request\r\n\r\n", b"an answer that never comes", 1)
    monkeypatch.setattr(training, "CASES", [wrong])
    with pytest.raises(BaseException) as caught:
        run(loop, training.guard, loop, 1.0)
    assert "the request line is malformed" in repr(caught.value)


@pytest.mark.parametrize("loop", training.LOOPS)
def test_it_ends_with_an_error_if_a_request_is_not_answered(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = training.Case(b"no request\r\n\r\n", b"an answer that never comes", 1)
    monkeypatch.setattr(training, "CASES", [wrong])
    with pytest.raises(EOFError, match="the request line is malformed"):
        run(loop, training.serve, loop, "h11", None, 1.0)


@pytest.mark.parametrize("loop", training.LOOPS)
def test_it_ends_with_an_error_if_nobody_can_connect(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectionRefusedError("no network here")

    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(ConnectionRefusedError, match="no network here"):
        run(loop, training.serve, loop, "h11", None, 1.0)


def test_a_client_waits_for_the_end_of_its_answer() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.01)
        theirs.sendall(b"an answer that")
        with pytest.raises(TimeoutError):
            training.read_answer(ours, b"ends")
        theirs.sendall(b" ends")
        with pytest.raises(TimeoutError):
            training.read_answer(ours, b"an answer that ends")
        theirs.sendall(b"an answer that ends")
        training.read_answer(ours, b"ends")
