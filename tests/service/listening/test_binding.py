"""What is said when a service cannot listen."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from deadlined.service.listening.binding import cannot_listen
from deadlined.service.listening.holders import port_holder, uds_holder
from tests.support.command import COMMAND, PATIENCE, environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def said(error: OSError, *, uds: str | None = None, host: str = "127.0.0.1", port: int = 8000) -> str:
    found = cannot_listen(error, uds=uds, host=host, port=port)
    assert found.exit_code == 3
    assert "\n" not in str(found)
    return str(found)


def error_of(number: int) -> OSError:
    return OSError(number, os.strerror(number))


HERE = os.getpid()


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process asks."""
    monkeypatch.setattr(os, "getpid", lambda: 0)


def test_a_port_that_is_taken_names_the_process(elsewhere: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        text = said(error_of(errno.EADDRINUSE), port=taken.getsockname()[1])
    assert f"another process has it (process {HERE}: " in text
    assert text.endswith("), choose another --port")


@pytest.mark.usefixtures("elsewhere")
def test_a_unix_socket_that_is_taken_names_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind("a socket")
        taken.listen()
        assert uds_holder("a socket").startswith(f"process {HERE}: ")
        assert said(error_of(errno.EADDRINUSE), uds="a socket").endswith("), choose another --uds")
    assert uds_holder("another") == ""


def test_a_port_over_ipv6_names_the_process(elsewhere: None) -> None:
    try:
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 here")
    with server as taken:
        assert port_holder(taken.getsockname()[1]).startswith(f"process {HERE}")


def test_a_place_that_this_process_has_already_is_told_apart(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as port, socket.socket(socket.AF_UNIX) as uds:
        uds.bind(str(tmp_path / "socket"))
        uds.listen()
        of_port = said(error_of(errno.EADDRINUSE), port=port.getsockname()[1])
        of_uds = said(error_of(errno.EADDRINUSE), uds=str(tmp_path / "socket"))
    already = "this service listens there already (--admin, another --bind, or its application)"
    assert of_port.endswith(f"; {already}, choose another --port")
    assert of_uds.endswith(f"; {already}, choose another --uds")


def test_a_process_that_is_not_known_is_not_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        free = other.getsockname()[1]
    assert said(error_of(errno.EADDRINUSE), port=free).endswith("; another process has it, choose another --port")
    # a system without /proc
    assert port_holder(free, tmp_path) == uds_holder("a socket", tmp_path) == ""


def proc(folder: Path, command: bytes) -> Path:
    """Make a /proc in which process 7 listens on port 80, and process 5 is somebody else's."""
    (folder / "net").mkdir()
    (folder / "net" / "tcp").write_text(
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 00000000:0050 00000000:0000 01 00000000:00000000 00:00000000 00000000     0        0 1111 1 0\n"
        "   1: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0\n"
        "   2: cut short\n"
    )
    (folder / "5").mkdir()
    for process, inode in (("6", "1111"), ("7", "4711")):
        (folder / process / "fd").mkdir(parents=True)
        (folder / process / "fd" / "3").symlink_to(f"socket:[{inode}]")
        (folder / process / "cmdline").write_bytes(command)
    return folder


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (b"nginx\0-g\0daemon off;\0", "process 7: nginx -g daemon off;"),
        (b"", "process 7"),
        (b"\x1b[2Jx\n", r"process 7: \x1b[2Jx"),
        (b"x" * 100, f"process 7: {'x' * 60}..."),
        (b"app\0redis://user:secret@host/1\0", "process 7: app redis://...@host/1"),
    ],
)
def test_only_who_listens_is_named_and_harmlessly(tmp_path: Path, command: bytes, shown: str) -> None:
    assert port_holder(80, proc(tmp_path, command)) == shown
    assert port_holder(81, tmp_path) == ""


def test_a_port_that_needs_a_privilege_says_how_to_get_it() -> None:
    text = said(error_of(errno.EACCES), port=0)
    assert text.startswith("cannot listen on 127.0.0.1:0: Permission denied; this user may not listen")
    low = cannot_listen(error_of(errno.EACCES), uds=None, host="", port=1)
    first = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    if first > 1:
        assert f"on ports below {first}, choose another --port; or grant it" in str(low)
        assert "CAP_NET_BIND_SERVICE" in str(low)
    assert said(error_of(errno.EACCES), port=65535).endswith("; this user may not listen there, choose another --port")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EADDRNOTAVAIL, "no interface of this machine has this address, choose another --host"),
        (errno.EAFNOSUPPORT, "choose another --host"),
    ],
)
def test_an_address_that_cannot_be_bound_says_what_to_do(number: int, words: str) -> None:
    assert said(error_of(number)).endswith(words)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "this user may not create it there"),
        (errno.ENOENT, "its directory must exist"),
        (errno.ENOTDIR, "a part of its path is a file"),
        (errno.EEXIST, "remove it, or choose another --uds"),
        (errno.EROFS, "choose a --uds on another file system"),
    ],
)
def test_a_path_that_cannot_be_bound_says_what_to_do(number: int, words: str) -> None:
    assert words in said(error_of(number), uds="/run/socket")


def test_an_error_that_is_not_known_is_told_as_it_is() -> None:
    assert said(error_of(errno.EIO)) == "cannot listen on 127.0.0.1:8000: Input/output error"
    assert said(OSError("odd"), host="::1") == "cannot listen on [::1]:8000: odd"


# what the system really says


def serve(*arguments: str, cwd: Path, wrapper: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*wrapper, *COMMAND, "serve", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=environment(),
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--host", "no-such-name.invalid"), "choose another --host"),
        (("--uds", "x" * 200), "choose a shorter --uds"),
        (("--uds", "file/socket"), "a part of its path is a file"),
    ],
)
def test_a_place_that_does_not_exist_is_one_line_and_3(tmp_path: Path, arguments: tuple[str, str], words: str) -> None:
    (tmp_path / "file").touch()
    completed = serve(*arguments, cwd=tmp_path)
    assert completed.returncode == 3
    (line,) = completed.stderr.splitlines()
    assert line.startswith("Error: cannot listen on ")
    assert words in line


def test_a_user_without_privileges_is_told_about_low_ports() -> None:
    """Also as root: a process that drops CAP_NET_BIND_SERVICE (10) from its bounding set starts programs without it."""
    if int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 1:
        pytest.skip("every user may listen on every port here")
    drop = "import ctypes, os, sys; ctypes.CDLL(None).prctl(24, 10, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
    completed = serve("--port", "1", cwd=Path.cwd(), wrapper=(sys.executable, "-c", drop))
    assert completed.returncode == 3, completed.stderr
    assert "Permission denied; this user may not listen on ports below" in completed.stderr
