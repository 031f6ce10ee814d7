"""Listening on a unix socket: its path, its mode, and its removal."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from deadlined import open_unix_listener, open_unix_stream
from deadlined.net.listen_unix import listening_unix_socket
from deadlined.net.sockets import longest_path
from tests.support.net import fails_at_its_deadline, refuse_when_full


@pytest.mark.parametrize("name", ["s", "\udcff"], ids=["text", "not UTF-8"])
@pytest.mark.parametrize("as_type", [Path, str, os.fsencode, trio.Path])
async def test_a_unix_listener_makes_its_path_and_removes_it(
    tmp_path: Path, name: str, as_type: Callable[[Path], str | bytes | os.PathLike[str]]
) -> None:
    path = tmp_path / name
    async with await open_unix_listener(as_type(path)) as listener:
        assert path.is_socket()
        async with await open_unix_stream(as_type(path)) as client, await listener.accept() as server:
            await client.send_all(b"x")
            assert await server.receive_some() == b"x"
    assert not path.exists()


@pytest.mark.parametrize(("platform", "seconds"), [("linux", 0.0), ("darwin", 0.1)])
async def test_a_stale_unix_socket_is_replaced(
    platform: str, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """At once only where a refusal says that it is stale."""
    monkeypatch.setattr("sys.platform", platform)
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()
    assert path.is_socket()
    async with await open_unix_listener(path) as listener, await open_unix_stream(path), await listener.accept():
        assert trio.current_time() == pytest.approx(seconds)


@pytest.mark.parametrize("room_after", [1, 3])
def test_a_full_unix_socket_is_asked_again_where_the_kernel_refuses_then(
    room_after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as client:
        busy.bind(path)
        busy.listen(0)
        client.connect(path)
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == room_after:
                busy.accept()[0].close()

        refuse_when_full(monkeypatch)
        monkeypatch.setattr("time.sleep", sleep)
        with pytest.raises(OSError, match="in use"):
            listening_unix_socket(path)
    assert len(slept) == room_after


@pytest.mark.parametrize("full", [False, True], ids=["idle", "queue full"])
async def test_a_unix_socket_that_somebody_listens_on_is_not_taken_away(tmp_path: Path, full: bool) -> None:
    path = tmp_path / "s"
    backlog = 0 if full else 2
    async with await open_unix_listener(path, backlog=backlog) as listener, AsyncExitStack() as stack:
        if full:
            await stack.enter_async_context(await open_unix_stream(path))
        with pytest.raises(OSError, match="in use") as caught:
            await open_unix_listener(path)
        assert caught.value.filename == str(path)
        assert path.is_socket()
        if not full:
            await stack.enter_async_context(await open_unix_stream(path))
        # the second opener's own attempt to find out may be in the queue, too
        await stack.enter_async_context(await listener.accept())


async def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data", encoding="ascii")
    with pytest.raises(FileExistsError, match="is not a socket") as caught:
        await open_unix_listener(path)
    assert caught.value.filename == str(path)
    assert path.read_text(encoding="ascii") == "data"


@pytest.mark.parametrize("kind", ["directory", "dangling link"])
async def test_whatever_else_is_at_the_path_is_told_from_a_socket_in_use(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "taken"
    if kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "nothing")
    with pytest.raises(FileExistsError, match="is not a socket"):
        await open_unix_listener(path)


async def test_the_close_leaves_a_successors_socket_alone(tmp_path: Path) -> None:
    """Another process has replaced the socket while this one still listened."""
    path = tmp_path / "s"
    first = await open_unix_listener(path)
    path.unlink()
    async with await open_unix_listener(path) as second:
        await first.aclose()
        assert path.is_socket()
        async with await open_unix_stream(path), await second.accept():
            pass
    assert not path.exists()


async def test_a_relative_path_is_removed_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with await open_unix_listener("s"):
        monkeypatch.chdir("/")
    assert not (tmp_path / "s").exists()


async def test_a_path_that_cannot_be_removed_does_not_keep_the_socket_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EACCES, "not yours any more")

    listener = await open_unix_listener(tmp_path / "s")
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(PermissionError):
        await listener.aclose()
    assert listener.socket.fileno() == -1
    await listener.aclose()


@pytest.mark.parametrize(
    ("umask", "mode", "bits"), [(0o077, 0o660, 0o660), (0o000, 0o600, 0o600), (0o027, None, 0o750)]
)
async def test_the_mode_of_a_unix_socket(tmp_path: Path, umask: int, mode: int | None, bits: int) -> None:
    path = tmp_path / "s"
    before = os.umask(umask)
    try:
        async with await open_unix_listener(path, mode=mode):
            assert stat.S_IMODE(path.stat().st_mode) == bits
            assert os.umask(umask) == umask
    finally:
        os.umask(before)


async def test_the_mode_is_set_before_anybody_can_connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s"
    set_mode = Path.chmod
    refused: list[bool] = []

    def chmod(file: Path, mode: int) -> None:
        with socket.socket(socket.AF_UNIX) as early, pytest.raises(ConnectionRefusedError):
            early.connect(str(path))
        refused.append(True)
        set_mode(file, mode)

    monkeypatch.setattr(Path, "chmod", chmod)
    async with await open_unix_listener(path, mode=0o600):
        assert refused == [True]


async def test_a_unix_listener_that_cannot_be_opened_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: Path, mode: int) -> None:
        raise PermissionError(errno.EPERM, "not allowed")

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(PermissionError):
        await open_unix_listener(tmp_path / "s", mode=0o600)
    assert not (tmp_path / "s").exists()


async def test_closing_again_does_not_remove_a_successors_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"
    first = await open_unix_listener(path)
    await first.aclose()
    async with await open_unix_listener(path):
        await first.aclose()
        assert path.is_socket()


async def test_a_path_that_is_gone_already_does_not_hinder_the_close(tmp_path: Path) -> None:
    async with await open_unix_listener(tmp_path / "s"):
        (tmp_path / "s").unlink()


async def test_a_unix_listener_has_deadlines_too(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with await open_unix_listener(tmp_path / "s") as listener:
        listener.set_deadline(1.0)
        await fails_at_its_deadline(listener.accept)
        assert trio.current_time() == 1.0


@pytest.mark.parametrize(("platform", "most"), [("linux", 107), ("darwin", 103), ("freebsd14", 103)])
def test_the_longest_path_is_the_system_s(platform: str, most: int) -> None:
    assert longest_path(platform) == most


def test_the_system_takes_the_longest_path_and_none_that_is_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as longer, pytest.raises(OSError, match="AF_UNIX path too long"):
        longer.bind("a" * (longest_path() + 1))
    with socket.socket(socket.AF_UNIX) as longest:
        longest.bind("a" * longest_path())
