"""Servers as processes: `deadlined serve` and uvicorn, with the sites of these tests."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests.support.command import COMMAND, PATIENCE, environment, kill_all

ROOT = Path(__file__).parents[2]
LOOPS = ("trio", "asyncio", "uvloop")
ON_ASYNCIO = ("asyncio", "uvloop")

# what a line of the log says of a failure that a test provokes
EXPECTED = re.compile("meant to fail|the application returned before its response was complete")


class Output:
    """The lines of a process's output, read in a thread so that the process never waits for a reader."""

    def __init__(self, stream: IO[str], sign: str) -> None:
        self.lines: list[str] = []
        self.ready = threading.Event()
        self._stream = stream
        self._sign = sign
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._stream:
            self.lines.append(line)
            if self._sign in line:
                self.ready.set()
        self.ready.set()

    def join(self) -> None:
        self._thread.join(PATIENCE)
        self._stream.close()


class Server:
    """A server that runs, and where."""

    def __init__(self, process: subprocess.Popen[str], sign: str) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.out = Output(process.stdout, sign)
        self.err = Output(process.stderr, sign)

    def wait_until_ready(self, output: Output) -> None:
        assert output.ready.wait(PATIENCE), "it does not start"
        addresses = re.findall(r"http://127\.0\.0\.1:\d+", "".join(output.lines))
        assert addresses, f"it has ended: {self.err.lines} {self.out.lines}"
        self.url = addresses[-1]
        self.port = int(self.url.rpartition(":")[2])

    def end(self) -> int:
        """Let it drain, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE)
        self.out.join()
        self.err.join()
        return code

    def log(self) -> list[dict[str, Any]]:
        """Return the lines of the log so far."""
        return [json.loads(line) for line in list(self.out.lines)]


@contextmanager
def process(sign: str, *command: str, **variables: str) -> Iterator[Server]:
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(**variables),
        start_new_session=True,
    ) as popen:
        try:
            yield Server(popen, sign)
        finally:
            kill_all(popen)


@contextmanager
def deadlined(site: str, loop: str, *options: str, lifespan: bool = True, **variables: str) -> Iterator[Server]:
    """Run `deadlined serve` with a site, and check at the end that it has drained, that its application has ended, and
    that nothing was logged but what was meant to fail."""
    command = (*COMMAND, "serve", f"tests.applications.sites.{site}", "--port=0", f"--loop={loop}", "--no-access-log")
    with process('"listening"', *command, *options, **variables) as server:
        server.wait_until_ready(server.out)
        yield server
        code = server.end()
        lines = server.log()
        failures = [
            line
            for line in lines
            if line.get("level") in ("warning", "error") and not EXPECTED.search(json.dumps(line))
        ]
        assert (code, failures, server.err.lines) == (0, [], []), (code, failures, server.err.lines)
        told = [line["event"] for line in lines]
        assert [line["loop"] for line in lines if line["event"] == "listening"] == [loop]
        assert not lifespan or (told.count("site up"), told.count("site down")) == (1, 1)


@contextmanager
def unchecked(site: str, loop: str, *options: str) -> Iterator[Server]:
    """Run `deadlined serve` with a site whose requests fail or are cut."""
    command = (*COMMAND, "serve", f"tests.applications.sites.{site}", "--port=0", f"--loop={loop}", "--no-access-log")
    with process('"listening"', *command, *options) as server:
        server.wait_until_ready(server.out)
        yield server


@contextmanager
def uvicorn(site: str, *options: str, **variables: str) -> Iterator[Server]:
    """Run uvicorn with a site."""
    command = (sys.executable, "-m", "uvicorn", f"tests.applications.sites.{site}", "--port=0", "--no-access-log")
    with process("Uvicorn running on", *command, *options, **variables) as server:
        server.wait_until_ready(server.err)
        yield server
        server.end()
