"""What the commands of the load test have in common."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from loadtest import target
from loadtest.command import main
from loadtest.commands import conclude
from loadtest.crew import noted
from loadtest.servers import ROOT
from tests.support.load_command import measuring
from tests.support.net import LOCALHOST

COMMANDS = [("check", "--limit", "5"), ("http", "--rate", "5", "--duration", "5"), ("churn", "--connections", "30")]


@pytest.mark.parametrize("arguments", COMMANDS, ids=[name for name, *_ in COMMANDS])
def test_ctrl_c_during_the_first_request_is_one_line(arguments: tuple[str, ...]) -> None:
    """The server accepts it, and never answers."""
    with socket.create_server((LOCALHOST, 0)) as listener:
        name, *options = arguments
        url = f"http://{LOCALHOST}:{listener.getsockname()[1]}/"
        with measuring(name, url, *options) as process:
            listener.settimeout(30)
            # the first may only try whether anything listens
            while not (client := listener.accept()[0]).recv(1000):
                client.close()
            with client:
                process.send_signal(signal.SIGINT)
                output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output
    assert "Interrupted" in output
    assert "Traceback" not in output
    assert "Aborted" not in output


@pytest.mark.parametrize("name", ["__main__.run", "installed.main"])
def test_ctrl_c_while_a_command_is_loaded_ends_it_in_silence(tmp_path: Path, name: str) -> None:
    (tmp_path / "httptools.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    module, _, function = name.partition(".")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from loadtest.{module} import {function} as f; f()"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_in_a_command_that_does_not_handle_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("loadtest.document.update", interrupted)
    done = CliRunner().invoke(main, ["document", __file__])
    assert (done.exit_code, done.output) == (130, "Interrupted.\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("http", "--rate", "nan"),
        ("http", "--rate", "1", "--duration", "nan"),
        ("http", "--rate", "1", "--patience", "nan"),
        ("check", "--limit", "nan"),
        ("churn", "--duration", "nan"),
        ("churn", "--deadline", "NaN"),
        ("churn", "--limit", "nan"),
    ],
)
def test_nan_is_no_number(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, [arguments[0], "http://127.0.0.1:1/", *arguments[1:]])
    assert done.exit_code == 2
    assert f"'{arguments[-1]}' is not a number from 0." in done.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("http", "--rate", "x"), "'x' is not a number from 0.1 to 1000000."),
        (("http", "--rate", "-1"), "'-1' is not a number from 0.1 to 1000000."),
        (("churn", "--duration", "1m"), "'1m' is not a number from 0.5 to 86400."),
        (("check", "--connections", "1.5"), "'1.5' is not a whole number from 0 to 5000."),
    ],
)
def test_what_is_no_number_says_what_is_allowed(arguments: tuple[str, ...], told: str) -> None:
    done = CliRunner().invoke(main, [arguments[0], "http://127.0.0.1:1/", *arguments[1:]])
    assert done.exit_code == 2
    assert done.output.endswith(f"Error: Invalid value for '{arguments[1]}': {told}\n")


def test_the_port_0_is_none() -> None:
    with pytest.raises(target.ForbiddenTargetError, match="is no URL of HTTP"):
        target.resolve("http://127.0.0.1:0/")


@contextmanager
def dripping(beginning: bytes) -> Iterator[target.Target]:
    """A server that answers each connection with this, and then with a byte every 10 ms, until the client leaves."""
    over = threading.Event()
    threads: list[threading.Thread] = []

    def start(function: Callable[[socket.socket], None], argument: socket.socket) -> None:
        threads.append(threading.Thread(target=function, args=(argument,)))
        threads[-1].start()

    def drip(client: socket.socket) -> None:
        with client:
            try:
                client.sendall(beginning)
                while not over.wait(0.01):
                    client.sendall(b"x")
            except OSError:
                return

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                client = listener.accept()[0]
            except OSError:
                return
            start(drip, client)

    with socket.create_server((LOCALHOST, 0)) as listener:
        start(serve, listener)
        try:
            yield target.resolve(f"http://{LOCALHOST}:{listener.getsockname()[1]}/")
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
            # the first has started the others, and is joined before them
            for thread in threads:
                thread.join()


@pytest.mark.parametrize("beginning", [b"", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nx: "])
def test_an_answer_without_end_is_no_answer(beginning: bytes) -> None:
    with dripping(beginning) as asked, pytest.raises(target.UnusableTargetError):
        target.ask(asked, patience=0.2)


def test_a_refusal_without_end_is_read_for_a_while() -> None:
    with dripping(b"what?") as asked:
        found = target.refusal(asked, patience=0.2)
    assert found.startswith(b"what?")
    assert len(found) < 2000


def test_a_file_that_cannot_be_written_keeps_nothing_else_from_being_written_and_shown(tmp_path: Path) -> None:
    shown: list[str] = []
    with pytest.raises(click.ClickException, match="cannot be written: No such file"):
        # what is shown comes after the files
        conclude(
            lambda: shown.append((tmp_path / "b").read_text()),
            (tmp_path / "absent" / "a", lambda: "a"),
            (None, lambda: ""),
            (tmp_path / "b", lambda: "b"),
        )
    assert shown == ["b"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old").write_text("old")

    def full(self: Path, text: str, encoding: str) -> None:
        self.write_bytes(text[:1].encode())
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(click.ClickException, match="No space left on device"):
        conclude(print, (tmp_path / "old", lambda: "new"))
    monkeypatch.undo()
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old", "old")]


def test_what_is_no_file_is_written_as_it_is() -> None:
    conclude(print, (Path("/dev/null"), lambda: "gone"))
    assert not Path("/dev/null").is_file()


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        conclude(print, (tmp_path / "pipe", lambda: "text"))
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_what_it_names_is_written(there: bool, tmp_path: Path) -> None:
    if there:
        (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    conclude(print, (tmp_path / "link", lambda: "new"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"


def test_a_file_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o640)
    conclude(print, (tmp_path / "file", lambda: "new"))
    assert (tmp_path / "file").read_text() == "new"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_a_file_in_a_folder_that_takes_no_new_one_is_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("old")
    number = (tmp_path / "file").stat().st_ino
    # root may write everywhere
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    conclude(print, (tmp_path / "file", lambda: "new"))
    assert (tmp_path / "file").read_text() == "new"
    assert (tmp_path / "file").stat().st_ino == number


def test_a_mounted_file_cannot_be_replaced_and_is_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(self: Path, target: Path) -> Path:
        raise OSError(errno.EBUSY, "Device or resource busy")

    (tmp_path / "file").write_text("old")
    monkeypatch.setattr(Path, "replace", busy)
    conclude(print, (tmp_path / "file", lambda: "new"))
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "new")]


def test_where_ctrl_c_is_ignored_it_ends_no_run() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with noted() as interrupt:
            signal.raise_signal(signal.SIGINT)
            assert not interrupt.is_set()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
