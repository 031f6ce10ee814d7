"""The command `deadlined health`: a probe of the admin listener, for containers and service managers.

It runs every few seconds beside the server, so it imports nothing but the standard library.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import queue
import socket
import sys
import threading
from collections.abc import Sequence
from typing import TextIO
from urllib.parse import urlsplit

_UNIX = "unix:"

# addresses on which a server listens for all, and the one of them that a probe asks
_ANY = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}

# bytes of an answer that are read at most
_MOST = 4096


class _UnixConnection(http.client.HTTPConnection):
    """A connection to a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=None)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask, print a line, and return the exit code: 0 if the service is ready (with --live: alive), 1 in any other case,
    wrong arguments included."""
    options = _parser().parse_args(arguments)
    address = options.address or os.environ.get("DEADLINED_ADMIN", "")
    if not address:
        return _failed("no address: give the URL of the admin listener, or set DEADLINED_ADMIN")
    try:
        connection, path = _target(address, "/livez" if options.live else "/readyz")
    except ValueError as error:
        return _failed(f"{address!r}: {error}")
    try:
        status, text = _ask_in_time(connection, path, options.timeout)
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
        return _failed(f"{address}: {why}")
    if status != 200:
        # an application does not know these paths
        doubt = f"; is {address} the admin listener?" if status in (400, 404) else ""
        return _failed(f"{status} {text}{doubt}")
    _say(text, sys.stdout)
    return 0


class _Parser(argparse.ArgumentParser):
    """Ends with 1 for wrong arguments: 2 has another meaning for a container's probe."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.print_usage(sys.stderr)
        self.exit(1, f"{self.prog}: {message}\n")


def _parser() -> _Parser:
    parser = _Parser(
        prog="deadlined health",
        description="Ask the admin listener of a running service whether it is ready. Exit codes: 0 ready, 1 not.",
        epilog="Examples: deadlined health 127.0.0.1:9000, deadlined health unix:/run/deadlined/admin.sock",
    )
    parser.add_argument(
        "address", nargs="?", metavar="URL", help="HOST:PORT, unix:PATH or http://HOST:PORT/PATH [env: DEADLINED_ADMIN]"
    )
    parser.add_argument("--live", action="store_true", help="ask only whether it is alive, also while it drains")
    parser.add_argument(
        "--timeout", type=_seconds, default=2.0, metavar="SECONDS", help="seconds for everything (default: 2)"
    )
    return parser


def _seconds(text: str) -> float:
    try:
        number = float(text.removesuffix("s"))
    except ValueError:
        number = 0.0
    if not 0.0 < number <= 3600.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from above 0 to 3600")
    return number


def _target(address: str, path: str) -> tuple[http.client.HTTPConnection, str]:
    """Return a connection that is not open yet, and the path to ask for. ValueError for a malformed address."""
    if address.startswith(_UNIX):
        return _UnixConnection(address.removeprefix(_UNIX)), path
    url = urlsplit(address if "://" in address else f"http://{address}")
    if url.scheme != "http":
        raise ValueError("the admin listener speaks plain HTTP: give its own HOST:PORT, or unix:PATH")
    if url.port is None:
        raise ValueError("write HOST:PORT, [IPV6]:PORT or unix:PATH")
    host = url.hostname or ""
    return http.client.HTTPConnection(_ANY.get(host, host), url.port), path if url.path in ("", "/") else url.path


def _ask_in_time(connection: http.client.HTTPConnection, path: str, timeout: float) -> tuple[int, str]:
    """Return the status and a line of text. TimeoutError after `timeout` seconds in all.

    A thread asks, because nothing interrupts the system's look-up of a name; it is left behind if it takes too long.
    Where no thread can be started, this one asks, with `timeout` for each step: the lack says nothing of the service.
    """
    answers: queue.SimpleQueue[tuple[int, str] | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(_ask(connection, path))
        except Exception as error:
            answers.put(error)

    try:
        threading.Thread(target=ask, name="deadlined health", daemon=True).start()
    except RuntimeError:
        connection.timeout = timeout
        ask()
    try:
        answer = answers.get(timeout=timeout)
    except queue.Empty:
        raise TimeoutError("no answer in time") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _ask(connection: http.client.HTTPConnection, path: str) -> tuple[int, str]:
    """Return the status and a line of text."""
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        answer = connection.getresponse()
        body = answer.read(_MOST)
        if len(body) < _MOST and answer.length:
            raise http.client.IncompleteRead(body, answer.length)
        return answer.status, _line(body)
    finally:
        connection.close()


def _line(body: bytes) -> str:
    """Return the `detail` of an answer that is a problem in JSON, or the first line of any other."""
    text = body.decode("utf-8", "replace")
    try:
        return str(json.loads(text)["detail"])
    except (ValueError, KeyError, TypeError):
        return text.strip().partition("\n")[0]


def _failed(line: str) -> int:
    _say(f"deadlined health: {line}", sys.stderr)
    return 1


def _say(line: str, stream: TextIO) -> None:
    """Write a line. That it cannot be written, on a full disk for example, says nothing of the service."""
    try:
        print(line, file=stream, flush=True)
    except UnicodeEncodeError:
        # the locale lacks a character, or the line has a lone surrogate
        _say(line.encode("ascii", "backslashreplace").decode(), stream)
    except OSError:
        # Python would try to write it again at its end, fail, and change the exit code
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
