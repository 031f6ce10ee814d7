"""Where the admin listener listens, and what is refused before anything runs."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from deadlined.service import StartupError
from deadlined.service.admin.address import open_admin, read_token
from deadlined.service.errors import CANNOT_BIND, WRONG_ARGUMENTS


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    file = tmp_path / "token"
    file.write_text("s3cret\nthe rest is a comment\n")
    return str(file)


def refused(address: str, token_file: str | None = None) -> StartupError:
    with pytest.raises(StartupError) as caught:
        open_admin(address, token_file)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    "address", ["", "9000", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "::1:9000", "a:-1", "a:1 "]
)
def test_anything_else_is_refused_with_the_form_to_write(address: str) -> None:
    error = refused(address)
    assert error.exit_code == WRONG_ARGUMENTS
    assert "HOST:PORT" in str(error)


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:0", "127.9.9.9:0"])
def test_a_loopback_address_needs_no_token(address: str) -> None:
    sockets = open_admin(address, None)
    assert sockets.gate.token is None
    assert sockets.url == f"http://{address.partition(':')[0]}:{sockets.sockets[0].getsockname()[1]}"
    sockets.close()


@pytest.mark.parametrize("address", ["0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "[::ffff:127.0.0.1]:0"])
def test_any_other_address_does(address: str) -> None:
    error = refused(address)
    assert error.exit_code == WRONG_ARGUMENTS
    assert "--admin-token-file" in str(error)


def test_with_a_token_a_public_address_is_allowed(token_file: str) -> None:
    sockets = open_admin("0.0.0.0:0", token_file)
    assert sockets.gate.token == b"s3cret"
    sockets.close()


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        error = refused(address)
    assert error.exit_code == CANNOT_BIND
    assert str(error).startswith(f"--admin: cannot listen on {address}: ")
    assert str(error).endswith("choose another --admin")


@pytest.mark.parametrize("host", ["no.such.host.invalid", "127.0.0..1", "a" * 64, "127.0.0.1\0"])
def test_a_name_that_does_not_resolve_is_named(host: str) -> None:
    error = refused(f"{host}:1")
    assert error.exit_code == CANNOT_BIND
    assert host in str(error)


def test_a_unix_socket_is_its_owners_alone_and_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    sockets = open_admin(f"unix:{path}", None)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sockets.gate.names is None
    sockets.close()
    assert not path.exists()


def test_a_worker_process_leaves_the_file_to_the_others(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    sockets = open_admin(f"unix:{path}", None)
    sockets.close(unlink=False)
    assert path.exists()


def test_a_stale_socket_is_replaced_and_one_in_use_is_not(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    open_admin(f"unix:{path}", None).close(unlink=False)
    second = open_admin(f"unix:{path}", None)
    assert refused(f"unix:{path}").exit_code == CANNOT_BIND
    second.close()


@pytest.mark.parametrize("path", ["", "x" * 108], ids=["empty", "long"])
def test_a_path_that_no_socket_can_have_is_refused(path: str) -> None:
    assert refused(f"unix:{path}").exit_code == WRONG_ARGUMENTS


def test_a_path_without_a_directory_is_refused(tmp_path: Path) -> None:
    assert refused(f"unix:{tmp_path}/no/such").exit_code == CANNOT_BIND


def test_a_file_that_is_no_socket_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    assert refused(f"unix:{path}").exit_code == CANNOT_BIND
    assert path.read_text() == "data"


def test_the_token_is_the_first_line(token_file: str) -> None:
    assert read_token(token_file) == b"s3cret"


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"  \nsecond\n", b"two words\n", b"\xff\xfe", "tökén\n".encode(), b"a\x00b"]
)
def test_a_file_without_a_token_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    error = refused("127.0.0.1:0", str(file))
    assert error.exit_code == WRONG_ARGUMENTS
    assert str(file) in str(error)


def test_a_token_file_that_is_missing_is_named(tmp_path: Path) -> None:
    assert "No such file" in str(refused("127.0.0.1:0", str(tmp_path / "none")))
