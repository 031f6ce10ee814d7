"""The command `deadlined` as a process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from deadlined.service.process.signals import SAME_STOP

COMMAND = [sys.executable, "-m", "deadlined"]
PATIENCE = 30.0

APPS = """
import os
import signal
import sys
import threading
import time
import trio

async def answer(send, body):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})

async def slow(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    print("busy", file=sys.stderr, flush=True)
    await trio.sleep(0.5)
    await answer(send, b"finished")

async def itself(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    if "http.response.pathsend" in scope["extensions"]:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.pathsend", "path": __file__})

async def endless(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    print("busy", file=sys.stderr, flush=True)
    await trio.sleep_forever()

async def untiring(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    await answer(send, b"soon")
    await trio.sleep_forever()

async def blocking(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    print("busy", file=sys.stderr, flush=True)
    # in steps: a signal that comes just before the system call is seen at its end
    for _ in range(600):
        time.sleep(0.1)

async def hanging(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    if scope["path"] == "/hang":
        print("busy", file=sys.stderr, flush=True)
        lock = threading.Lock()
        with lock:
            lock.acquire()
    await answer(send, str(os.getpid()).encode())

async def broken(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "Traceback:\\n  somewhere\\nno database"})
        raise RuntimeError("no database")

async def failing(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    raise LookupError("lost")

async def lingering(scope, receive, send):
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    print("ending", file=sys.stderr, flush=True)
    await trio.sleep_forever()

async def orderly(scope, receive, send):
    if scope["type"] == "http":
        print("busy", file=sys.stderr, flush=True)
        await trio.sleep_forever()
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    print("ending", file=sys.stderr, flush=True)
    await send({"type": "lifespan.shutdown.complete"})

async def patient(scope, receive, send):
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    with trio.open_signal_receiver(signal.SIGUSR1) as allowed:
        # in one piece, because another worker may say it at the same time
        sys.stderr.write("ending\\n")
        await anext(allowed)
    await send({"type": "lifespan.shutdown.complete"})

async def hesitant(scope, receive, send):
    print("starting", file=sys.stderr, flush=True)
    await trio.sleep_forever()

async def pid(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    body = str(os.getpid()).encode()
    if scope["path"] == "/late":
        # the end comes later than any idle connection of a drain is closed
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await trio.sleep(3.0)
        await send({"type": "http.response.body"})
    else:
        await answer(send, body)

class Shop:
    async def app(self, scope, receive, send):
        await answer(send, b"shop")

shop = Shop()
number = 5
"""


def environment(**variables: str) -> dict[str, str]:
    """Return this process's environment without settings for the command, and with `variables`."""
    ours = ("DEADLINED_", "WEB_CONCURRENCY")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return clean | {"PYTHONPATH": str(Path(__file__).parents[2])} | variables


def run(*arguments: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command until it ends by itself."""
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=cwd,
        env=environment(**variables),
        check=False,
    )


@contextmanager
def launched(
    *arguments: str,
    cwd: Path | None = None,
    command: Sequence[str] = COMMAND,
    stdout: int | IO[Any] = subprocess.PIPE,
    pass_fds: Collection[int] = (),
    variables: Mapping[str, str] = {},
) -> Iterator[subprocess.Popen[str]]:
    """Start the command in a session of its own, and give its process, whose output is text in two pipes. At the end,
    or after PATIENCE, kill it and its children; a test that wants its exit code waits for it inside.

    `command`: what stands before `arguments`, for a program that runs the command. `stdout`, `pass_fds`: as of Popen.
    """
    with subprocess.Popen(
        [*command, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=environment(**variables),
        pass_fds=pass_fds,
        start_new_session=True,
    ) as process:
        # a test that waits for a line which never comes must end, too
        guard = threading.Timer(PATIENCE, kill_all, [process])
        guard.daemon = True
        guard.start()
        try:
            yield process
        finally:
            guard.cancel()
            kill_all(process)


def wait_until_starting(process: subprocess.Popen[str]) -> None:
    """Wait until an application says on stderr that it is being imported or started: its first line."""
    assert process.stderr is not None
    assert process.stderr.readline() == "starting\n"


class Process:
    """A running `deadlined serve`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._stdout = process.stdout
        self._stderr = process.stderr
        self.lines: list[dict[str, Any]] = []
        self.url = str(self.wait_for("listening")["url"])

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def wait_for(self, event: str) -> dict[str, Any]:
        """Wait for the next log line of this event, and return it."""
        for text in self._stdout:
            self.lines.append(json.loads(text))
            if self.lines[-1]["event"] == event:
                return self.lines[-1]
        raise AssertionError(f"it ended without {event!r}: {self.lines} {self._stderr.read()}")

    def wait_for_all(self, *events: str) -> None:
        """Wait until as many log lines as are given here of each event were read, in any order, from now on."""
        missing = list(events)
        while missing:
            event = self.next_line()["event"]
            if event in missing:
                missing.remove(event)

    def next_line(self) -> dict[str, Any]:
        """Wait for the next log line, and return it."""
        for text in self._stdout:
            self.lines.append(json.loads(text))
            return self.lines[-1]
        raise AssertionError(f"it ended: {self.lines} {self._stderr.read()}")

    def wait_until(self, said: str) -> None:
        """Wait until an application of `APPS` has printed this."""
        assert self._stderr.readline() == said + "\n"

    def wait_until_busy(self) -> None:
        """Wait until an application of `APPS` has a request."""
        self.wait_until("busy")

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def begin(self, path: str = "/") -> socket.socket:
        """Connect and send a request."""
        client = self.connect()
        client.sendall(f"GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode())
        return client

    def get(self, path: str = "/") -> str:
        """Return the whole response to a request on a connection of its own."""
        with self.begin(path) as client:
            return read_all(client)

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal_later(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal that means to cut. Call it once an effect of the first one was seen."""
        time.sleep(SAME_STOP)
        self.signal(number)

    def signal_at_once(self, *numbers: signal.Signals) -> None:
        """Send signals that the process notices in one go."""
        self.signal(signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)
        for number in (*numbers, signal.SIGCONT):
            self.signal(number)

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Wait for the end; return the exit code and stderr. Stdout is in `lines`."""
        out, err = rest_of(self._process)
        self.lines += [json.loads(line) for line in out.splitlines()]
        return self._process.returncode, err

    def events(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == name]


def rest_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Wait for the end of a process whose output may have been read in part. Return the rest of stdout and of stderr.

    `communicate` would leave out what the streams have read ahead.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    complaints: list[str] = []
    with process.stdout as stdout, process.stderr as stderr:
        # beside the other, because a process that fills one pipe does not end the other
        reader = threading.Thread(target=lambda: complaints.append(stderr.read()), daemon=True)
        reader.start()
        out = stdout.read()
        reader.join()
    process.wait(PATIENCE)
    return out, complaints[0]


def read_all(client: socket.socket) -> str:
    """Read to the end, or to a reset."""
    received = b""
    try:
        while data := client.recv(65536):
            received += data
    except ConnectionResetError:
        return received.decode()
    return received.decode()


Starter = Callable[..., Process]


@contextmanager
def starter(directory: Path) -> Iterator[Starter]:
    """Give a function that starts the command in a directory with the module `apps`. Kill what runs at the end."""
    (directory / "apps.py").write_text(APPS)
    with ExitStack() as running:

        def start(*arguments: str, **variables: str) -> Process:
            where = () if {"--uds", "--bind"} & set(arguments) else ("--port", "0")
            return Process(
                running.enter_context(launched("serve", *where, *arguments, cwd=directory, variables=variables))
            )

        yield start


def kill_all(process: subprocess.Popen[str]) -> None:
    """Kill the process and its workers."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def assert_error(completed: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """Check that it failed with `code`, and that the last line of stderr is an error that contains these words. A
    traceback of the application may stand above it."""
    assert completed.returncode == code, completed.stderr
    (line,) = [line for line in completed.stderr.splitlines() if line.startswith("Error:")]
    assert completed.stderr.endswith(line + "\n")
    for word in words:
        assert word in line


def assert_one_line(completed: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """Check that it failed with `code` and an error of one line that contains these words."""
    assert "Traceback" not in completed.stderr
    assert_error(completed, code, *words)
