"""The benchmark `instructions`: what it accepts, what it refuses, and one count by a real callgrind."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("rich", reason="the load test's extra is not installed: pip install .[bench]")

from deadlined.timers import COMPILED
from loadtest.bench import builds, instructions, runner
from loadtest.bench.contest import ContestantError
from loadtest.bench.crowd import Crowd
from loadtest.bench.instructions import Case, Instructions

BENCHMARK = runner.load("instructions")
OURS = builds.INSTALLED if COMPILED else builds.PURE

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nHello, world!"


@contextmanager
def answering(*parts: bytes) -> Iterator[int]:
    """Accept one connection, read once for each part, send it back, and close; yields the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                for part in parts:
                    connection.sendall(part)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def ask(port: int) -> None:
    with Crowd(port) as crowd:
        crowd.open(1)


@pytest.mark.parametrize("parts", [(ANSWER,), (ANSWER[:20], ANSWER[20:-2], ANSWER[-2:])], ids=["whole", "in parts"])
def test_an_answer_is_read_to_its_end(parts: tuple[bytes, ...]) -> None:
    with answering(*parts) as port:
        ask(port)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (ANSWER.replace(b"200 OK", b"500 No"), "something else is answered: b'HTTP/1.1 500 No"),
        (ANSWER.replace(b"Hello", b"Hallo"), r"something else is answered: b'.*Hallo, world!'"),
        (ANSWER[:-1], "closed before it had answered: b'HTTP"),
        (b"", "closed before it had answered: b''"),
    ],
    ids=["500", "body", "cut", "nothing"],
)
def test_any_other_answer_is_an_error(answer: bytes, said: str) -> None:
    with answering(answer) as port, pytest.raises(RuntimeError, match=said):
        ask(port)


def test_a_case_is_skipped_where_its_modules_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "find_spec", lambda name: None if name == "starlette" else name)
    assert BENCHMARK.skips(builds.PURE, "hello, httptools") is None
    assert BENCHMARK.skips(builds.PURE, "Starlette JSON") == "not installed (pip install starlette)"


def test_without_valgrind_everything_is_missing_and_says_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert all("apt-get install valgrind" in (each.missing or "") for each in BENCHMARK.contestants())


def test_a_file_without_counters_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "out.1").write_text("events: Ir\n")
    with pytest.raises(ContestantError, match="no counters"):
        instructions._count(tmp_path / "out.1")
    with pytest.raises(ContestantError, match="no counters"):
        instructions._count(tmp_path / "out.2")


@pytest.mark.thorough  # valgrind takes 20 seconds
@pytest.mark.timeout(240)  # a server under callgrind starts in 5 seconds, and in 30 beside other tests
def test_callgrind_counts_the_instructions_of_a_request(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for program in ("valgrind", "cc"):
        if shutil.which(program) is None:
            assert os.environ.get("DEADLINED_REQUIRE_TOOLS") != "1", f"{program} is required, and not there"
            pytest.skip(f"{program} is not installed")
    monkeypatch.setattr(instructions, "KEPT", tmp_path)
    monkeypatch.setattr(Instructions, "asked", {"here": Case("hello", "h11", 4)})
    benchmark = Instructions("instructions")
    benchmark.stated["runs"] = [16, 8, 208]
    found = benchmark.measure(OURS, "here")
    assert 10_000 < found["instructions"] < 10_000_000
