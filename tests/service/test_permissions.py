"""What this user may not read, write or make: one line that says what, the right code, and nothing left behind.

Also as root: a process that drops CAP_DAC_OVERRIDE (1) and CAP_DAC_READ_SEARCH (2) from its bounding set starts
programs without them.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.support.command import APPS, COMMAND, PATIENCE, Process, assert_error, environment, launched, read_all

DROP = (
    "import ctypes, os, sys; prctl = ctypes.CDLL(None).prctl;"
    "prctl(24, 1, 0, 0, 0); prctl(24, 2, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
SERVE = [sys.executable, "-c", DROP, *COMMAND, "serve"]
TLS = ("--certfile", "cert.pem", "--keyfile", "key.pem")

FORBIDDEN = {
    "a socket": (("--uds", "closed/socket"), 3, "cannot listen on closed/socket: Permission denied; this user may not"),
    "an admin socket": (
        ("--admin", "unix:closed/a.sock"),
        3,
        "--admin: cannot listen on closed/a.sock: Permission denied; this user may not create it there, choose another",
    ),
    "a configuration": (("--config", "secret"), 2, "secret: cannot read it: Permission denied"),
    "variables": (("--env-file", "secret"), 2, "--env-file secret: cannot read it: Permission denied"),
    "a token": (
        ("--admin", "127.0.0.1:0", "--admin-token-file", "secret"),
        2,
        "--admin-token-file: cannot read {here}/secret: P",
    ),
    "a certificate": (("--certfile", "secret"), 2, "--certfile {here}/secret: cannot read it: Permission denied"),
    "a key": (
        ("--certfile", "cert.pem", "--keyfile", "secret"),
        2,
        "--keyfile {here}/secret: cannot read it: Permission denied",
    ),
    "a password": (
        (*TLS, "--key-password-file", "secret"),
        2,
        "--key-password-file {here}/secret: cannot read it: Permission",
    ),
    "authorities": ((*TLS, "--client-ca", "secret"), 2, "--client-ca {here}/secret: cannot read it: Permission denied"),
    "an application": (("forbidden:app",), 1, "importing 'forbidden' failed: PermissionError"),
}


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """Return a directory with files and a directory that nobody may use."""
    issued = trustme.CA().issue_cert("server.example")
    (tmp_path / "cert.pem").write_bytes(issued.cert_chain_pems[0].bytes())
    (tmp_path / "key.pem").write_bytes(issued.private_key_pem.bytes())
    (tmp_path / "apps.py").write_text(APPS)
    for name in ("secret", "forbidden.py"):
        (tmp_path / name).touch(0o000)
    (tmp_path / "closed").mkdir(0o000)
    yield tmp_path
    (tmp_path / "closed").chmod(0o700)


@pytest.mark.parametrize("what", FORBIDDEN)
def test_what_is_forbidden_is_one_line_and_leaves_nothing_behind(directory: Path, what: str) -> None:
    arguments, code, words = FORBIDDEN[what]
    before = sorted(path.name for path in directory.iterdir())
    completed = subprocess.run(
        [*SERVE, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=directory,
        env=environment(PYTHONDONTWRITEBYTECODE="1"),
        check=False,
    )
    assert_error(completed, code, words.format(here=directory))
    assert sorted(path.name for path in directory.iterdir()) == before
    (directory / "closed").chmod(0o700)
    assert list((directory / "closed").iterdir()) == []


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_reload_of_what_may_not_be_read_any_more_changes_nothing(directory: Path, workers: str) -> None:
    file = directory / "shop.toml"
    file.write_text("idle = '3600s'\n")
    arguments = ("apps:pid", "--port", "0", "--config", "shop.toml", "--workers", workers)
    with launched(*arguments, cwd=directory, command=SERVE) as running:
        process = Process(running)
        file.chmod(0o000)
        process.signal(signal.SIGHUP)
        told = process.wait_for("reload refused")
        assert (told["why"], told["level"]) == (f"{file}: cannot read it: Permission denied", "error")
        assert process.get().startswith("HTTP/1.1 200")
        process.signal()
        assert process.end() == (0, "")


def test_a_log_that_may_not_be_written_changes_nothing(directory: Path) -> None:
    with (
        (directory / "apps.py").open() as read_only,
        launched("apps:pid", "--uds", "socket", cwd=directory, command=SERVE, stdout=read_only) as running,
    ):
        for _ in range(3):
            assert answer(directory / "socket").startswith("HTTP/1.1 200")
        running.send_signal(signal.SIGTERM)
        _, complaint = running.communicate(timeout=PATIENCE)
        assert (running.returncode, complaint) == (0, "")
    # nor does it harm what it may not write
    assert not (directory / "socket").exists()
    assert (directory / "apps.py").read_text() == APPS


def answer(path: Path) -> str:
    """Ask a server on a unix socket, once it listens."""
    limit = time.monotonic() + PATIENCE
    while True:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PATIENCE)
            try:
                client.connect(str(path))
            except OSError:
                assert time.monotonic() < limit
                time.sleep(0.01)
                continue
            client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            return read_all(client)
