"""Standard output that is gone, full or stalled: it costs log lines, and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import pytest

from deadlined.service.log.access import MANY as RECORDS
from deadlined.service.log.output import PATIENCE as LINE_PATIENCE
from deadlined.service.log.output import count_losses_anew, open_stream, plain_notice, write_last_lines_to
from tests.support.command import COMMAND, PATIENCE, launched, read_all

APPS = """
import os
import sys
import time
from pathlib import Path
import trio

async def answer(send, body):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})

async def slow(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    if scope["path"] == "/slow":
        Path("busy").touch()
        await trio.sleep(0.3)
    print("an application prints", flush=True)
    await answer(send, b"finished")

async def blocking(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    Path("busy").touch()
    # in steps: a signal that comes just before the system call is seen at its end
    for _ in range(600):
        time.sleep(0.1)

async def pid(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    await answer(send, str(os.getpid()).encode())

async def closing(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    sys.stdout.close()
    await answer(send, b"finished")
"""

# the log lines of so many requests with such a path do not fit into a pipe; each alone is below PIPE_BUF
LONG = "/" + "x" * 3000
MANY = 40


class Output:
    """A stream on the write end of a pipe."""

    def __init__(self, read_end: int, stream: TextIO) -> None:
        self._read_end = read_end
        self.stream = stream

    def read(self) -> str:
        """Return what is in the pipe now."""
        data = b""
        while select.select([self._read_end], [], [], 0)[0]:
            data += os.read(self._read_end, 65536)
        return data.decode()

    def read_lines(self) -> list[str]:
        return self.read().splitlines()

    def fill(self) -> int:
        """Write lines until the pipe has no room; return how many."""
        written = 0
        while select.select([], [self.stream.fileno()], [], 0)[1]:
            self.stream.write(f"{written}\n")
            written += 1
        return written


def notice(lost: int, why: str) -> bytes:
    return f"lost {lost}: {why}\n".encode()


UNREAD = "they were not read in time"


@pytest.fixture
def output() -> Iterator[Output]:
    read_end, write_end = os.pipe()
    stream = open_stream(write_end, notice)
    yield Output(read_end, stream)
    stream.buffer.release()  # type: ignore[attr-defined]
    os.close(write_end)
    os.close(read_end)


def test_what_can_be_written_is_written(output: Output) -> None:
    print("one", 2, file=output.stream)
    assert output.read() == "one 2\n"
    output.stream.write("no line yet")
    output.stream.flush()
    assert output.read() == "no line yet"


def test_lines_that_do_not_fit_are_dropped_and_counted(output: Output) -> None:
    written = output.fill()
    output.stream.write("dropped 1\ndropped 2\n")
    output.stream.write("dropped 3\n")
    assert output.read_lines() == [str(number) for number in range(written)]
    output.stream.write("next\n")
    output.stream.write("last\n")
    assert output.read_lines() == [f"lost 3: {UNREAD}", "next", "last"]


def test_the_last_line_waits_for_a_reader_that_lags(output: Output) -> None:
    written = output.fill()
    output.stream.write("dropped\n")
    write_last_lines_to(output.stream)
    read: list[str] = []
    # longer than any other line would wait, and a loss was just now
    reader = threading.Timer(6 * LINE_PATIENCE, lambda: read.extend(output.read_lines()))
    reader.start()
    output.stream.write("last\n")
    reader.join()
    assert [*read, *output.read_lines()] == [*map(str, range(written)), f"lost 1: {UNREAD}", "last"]


def test_a_line_that_fits_in_part_is_ended_before_the_notice(output: Output) -> None:
    output.stream.write("x" * 100_000 + "\n")
    torn = output.read()
    assert set(torn) == {"x"}
    assert 0 < len(torn) < 100_000
    output.stream.write("next\n")
    assert output.read() == f"\nlost 1: {UNREAD}\nnext\n"


def test_each_write_to_the_descriptor_has_whole_lines_if_they_fit(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[bytes] = []

    def write(_: int, data: bytes) -> int:
        writes.append(data)
        return len(data)

    monkeypatch.setattr(os, "write", write)
    lines = ["a" * 99] * 100 + ["b" * (3 * select.PIPE_BUF)] + ["c" * 99] * 100
    text = "".join(line + "\n" for line in lines)
    output.stream.write(text)
    assert b"".join(writes) == text.encode()
    assert max(map(len, writes)) <= select.PIPE_BUF
    assert all(write.endswith(b"\n") for write in writes if b"b" not in write)
    # as few as possible
    assert len(writes) <= len(text) // select.PIPE_BUF + 4


class AlwaysReady:
    """A poll object that says yes."""

    def register(self, fd: int, events: int) -> None:
        self._answer = [(fd, events)]

    def poll(self, _: float) -> list[tuple[int, int]]:
        return self._answer


def test_a_pipe_that_another_process_fills_after_the_check_does_not_block(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    output.fill()
    monkeypatch.setattr(select, "poll", AlwaysReady)
    # a short line may fit into the last page
    output.stream.write("x" * (select.PIPE_BUF - 1) + "\n")
    monkeypatch.undo()
    output.read()
    output.stream.write("next\n")
    assert output.read_lines() == [f"lost 1: {UNREAD}", "next"]


def test_the_pipe_of_other_processes_stays_blocking(output: Output) -> None:
    assert os.get_blocking(output.stream.fileno())


def stopped_terminal() -> tuple[int, int]:
    return os.openpty()


def journal() -> tuple[int, int]:
    ends = socket.socketpair()
    return ends[0].detach(), ends[1].detach()


@pytest.mark.parametrize("make", [stopped_terminal, journal])
def test_what_nobody_reads_does_not_block(make: Callable[[], tuple[int, int]]) -> None:
    reader, writer = make()
    stream = open_stream(writer, notice)
    for _ in range(5000):
        stream.write("x" * 200 + "\n")
    assert stream.buffer._lost > 0  # type: ignore[attr-defined]
    stream.buffer.release()  # type: ignore[attr-defined]
    os.close(writer)
    os.close(reader)


def test_a_reader_that_has_gone_costs_the_lines() -> None:
    read_end, write_end = os.pipe()
    stream = open_stream(write_end, notice)
    os.close(read_end)
    for _ in range(3):
        print("dropped", file=stream, flush=True)
    stream.flush()
    stream.close()
    os.close(write_end)
    stream.buffer.release()  # type: ignore[attr-defined]


def test_a_disk_that_has_room_again_gets_the_notice_first(tmp_path: Path) -> None:
    file = tmp_path / "log"
    fd = os.open(file, os.O_WRONLY | os.O_CREAT)
    full = os.open("/dev/full", os.O_WRONLY)
    stream = open_stream(fd, notice)
    kept = os.dup(fd)
    print("before", file=stream)
    os.dup2(full, fd)
    print("dropped\ndropped", file=stream)
    os.dup2(kept, fd)
    print("after", file=stream)
    assert file.read_text() == "before\nlost 2: No space left on device\nafter\n"
    for each in (fd, full, kept):
        os.close(each)


def waits(output: Output, monkeypatch: pytest.MonkeyPatch, number: int) -> list[bool]:
    """Write lines, and return for each whether it waited for the reader."""
    waited: list[bool] = []

    class Poll(AlwaysReady):
        def poll(self, timeout: float) -> list[tuple[int, int]]:
            waited.append(timeout > 0)
            return []

    with monkeypatch.context() as patch:
        patch.setattr(select, "poll", Poll)
        for _ in range(number):
            output.stream.write("dropped\n")
    return waited


def test_a_reader_that_has_stopped_is_waited_for_once(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    assert waits(output, monkeypatch, 3) == [True, False, False]
    clock[0] += 3600.0
    assert waits(output, monkeypatch, 2) == [False, False]
    # it reads again
    output.stream.write("next\n")
    assert output.read_lines() == [f"lost 5: {UNREAD}", "next"]
    clock[0] += 1.1
    assert waits(output, monkeypatch, 2) == [True, False]


def test_a_reader_that_lags_is_waited_for_once_a_second(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    assert waits(output, monkeypatch, 1) == [True]
    output.stream.write("written\n")
    clock[0] += 0.9
    assert waits(output, monkeypatch, 1) == [False]
    output.stream.write("written\n")
    clock[0] += 1.1
    assert waits(output, monkeypatch, 1) == [True]


def test_a_new_process_does_not_report_what_another_has_lost(output: Output) -> None:
    output.fill()
    output.stream.write("dropped\n")
    count_losses_anew(output.stream, lambda lost, why: b"I lost %d\n" % lost)
    output.stream.write("mine\n")
    output.read()
    output.stream.write("next\n")
    assert output.read_lines() == ["I lost 1", "next"]


def test_one_line_is_said_to_be_one() -> None:
    assert plain_notice(1, "Broken pipe") == b"deadlined: 1 line was lost: Broken pipe\n"
    assert plain_notice(37, "Broken pipe") == b"deadlined: 37 lines were lost: Broken pipe\n"


# whole processes


class Server:
    """`deadlined serve` on a unix socket; its stdout is somebody else's matter."""

    def __init__(self, process: subprocess.Popen[str], directory: Path) -> None:
        self.process = process
        self._directory = directory

    def connect(self) -> socket.socket:
        """Connect, as soon as it listens."""
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(PATIENCE)
        limit = time.monotonic() + PATIENCE
        while True:
            try:
                client.connect(str(self._directory / "socket"))
                return client
            except (FileNotFoundError, ConnectionRefusedError):
                assert self.process.poll() is None, self.process.communicate()
                assert time.monotonic() < limit
                time.sleep(0.01)

    def begin(self, path: str) -> socket.socket:
        client = self.connect()
        client.sendall(f"GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode())
        return client

    def get(self, path: str = "/") -> str:
        with self.begin(path) as client:
            return read_all(client)

    def wait_until_busy(self) -> None:
        limit = time.monotonic() + PATIENCE
        while not (self._directory / "busy").exists():
            assert time.monotonic() < limit
            time.sleep(0.01)

    def end(self) -> tuple[int, str]:
        """Wait for its end; return its exit code and its stderr."""
        _, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, err or ""


@contextmanager
def serving(directory: Path, *arguments: str, stdout: Any = subprocess.PIPE, shell: str = "") -> Iterator[Server]:
    """Serve with this `stdout`, and with a redirection of the shell."""
    (directory / "apps.py").write_text(APPS)
    where = () if "--port" in arguments else ("--uds", "socket")
    command = ["sh", "-c", f'exec "$@" {shell}', "sh", *COMMAND, "serve"]
    with launched(*where, *arguments, cwd=directory, command=command, stdout=stdout) as process:
        yield Server(process, directory)


@contextmanager
def without_reader() -> Iterator[dict[str, Any]]:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        yield {"stdout": write_end}
    finally:
        os.close(write_end)


@contextmanager
def stalled() -> Iterator[dict[str, Any]]:
    read_end, write_end = os.pipe()
    try:
        yield {"stdout": write_end}
    finally:
        os.close(write_end)
        os.close(read_end)


@contextmanager
def full() -> Iterator[dict[str, Any]]:
    with open("/dev/full", "w") as device:  # noqa: PTH123, what subprocess takes
        yield {"stdout": device}


@contextmanager
def closed() -> Iterator[dict[str, Any]]:
    yield {"shell": ">&-"}


# without an access log the same stream takes fewer lines: what differs is that each is written by itself
@pytest.mark.parametrize(
    ("broken", "arguments"),
    [
        *((broken, ()) for broken in (without_reader, stalled, full, closed)),
        *((broken, ("--no-access-log",)) for broken in (stalled, closed)),
        *((broken, ("--log-format", "text")) for broken in (without_reader, full)),
    ],
    ids=lambda value: value.__name__ if callable(value) else " ".join(value) or "access log",
)
def test_a_broken_stdout_costs_neither_a_request_nor_the_drain_nor_the_exit_code(
    tmp_path: Path, broken: Callable[[], Any], arguments: tuple[str, ...]
) -> None:
    with broken() as streams, serving(tmp_path, "apps:slow", "--drain", "1h", *arguments, **streams) as server:
        for _ in range(MANY):
            assert server.get(LONG).endswith("finished")
        with server.begin("/slow") as client:
            server.wait_until_busy()
            server.process.send_signal(signal.SIGTERM)
            assert read_all(client).endswith("finished")
        assert server.end() == (0, "")


@contextmanager
def filled() -> Iterator[dict[str, Any]]:
    with stalled() as streams:
        fill(streams["stdout"])
        yield streams


@pytest.mark.parametrize("broken", [without_reader, filled, full], ids=lambda broken: broken.__name__)
def test_a_warning_that_cannot_be_written_does_not_keep_the_service_from_starting(
    tmp_path: Path, broken: Callable[[], Any]
) -> None:
    (tmp_path / "variables").write_text("DEADLINED_IDEL=1")
    arguments = ("apps:slow", "--env-file", "variables")
    with broken() as streams, serving(tmp_path, *arguments, shell="2>&1", **streams) as server:
        assert server.get().endswith("finished")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 0


@pytest.mark.parametrize("broken", [without_reader, stalled, full, closed], ids=lambda broken: broken.__name__)
def test_a_supervisor_with_a_broken_stdout_replaces_and_drains(tmp_path: Path, broken: Callable[[], Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    where = ("--workers", "2", "--port", str(port))
    with broken() as streams, serving(tmp_path, "apps:pid", *where, **streams) as server:
        killed = set()
        for _ in range(2):
            pid = answering_pid(port)
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        # both were replaced
        limit = time.monotonic() + PATIENCE
        while len(others := {answering_pid(port) for _ in range(20)} - killed) < 2:
            assert time.monotonic() < limit, others
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == (0, "")


def answering_pid(port: int) -> int:
    """Return the process that answers, as soon as one does."""
    limit = time.monotonic() + PATIENCE
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
                client.sendall(b"GET / HTTP/1.0\r\n\r\n")
                if body := read_all(client).rpartition("\r\n\r\n")[2]:
                    return int(body)
        except OSError:
            assert time.monotonic() < limit
        time.sleep(0.01)


def test_a_watchdog_whose_message_cannot_be_written_ends_the_process(tmp_path: Path) -> None:
    with stalled() as pipe:
        fill(pipe["stdout"])
        streams = {"stdout": pipe["stdout"], "shell": "2>&1 >/dev/null"}
        with serving(tmp_path, "apps:blocking", "--drain", "0", **streams) as server, server.begin("/"):
            server.wait_until_busy()
            server.process.send_signal(signal.SIGTERM)
            assert server.end()[0] == 1


def fill(fd: int) -> None:
    os.set_blocking(fd, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(fd, b"x")
    os.set_blocking(fd, True)


def test_an_application_that_closes_stdout_leaves_the_log_alone(tmp_path: Path) -> None:
    with serving(tmp_path, "apps:closing") as server:
        assert server.get().endswith("finished")
        server.process.send_signal(signal.SIGTERM)
        out, err = server.process.communicate(timeout=PATIENCE)
        assert (server.process.returncode, err) == (0, "")
    assert [json.loads(line)["event"] for line in out.splitlines()][-1] == "stopped"


def test_a_reader_that_comes_back_is_told_how_many_lines_it_has_missed(tmp_path: Path) -> None:
    with serving(tmp_path, "apps:closing") as server:
        # two records each: the access log must write, and lose, before the last one
        number = RECORDS + 1
        for _ in range(number):
            assert server.get(LONG).endswith("finished")
        lines: list[dict[str, Any]] = []
        stdout = server.process.stdout
        assert stdout is not None
        reader = threading.Thread(target=lambda: lines.extend(json.loads(line) for line in stdout))
        reader.start()
        # until the reader has caught up
        while not any(line.get("path") == "/last" for line in list(lines)):
            assert server.get("/last").endswith("finished")
            number += 1
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 0
        reader.join()
    notices = [line for line in lines if line["event"] == "log lines lost"]
    lost = [line["lost"] for line in notices]
    assert lost
    assert {(line["level"], line["why"]) for line in notices} == {("warning", UNREAD)}
    # a request and a connection each; no lifespan, listening, draining, stopped
    assert len(lines) - len(lost) + sum(lost) == 2 * number + 4
    assert lines[-1]["requests"] == number
