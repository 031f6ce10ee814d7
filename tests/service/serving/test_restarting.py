"""`--reload`: an application that is edited while it is served."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from deadlined.service.config import ServeConfig
from deadlined.service.process.notify import Notifier
from deadlined.service.process.signals import SAME_STOP, STOPS
from deadlined.service.serving.restarting import Reloader
from tests.support.admin import admin_of
from tests.support.command import (
    COMMAND,
    PATIENCE,
    Process,
    Starter,
    assert_one_line,
    environment,
    launched,
    read_all,
    run,
)

APP = """
async def app(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    await send({{"type": "http.response.start", "status": 200, "headers": []}})
    await send({{"type": "http.response.body", "body": b"{said}"}})
"""

ENDLESS = """
import sys
import trio

async def app(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    print("busy", file=sys.stderr, flush=True)
    await trio.sleep_forever()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A directory that is watched, with a module `edited` that says one."""
    (tmp_path / "src").mkdir()
    path = tmp_path / "src" / "edited.py"
    path.write_text(APP.format(said="one"))
    return path


RELOAD = ("edited:app", "--app-dir", "src", "--reload")


def edit(process: Process, file: Path, text: str) -> None:
    """Change the file, and wait until that is noticed."""
    file.write_text(text)
    assert process.wait_for("reloading")["changed"] == [f"src/{file.name}"]


def test_a_change_is_served_and_the_port_stays_open_meanwhile(start: Starter, file: Path) -> None:
    process = start(*RELOAD)
    assert process.get().endswith("one")
    edit(process, file, APP.format(said="two"))
    # the next process has not begun: this waits in the queue of the socket
    assert process.get().endswith(("one", "two"))
    url = process.wait_for("listening")["url"]
    assert url == process.url
    assert process.get().endswith("two")
    # within the same second, and of the same length
    edit(process, file, APP.format(said="six"))
    process.wait_for("listening")
    assert process.get().endswith("six")
    process.signal(signal.SIGINT)
    assert process.end()[0] == 0
    assert process.lines[-1]["event"] == "stopped"


def test_a_broken_application_waits_for_the_next_change(start: Starter, file: Path) -> None:
    process = start(*RELOAD)
    edit(process, file, "1 / 0\n")
    assert process.wait_for("the application has ended; waiting for a change")["code"] == 1
    with process.begin() as waiting:
        edit(process, file, APP.format(said="mended"))
        assert read_all(waiting).endswith("mended"), "it came while nothing was served"
    process.signal()
    code, err = process.end()
    assert code == 0
    assert "ZeroDivisionError" in err


def test_an_application_that_is_broken_from_the_start_waits_too(start: Starter, file: Path, tmp_path: Path) -> None:
    file.write_text("raise LookupError('lost')\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with launched("serve", *RELOAD, "--port", str(port), cwd=tmp_path) as command:
        assert command.stdout is not None
        assert "startup failed" in command.stdout.readline()
        assert "waiting for a change" in command.stdout.readline()
        file.write_text(APP.format(said="mended"))
        process = Process(command)
        assert process.get().endswith("mended")
        process.signal()
        assert process.end()[0] == 0


def test_ctrl_c_in_a_terminal_ends_both(start: Starter, file: Path) -> None:
    process = start(*RELOAD)
    # to all processes, as a terminal does
    os.killpg(process.pid, signal.SIGINT)
    code, err = process.end()
    assert (code, err) == (0, "")
    with pytest.raises(ConnectionRefusedError):
        process.connect()


def reloading(directory: Path) -> ServeConfig:
    return ServeConfig(app="app:app", bind=(f"unix:{directory}/socket",), reload=True, reload_dir=(str(directory),))


def test_a_process_that_ends_by_the_same_signal_keeps_its_exit_code(tmp_path: Path) -> None:
    told: list[str] = []
    reloader = Reloader(reloading(tmp_path), lambda event, **_: told.append(event), Notifier())
    with reloader._selector, ExitStack() as stack:
        stack.callback(reloader._watcher.release)
        stack.callback(reloader._signals.release)
        reloader._signals.handle()
        # it had to cut requests, and has ended before its parent noticed the signal
        reloader.serving._pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 4"], {})
        os.waitid(os.P_PID, reloader.serving._pid, os.WEXITED | os.WNOWAIT)
        os.kill(os.getpid(), signal.SIGINT)
        reloader._wait()
    assert (told, reloader._code) == (["stopping"], 4)


def test_a_signal_of_the_same_stop_kills_nothing(tmp_path: Path) -> None:
    told: list[tuple[str, object]] = []
    reloader = Reloader(reloading(tmp_path), lambda event, **fields: told.append((event, fields["signal"])), Notifier())
    reloader._signals.release()
    reloader._watcher.release()
    with reloader._selector:
        for number, now in ((signal.SIGINT, 50.0), (signal.SIGTERM, 50.0), (signal.SIGTERM, 50.05)):
            reloader._stop(number, now)
    assert told == [("stopping", "SIGINT")]
    reloader._stop(signal.SIGTERM, 50.0 + SAME_STOP)
    assert told[1:] == [("stopping", "SIGTERM")]


@pytest.mark.parametrize(("number", "code"), [(None, 4), (signal.SIGSEGV, 1)], ids=["second signal", "crash"])
def test_the_exit_code_says_how_the_serving_process_has_ended(
    start: Starter, file: Path, number: signal.Signals | None, code: int
) -> None:
    file.write_text(ENDLESS)
    process = start(*RELOAD)
    with process.begin() as client:
        process.wait_until_busy()
        process.signal()
        process.wait_for("draining")
        process.signal_later() if number is None else os.kill(process.events("listening")[0]["pid"], number)
        assert read_all(client) == ""
        assert process.end() == (code, "")


STARTING = """
import sys
import time

try:
    print("busy", file=sys.stderr, flush=True)
    time.sleep(600)
finally:
    time.sleep(600)
"""


def test_a_second_signal_cuts_nothing_while_the_application_starts(file: Path, tmp_path: Path) -> None:
    file.write_text(STARTING)
    with launched("serve", *RELOAD, "--port", "0", cwd=tmp_path) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        assert command.stderr.readline() == "busy\n"
        for wait in (0.0, SAME_STOP):
            time.sleep(wait)
            command.send_signal(signal.SIGINT)
            assert '"stopping"' in command.stdout.readline()
        assert command.wait() == 0


@pytest.mark.parametrize("everybody", [False, True], ids=["the parent", "all"])
def test_a_hangup_ends_it_in_order_however_often_it_comes(
    start: Starter, file: Path, tmp_path: Path, everybody: bool
) -> None:
    file.write_text(ENDLESS)
    process = start(*RELOAD, "--uds", "socket", "--drain", "1s")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "socket"))
        client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        process.wait_until_busy()
        for _ in range(10):
            os.killpg(process.pid, signal.SIGHUP) if everybody else process.signal(signal.SIGHUP)
        process.wait_for("draining")
        # the drain has cut it, and no second signal
        assert process.end() == (4, "")
    assert [line["signal"] for line in process.events("stopping")] == ["SIGHUP"]
    assert not (tmp_path / "socket").exists()


def test_a_stream_without_end_does_not_hold_up_a_reload(start: Starter, file: Path) -> None:
    file.write_text(ENDLESS)
    process = start(*RELOAD, "--drain", "1h")
    with process.begin():
        process.wait_until_busy()
        edit(process, file, APP.format(said="two"))
        process.wait_for("listening")
        assert process.get().endswith("two")
    process.signal()
    assert process.end()[0] == 0


def test_half_a_head_is_answered_at_a_stop_and_is_no_failure(start: Starter, file: Path) -> None:
    process = start(*RELOAD)
    with process.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        process.signal()
        assert read_all(client).startswith("HTTP/1.1 408 ")
        assert process.end() == (0, "")


BUSY = """
import hashlib
import sys

async def app(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    print("busy", file=sys.stderr, flush=True)
    # runs for minutes without a look at signals
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""


def test_one_that_is_busy_in_c_code_is_killed_after_its_time(file: Path, tmp_path: Path) -> None:
    file.write_text(BUSY)
    impatient = (
        "from deadlined.service.serving import restarted\n"
        "restarted.DRAIN = restarted.MARGIN = 0.1\n"
        "from deadlined.__main__ import run\nrun()\n"
    )
    command = [COMMAND[0], "-c", impatient, "serve", "--port", "0"]
    with launched(*RELOAD, command=command, cwd=tmp_path) as started:
        process = Process(started)
        serving = process.events("listening")[0]["pid"]
        with process.begin() as client:
            process.wait_until_busy()
            edit(process, file, APP.format(said="two"))
            assert process.wait_for("the application did not end in time: killed")["pid"] == serving
            assert read_all(client) == ""
        process.wait_for("listening")
        assert process.get().endswith("two")
        edit(process, file, BUSY)
        process.wait_for("listening")
        with process.begin():
            process.wait_until_busy()
            process.signal()
            process.wait_for("the application did not end in time: killed")
            assert process.end() == (1, "")


def test_a_configuration_that_the_next_edit_would_undo_is_not_read(start: Starter, file: Path, tmp_path: Path) -> None:
    config = tmp_path / "shop.toml"
    config.write_text("idle = '1h'\n")
    process = start(*RELOAD, "--config", config.name, "--admin", "127.0.0.1:0")
    config.write_text("idle = '5s'\n")
    found = admin_of(process).get("/reload", "POST")
    assert (found.status, "--reload" in found.detail) == (409, True)
    assert process.wait_for("not reloaded")["by"] == "POST /reload"
    assert admin_of(process).get("/config").json["timeouts"]["idle"] == 3600.0
    process.signal()
    assert process.end()[0] == 0


def test_a_drain_that_would_leave_the_parent_is_refused(start: Starter, file: Path) -> None:
    process = start(*RELOAD, "--admin", "127.0.0.1:0")
    admin = admin_of(process)
    found = admin.get("/drain", "POST")
    assert (found.status, "SIGTERM" in found.detail) == (409, True)
    assert admin.get("/readyz").status == 200
    assert process.get().endswith("one")
    process.signal()
    assert process.end()[0] == 0


def test_the_serving_process_ends_with_a_parent_that_was_killed(start: Starter, file: Path) -> None:
    process = start(*RELOAD)
    process.signal(signal.SIGKILL)
    assert process.wait_for("draining")["signal"] == "SIGTERM"
    assert process.end()[0] == -signal.SIGKILL


def test_a_unix_socket_is_there_until_the_end(start: Starter, file: Path, tmp_path: Path) -> None:
    process = start(*RELOAD, "--uds", "socket")
    inode = (tmp_path / "socket").stat().st_ino
    edit(process, file, APP.format(said="two"))
    process.wait_for("listening")
    assert (tmp_path / "socket").stat().st_ino == inode
    process.signal()
    assert process.end()[0] == 0
    assert not (tmp_path / "socket").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--reload",), "--reload needs APP"),
        (("a:b", "--reload", "--workers", "2"), "--reload is for one process"),
        (("a:b", "--reload-dir", "."), "--reload-dir needs --reload"),
        (("a:b", "--reload", "--reload-dir", "none"), "--reload-dir none: there is no such directory"),
    ],
)
def test_what_cannot_be_reloaded_ends_it_with_2(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    assert_one_line(run("serve", *arguments, cwd=tmp_path), 2, words)


def test_a_port_in_use_ends_the_parent_with_3(file: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert_one_line(run("serve", *RELOAD, "--port", port, cwd=tmp_path), 3, "another process has it")


class Poller:
    """A client that asks the admin listener without pause, each time on a new connection, and counts the answers and
    what else happens."""

    def __init__(self, address: object, family: socket.AddressFamily) -> None:
        self.seen: Counter[str] = Counter()
        self._address, self._family = address, family
        self._done = threading.Event()

    @contextmanager
    def running(self) -> Iterator[Poller]:
        thread = threading.Thread(target=self._ask_on)
        thread.start()
        try:
            yield self
        finally:
            self._done.set()
            thread.join(PATIENCE)

    def _ask_on(self) -> None:
        while not self._done.is_set():
            try:
                self.seen[self._ask()] += 1
            except OSError as error:
                self.seen[type(error).__name__] += 1

    def _ask(self) -> str:
        with socket.socket(self._family) as client:
            client.settimeout(PATIENCE)
            client.connect(self._address)  # type: ignore[arg-type]
            client.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            return read_all(client).partition("\r\n")[0]


@pytest.mark.parametrize("unix", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["tcp", "unix"])
def test_the_admin_listener_refuses_nobody_while_the_application_is_edited_and_broken(
    start: Starter, file: Path, tmp_path: Path, unix: bool
) -> None:
    process = start(*RELOAD, "--admin", "unix:admin" if unix else "127.0.0.1:0")
    url = process.events("admin listening")[0]["url"]
    address = str(tmp_path / "admin") if unix else ("127.0.0.1", int(url.rpartition(":")[2]))
    with Poller(address, socket.AF_UNIX if unix else socket.AF_INET).running() as poller:
        for number in range(3):
            edit(process, file, APP.format(said=f"{number}"))
            # the same port again, though the kernel has chosen it
            assert process.wait_for("admin listening")["url"] == url
            process.wait_for("listening")
        edit(process, file, "1 / 0\n")
        process.wait_for("the application has ended; waiting for a change")
        edit(process, file, APP.format(said="mended"))
        process.wait_for("listening")
        assert process.get().endswith("mended")
    assert set(poller.seen) == {"HTTP/1.1 200 OK"}
    assert poller.seen.total() >= 5
    process.signal()
    assert process.end()[0] == 0
    assert not (tmp_path / "admin").exists()


@pytest.mark.parametrize("uds", [True, False])
def test_an_admin_listener_that_cannot_be_had_ends_the_parent_and_leaves_no_file(
    file: Path, tmp_path: Path, uds: bool
) -> None:
    where = ("--uds", "socket") if uds else ("--port", "0")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert_one_line(run("serve", *RELOAD, *where, "--admin", f"127.0.0.1:{port}", cwd=tmp_path), 3, "--admin")
    assert not (tmp_path / "socket").exists()


LATE = """
import os, selectors, signal, sys

parent, late, close = os.getpid(), int(sys.argv.pop()), selectors.DefaultSelector.close

def signal_and_close(selector):
    if os.getpid() == parent:
        os.kill(parent, late)
    close(selector)

selectors.DefaultSelector.close = signal_and_close
from deadlined.__main__ import run
run()
"""


@pytest.mark.parametrize("late", STOPS, ids=lambda number: number.name)
def test_a_signal_as_the_parent_ends_changes_nothing(file: Path, tmp_path: Path, late: signal.Signals) -> None:
    command = [COMMAND[0], "-c", LATE]
    with launched("serve", *RELOAD, "--port", "0", str(int(late)), cwd=tmp_path, command=command) as started:
        process = Process(started)
        process.signal()
        assert process.end() == (0, "")


def test_a_process_that_cannot_be_forked_is_one_line_and_leaves_no_file(file: Path, tmp_path: Path) -> None:
    program = (
        "import errno, os\n"
        "def fork():\n    raise BlockingIOError(errno.EAGAIN, 'none is left')\n"
        "os.fork = fork\n"
        "from deadlined.__main__ import run\nrun()\n"
    )
    command = [COMMAND[0], "-c", program, "serve", *RELOAD, "--uds", "socket"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment(), check=False)
    assert_one_line(done, 1, "--reload: cannot start a process: none is left")
    assert not (tmp_path / "socket").exists()
