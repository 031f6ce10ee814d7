"""A disk that is full under the log: lines are lost and counted, and nothing else happens, also during a reload."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deadlined.service.log.access import DELAY
from deadlined.service.log.output import open_stream
from tests.support.command import APPS, COMMAND, PATIENCE, launched
from tests.support.load import Load

# bytes that a file may have, by RLIMIT_FSIZE: a small disk that needs no privilege. Python's bytecode must fit.
ROOM = 1024 * 1024
# bytes of them that the log has at first
BEFORE = ROOM - 16 * 1024


def notice(lost: int, why: str) -> bytes:
    return f"lost {lost}: {why}\n".encode()


@contextmanager
def full(fd: int) -> Iterator[None]:
    """Let writes to a descriptor fail as on a full disk."""
    kept = os.dup(fd)
    device = os.open("/dev/full", os.O_WRONLY)
    os.dup2(device, fd)
    try:
        yield
    finally:
        os.dup2(kept, fd)
        os.close(device)
        os.close(kept)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"of another process", b"of another process\nlost 1: No space left on device\nnext\n"),
        (b"whole\n", b"whole\nlost 1: No space left on device\nnext\n"),
        (b"", b"lost 1: No space left on device\nnext\n"),
    ],
    ids=["torn", "whole", "empty"],
)
def test_the_notice_is_a_line_of_its_own_behind_one_that_another_process_has_lost_half_of(
    tmp_path: Path, before: bytes, after: bytes
) -> None:
    file = tmp_path / "log"
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    stream = open_stream(fd, notice)
    with full(fd):
        print("dropped", file=stream)
    file.write_bytes(before)
    print("next", file=stream)
    assert file.read_bytes() == after
    os.close(fd)


def test_a_line_that_was_torn_and_is_gone_with_the_file_s_contents_is_not_ended(tmp_path: Path) -> None:
    file = tmp_path / "log"
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    stream = open_stream(fd, notice)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        print("whole", file=stream)
        print("too long for it", file=stream)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert file.read_bytes() == b"whole\ntoo "
    os.truncate(file, 0)
    print("next", file=stream)
    assert file.read_bytes() == b"lost 1: File too large\nnext\n"
    os.close(fd)


class Service:
    """Two worker processes whose log is a file with ROOM."""

    def __init__(self, process: subprocess.Popen[str], directory: Path) -> None:
        self.process = process
        self.log = directory / "log"
        self.address = str(directory / "socket")

    def wait_until_it_listens(self) -> None:
        end = time.monotonic() + PATIENCE
        # its file is there before it listens
        with socket.socket(socket.AF_UNIX) as client:
            while client.connect_ex(self.address):
                assert self.process.poll() is None
                assert time.monotonic() < end
                time.sleep(0.01)

    def wait_until_it_is_quiet(self, pids: set[int]) -> None:
        """Wait until worker processes have tried to write nothing for several times as long as the log keeps lines."""
        before: list[str] = []
        while (now := [writes(pid) for pid in sorted(pids)]) != before:
            before = now
            time.sleep(5 * DELAY)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


def writes(pid: int) -> str:
    """How often a process has called `write`, also in vain."""
    (line,) = re.findall(r"^syscw: \d+$", Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)
    return str(line)


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    (tmp_path / "apps.py").write_text(APPS)
    limited = ["sh", "-c", f'ulimit -f {ROOM // 512}; exec "$@"', "sh"]
    (tmp_path / "log").write_text("x" * (BEFORE - 1) + "\n")
    arguments = ("serve", "apps:pid", "--workers", "2", "--uds", "socket")
    with (
        (tmp_path / "log").open("ab") as log,
        launched(*arguments, cwd=tmp_path, command=[*limited, *COMMAND], stdout=log) as process,
    ):
        yield Service(process, tmp_path)


def test_a_rolling_reload_ends_and_no_request_fails_while_nothing_can_be_logged(service: Service) -> None:
    service.wait_until_it_listens()
    with Load(service.address, 3, 3).running() as load:
        while service.log.stat().st_size < ROOM or len(load.answers) < 2:
            load.wait_for_more(50)
        # their answers are their numbers
        old = set(load.answers)
        service.process.send_signal(signal.SIGHUP)
        while len(new := {int(pid) for pid in set(load.answers) - old}) < 2 or any(exists(int(pid)) for pid in old):
            load.wait_for_more(10)
        load.wait_for_more(100)
    assert load.failures == {}
    # a line that is being ended while the file is emptied would leave an empty one
    service.wait_until_it_is_quiet(new)
    # the disk has room again
    os.truncate(service.log, 0)
    service.process.send_signal(signal.SIGTERM)
    _, err = service.process.communicate(timeout=PATIENCE)
    assert (service.process.returncode, err) == (0, "")
    lines = service.lines()
    lost = {line["process"]: line["lost"] for line in lines if line["event"] == "log lines lost"}
    assert set(lost) == {service.process.pid, *new}
    assert {line["why"] for line in lines if "lost" in line} == {"File too large"}
    # Of the supervisor: reloaded, two that have ended, and that all are replaced. It may say the last of them when
    # there is room again
    said = [line["event"] for line in lines if line["process"] == service.process.pid]
    assert lost[service.process.pid] + said.count("worker ended") + said.count("workers replaced") == 4
    for pid in new:
        (stopped,) = [line for line in lines if line["process"] == pid and line["event"] == "stopped"]
        written = [line for line in lines if line["process"] == pid and line["event"] != "log lines lost"]
        # that there is no lifespan, listening, draining, and stopped
        assert lost[pid] + len(written) == stopped["requests"] + stopped["connections"] + 4
