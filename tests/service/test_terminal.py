"""The command on a real terminal: the first screen, requests, errors, Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deadlined import __version__
from tests.support.command import APPS, COMMAND, PATIENCE, launched, read_all, rest_of
from tests.support.terminal import CTRL_C, Terminal, on_terminal

APP = """
import logging
from json import loads

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    if scope["path"] == "/fail":
        loads("{")
    logging.getLogger("shop.web").info("sold %d", 3, extra={"buyer": 5})
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})
"""

TIME = r"^\d\d:\d\d:\d\d\.\d{3}"


@contextmanager
def serving(directory: Path, *arguments: str, **variables: str) -> Iterator[tuple[Terminal, int]]:
    """Serve APP on a terminal; give it and the port."""
    (directory / "shop.py").write_text(APP)
    (directory / "apps.py").write_text(APPS)
    arguments = arguments if any(":" in each for each in arguments) else ("shop:app", *arguments)
    with on_terminal(directory, "serve", "--port", "0", *arguments, **variables) as terminal:
        yield terminal, int(terminal.wait_for(r"http://127\.0\.0\.1:(\d+)  Ctrl-C to stop$")[1])


def get(port: int, path: str = "/") -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode())
        return read_all(client)


def test_a_terminal_shows_a_screen_a_line_per_request_and_a_summary(tmp_path: Path) -> None:
    with serving(tmp_path, "--read-header", "300ms") as (terminal, port):
        assert terminal.text.startswith(f"deadlined {__version__} (")
        assert re.search(r"^  serving +shop:app$", terminal.text, re.MULTILINE)
        assert get(port, "/items?id=7").endswith("hello")
        terminal.wait_for(TIME + r"  info      shop\.web: sold 3  buyer=5$")
        terminal.wait_for(TIME + r"  127\.0\.0\.1:\d+ +GET +/items\?id=7 +200 +[\d.]+ ms +\d+ B$")
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.sendall(b"GET / HT")
            assert read_all(slow).startswith("HTTP/1.1 408 ")
        terminal.wait_for(TIME + r"  127\.0\.0\.1:\d+ +408 read_header: head not complete after 30\d ms$")
        terminal.press(CTRL_C)
        assert terminal.end() == 0
    *_, draining, stopped = terminal.lines
    assert re.search(r"info      SIGINT: draining for at most 30 s; nothing is open\.$", draining)
    assert re.search(r"stopped after .*: 1 request, 2 connections \(1 done, 1 header_timeout\)$", stopped)
    assert len(re.findall(r" GET ", terminal.text)) == 1, "one line per request"


def test_a_failure_is_a_readable_traceback_from_the_application_on(tmp_path: Path) -> None:
    with serving(tmp_path) as (terminal, port):
        assert get(port, "/fail").startswith("HTTP/1.1 500 ")
        terminal.wait_for(r"500 .*  the application failed$")
    begin = next(number for number, line in enumerate(terminal.lines) if line.endswith("GET /fail failed"))
    assert terminal.lines[begin + 1 : begin + 4] == [
        "    Traceback (most recent call last):",
        f'      File "{tmp_path}/shop.py", line 13, in app',
        '        loads("{")',
    ]
    assert max(map(len, terminal.lines)) < 250


@pytest.mark.parametrize(
    ("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)], ids=str
)
def test_colours_are_as_the_environment_wants(tmp_path: Path, variables: dict[str, str], coloured: bool) -> None:
    with serving(tmp_path, **variables) as (terminal, port):
        get(port)
        terminal.wait_for(r" GET ")
    assert ("\x1b[" in terminal.shown) is coloured


def test_json_can_be_had_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    with on_terminal(tmp_path, "serve", "shop:app", "--port", "0", "--log-format", "json") as terminal:
        terminal.wait_for(r'"event": "listening"')
        terminal.press(CTRL_C)
        assert terminal.end() == 0
    events = [json.loads(line.removeprefix("^C"))["event"] for line in terminal.lines]
    assert events == ["listening", "draining", "stopped"]


def test_a_terminal_shows_no_screen_below_the_level(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    socket_path = tmp_path / "s"
    with on_terminal(tmp_path, "serve", "shop:app", "--uds", "s", "--log-level", "warning") as terminal:
        with socket.socket(socket.AF_UNIX) as client:
            until = time.monotonic() + PATIENCE
            while client.connect_ex(str(socket_path)):
                assert time.monotonic() < until
                time.sleep(0.02)
            client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\nGET /fail HTTP/1.1\r\nhost: a\r\n\r\n")
            read_all(client)
        terminal.wait_for(r"the application failed$")
        terminal.press(CTRL_C)
        assert terminal.end() == 0
    told = [line for line in terminal.lines if re.search(TIME, line)]
    assert len(told) == 2, told
    assert terminal.lines[0] == told[0]
    assert told[0].endswith("deadlined.http: GET /fail failed")


def test_text_can_be_had_in_a_pipe_and_colours_be_forced(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    arguments = ("serve", "shop:app", "--port", "0", "--log-format", "text")
    with launched(*arguments, cwd=tmp_path, variables={"FORCE_COLOR": "1", "NO_COLOR": ""}) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("\x1b[1mdeadlined ")
        process.send_signal(signal.SIGTERM)
        out, _ = rest_of(process)
    assert out.count("\x1b[32minfo") == 2
    assert process.returncode == 0


def test_a_drain_says_what_it_waits_for_and_a_second_ctrl_c_cuts_it(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "apps:endless", "--drain", "1h") as (terminal, port),
        socket.create_connection(("127.0.0.1", port)) as client,
    ):
        client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        terminal.wait_for("^busy$")
        terminal.press(CTRL_C)
        terminal.wait_for(r"SIGINT: draining for at most 1 h; 1 connection open\. Ctrl-C again cuts them\.$")
        terminal.wait_for(
            r"draining, 59 min \d+ s left: 1 connection \(1 waiting for the application\); requests: 1 of /$"
        )
        terminal.press(CTRL_C)
        assert terminal.end() == 4
    assert re.search(r" -  .*  drain: cut by the end of the drain after ", terminal.text)
    assert re.search(r"stopped after .* \(1 drain_timeout\)$", terminal.lines[-1])


def test_worker_processes_say_their_numbers_and_one_screen(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as (terminal, port):
        terminal.wait_for(TIME + rf"  \[2\]  info      listening on http://127\.0\.0\.1:{port}$")
        get(port)
        terminal.wait_for(TIME + r"  \[[12]\]  127\.0\.0\.1:\d+ +GET ")
        terminal.press(CTRL_C)
        assert terminal.end() == 0
    assert terminal.text.count("Ctrl-C to stop") == 1
    assert "2 worker processes" in terminal.text
    assert re.search(r"info      SIGINT: stopping 2 worker processes$", terminal.text, re.MULTILINE)
    for number in (1, 2):
        assert re.search(rf"  \[{number}\]  info      stopped after ", terminal.text)


# what is wrong


def shown(directory: Path, *arguments: str) -> tuple[int, list[str], str]:
    """Return the exit code, the lines, and the text with colours of a command that cannot start."""
    with on_terminal(directory, "serve", *arguments) as terminal:
        return terminal.end(), terminal.lines, terminal.shown


def test_an_error_in_the_applications_file_is_shown_from_there_on(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("import json\njson.loads('{')\n")
    code, lines, text = shown(tmp_path, "shop:app")
    assert code == 1
    assert lines[:3] == [
        "Traceback (most recent call last):",
        f'  File "{tmp_path}/shop.py", line 2, in <module>',
        "    json.loads('{')",
    ]
    assert lines[-1].startswith(
        "Error: cannot load the application 'shop:app': importing 'shop' failed: JSONDecodeError"
    )
    assert "importlib" not in text
    assert "startup failed" not in text, "said once"
    assert "\x1b[31mjson.decoder.JSONDecodeError" in text


def test_a_name_that_is_not_there_is_one_line_with_what_is_near(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    code, lines, _ = shown(tmp_path, "shop:ap")
    assert code == 2
    assert lines == [
        "Error: cannot load the application 'shop:ap': module 'shop' has no attribute 'ap'; did you mean 'shop:app'?"
    ]


STARTUPS = {
    "reports and raises": """
        await send({"type": "lifespan.startup.failed", "message": "no database"})
        raise LookupError("no database")""",
    "reports what cannot be shown": """
        await send({"type": "lifespan.startup.failed", "message": "\\x1b[2Jno database\\n "})
        raise LookupError("no database")""",
    "reports its traceback": """
        try:
            raise LookupError("no database")
        except LookupError:
            await send({"type": "lifespan.startup.failed", "message": traceback.format_exc()})""",
}


@pytest.mark.parametrize("startup", STARTUPS.values(), ids=STARTUPS)
def test_a_startup_that_fails_is_shown_from_the_application_on(tmp_path: Path, startup: str) -> None:
    (tmp_path / "shop.py").write_text(
        f'import traceback\nasync def app(scope, receive, send):\n    if scope["type"] == "lifespan":{startup}\n'
    )
    code, lines, text = shown(tmp_path, "shop:app", "--port", "0")
    assert code == 1
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].startswith(f'  File "{tmp_path}/shop.py", line ')
    assert "LookupError: no database" in lines
    assert lines[-1].startswith("Error: the application failed to start: ")
    assert "no database" in lines[-1]
    assert "Ctrl-C to stop" not in text


def test_a_lifespan_that_raises_is_shown_and_the_application_served(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "async def app(scope, receive, send):\n    await receive()\n    raise LookupError('no database')\n"
    )
    with on_terminal(tmp_path, "serve", "shop:app", "--port", "0") as terminal:
        terminal.wait_for("Ctrl-C to stop$")
    assert re.search(r"warning   deadlined\.asgi: .* served without a lifespan, it raised LookupError", terminal.text)
    assert f'      File "{tmp_path}/shop.py", line 3, in app' in terminal.lines


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        code, lines, _ = shown(tmp_path, "--port", str(other.getsockname()[1]))
    assert code == 3
    (line,) = lines
    assert "another process has it (process " in line


def test_head_takes_the_first_line_and_the_server_goes_on(tmp_path: Path) -> None:
    """`deadlined serve | head -1`: the log has no reader then."""
    assert shutil.which("head") is not None
    (tmp_path / "shop.py").write_text(APP)
    command = f"{shlex.quote(sys.executable)} -m deadlined serve shop:app --uds socket; echo code $? >&2"
    with launched(command=["sh", "-c", f"{{ {command}; }} | head -n 1"], cwd=tmp_path) as shell:
        assert shell.stdout is not None
        line = json.loads(shell.stdout.readline())
        assert line["event"] == "listening"
        for _ in range(3):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(tmp_path / "socket"))
                client.sendall(b"GET / HTTP/1.0\r\n\r\n")
                assert read_all(client).endswith("hello")
        os.kill(line["pid"], signal.SIGTERM)
        _, err = shell.communicate(timeout=PATIENCE)
    assert err == "code 0\n"


# A shell after `stty tostop` that starts a job in the background. Once that has stopped, it goes on in the foreground
SHELL = """
import os, signal, subprocess, sys, termios

attributes = termios.tcgetattr(0)
attributes[3] |= termios.TOSTOP
termios.tcsetattr(0, termios.TCSANOW, attributes)
job = subprocess.Popen(sys.argv[1:], preexec_fn=lambda: os.setpgid(0, 0))
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
_, status = os.waitpid(job.pid, os.WUNTRACED)
print("stopped by", signal.Signals(os.WSTOPSIG(status)).name, flush=True)
os.tcsetpgrp(0, job.pid)
os.killpg(job.pid, signal.SIGCONT)
sys.exit(job.wait())
"""


def test_a_job_that_may_not_write_from_the_background_stops_with_all_its_processes(tmp_path: Path) -> None:
    shell = [sys.executable, "-c", SHELL, *COMMAND]
    arguments = ("serve", "shop:app", "--port", "0", "--workers", "2")
    (tmp_path / "shop.py").write_text(APP)
    with on_terminal(tmp_path, *arguments, command=shell) as terminal:
        terminal.wait_for("^stopped by SIGTTOU$")
        port = int(terminal.wait_for(r"http://127\.0\.0\.1:(\d+)  Ctrl-C to stop$")[1])
        terminal.wait_for(rf"\[2\]  info      listening on http://127\.0\.0\.1:{port}$")
        assert get(port).endswith("hello")
        terminal.press(CTRL_C)
        assert terminal.end() == 0
    assert "number of workers" not in terminal.text
