"""The sockets of `deadlined serve`."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from deadlined.service import StartupError
from deadlined.service.config import ServeConfig
from deadlined.service.listening.free_port import free_port
from deadlined.service.listening.listening import close_all, listen, take_places, url_of, with_chosen_ports
from tests.support.command import Process, Starter, assert_one_line, launched, read_all, run
from tests.support.net import forget_who_listens


async def urls(**options: object) -> list[str]:
    """Listen, and return where."""
    config = ServeConfig(**options)  # type: ignore[arg-type]
    listeners = listen(take_places(config))
    try:
        return [url_of(config, listener.socket) for listener in listeners]
    finally:
        for listener in listeners:
            listener.close()


async def test_it_listens_in_several_places(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    found = await urls(bind=("127.0.0.1:0", f"unix:{path}", "[::1]:0"))
    assert found[0].startswith("http://127.0.0.1:")
    assert found[1] == f"unix:{path}"
    assert found[2].startswith("http://[::1]:")
    assert not path.exists()


async def test_nothing_is_left_open_if_one_place_cannot_be_had(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(StartupError, match=f"cannot listen on {taken}: .*choose another --bind") as caught:
            await urls(bind=(f"unix:{path}", taken))
    assert caught.value.exit_code == 3
    assert not path.exists()


@pytest.mark.parametrize("kind", ["tcp", "unix"])
async def test_connections_are_refused_until_the_service_listens(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    (place,) = places = take_places(ServeConfig(port=0) if kind == "tcp" else ServeConfig(uds=str(path)))
    (found,) = place.sockets
    try:
        with socket.socket(found.family) as early, pytest.raises(ConnectionRefusedError):
            early.connect(found.getsockname())
        (listener,) = listen(places)
        with socket.socket(found.family) as client:
            client.connect(found.getsockname())
        await listener.aclose()
    finally:
        close_all(places)
    assert not path.exists()


# other systems let nobody else bind a port that is bound
@pytest.mark.parametrize("kind", ["tcp", "unix"] if sys.platform == "linux" else ["unix"])
async def test_a_place_that_another_process_has_taken_meanwhile_is_told(kind: str, tmp_path: Path) -> None:
    """Two services that are started at once: the first one that is ready gets the place."""
    path = tmp_path / "socket"
    config = ServeConfig(uds=str(path))
    if kind == "tcp":
        config = with_chosen_ports(ServeConfig(port=0), free_port)
    first, second = take_places(config), take_places(config)
    try:
        (listener,) = listen(second)
        with pytest.raises(StartupError, match=r"cannot listen on .*: Address already in use; ") as caught:
            listen(first)
        assert caught.value.exit_code == 3
        # the file is the other one's
        close_all(first)
        with socket.socket(listener.socket.family) as client:
            client.connect(listener.socket.getsockname())
        await listener.aclose()
    finally:
        close_all([*first, *second])
    assert not path.exists()


async def test_an_inherited_socket_is_served_and_not_passed_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as given:
        fd = os.dup(given.fileno())
        os.set_inheritable(fd, True)
        config = ServeConfig(bind=(f"fd://{fd}",))
        (listener,) = listen(take_places(config))
        assert url_of(config, listener.socket) == f"http://127.0.0.1:{given.getsockname()[1]}"
        assert not os.get_inheritable(fd)
        await listener.aclose()


async def test_an_inherited_socket_is_served_where_the_kernel_does_not_tell_whether_it_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forget_who_listens(monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as given:
        assert await urls(bind=(f"fd://{os.dup(given.fileno())}",)) == [f"http://127.0.0.1:{given.getsockname()[1]}"]


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("closed", "the process has not inherited it"),
        ("file", "Socket operation on non-socket; give a listening socket that another program hands over"),
        ("connected", "it is not a listening stream socket; give a listening socket that another program hands over"),
        ("datagram", "it is not a listening stream socket; give a listening socket that another program hands over"),
    ],
)
async def test_a_descriptor_that_does_not_listen_is_told_and_left_open(kind: str, told: str) -> None:
    pair = socket.socketpair()
    datagram = socket.socket(type=socket.SOCK_DGRAM)
    fd = 12345
    if kind == "file":
        fd = os.open("/dev/null", os.O_RDONLY)
    elif kind != "closed":
        fd = os.dup((pair[0] if kind == "connected" else datagram).fileno())
    try:
        with pytest.raises(StartupError, match=f"cannot listen on fd://{fd}: .*{told}") as caught:
            await urls(bind=(f"fd://{fd}",))
        assert caught.value.exit_code == 3
    finally:
        if kind != "closed":
            os.close(fd)
        for end in (*pair, datagram):
            end.close()


async def test_the_owner_of_a_unix_socket_is_set_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    config = ServeConfig(uds=str(path), uds_mode=0o660, uds_owner=f"{os.getuid()}:{os.getgid()}")
    (listener,) = listen(take_places(config))
    found = path.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (os.getuid(), os.getgid(), 0o660)
    await listener.aclose()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
async def test_root_can_give_the_socket_to_another(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    (listener,) = listen(take_places(ServeConfig(bind=(f"unix:{path}",), uds_owner="12345:daemon")))
    assert path.stat().st_uid == 12345
    await listener.aclose()


async def test_an_owner_that_may_not_be_given_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refuse)
    with pytest.raises(StartupError, match=r"Operation not permitted; .*see --uds-owner"):
        await urls(uds=str(tmp_path / "socket"), uds_owner="0")
    assert not (tmp_path / "socket").exists()


@pytest.mark.parametrize("owner", ["no-such-user", ":no-such-group"])
async def test_an_owner_that_is_not_there_is_told(tmp_path: Path, owner: str) -> None:
    with pytest.raises(StartupError, match=f"this machine has no (user|group) '{owner.strip(':')}'") as caught:
        await urls(uds=str(tmp_path / "socket"), uds_owner=owner)
    assert caught.value.exit_code == 2


def test_processes_that_share_a_port_have_it_chosen_once() -> None:
    config = ServeConfig(bind=("127.0.0.1:0", "fd://3", "[::1]:80"), workers=2)
    assert with_chosen_ports(config, lambda host, port: port or 9999).bind == (
        *("127.0.0.1:9999", "fd://3", "[::1]:80"),
    )
    short = with_chosen_ports(ServeConfig(port=0, workers=2), lambda host, port: port or 9999)
    assert short.bind == ("127.0.0.1:9999",)
    for given in (ServeConfig(port=80), ServeConfig(uds="socket"), ServeConfig(bind=("127.0.0.1:80", "unix:socket"))):
        assert with_chosen_ports(given, lambda host, port: port) is given


def test_an_error_of_worker_processes_names_the_option_that_was_given(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run("serve", "--workers", "2", "--uds", str(tmp_path / "file"))
    assert_one_line(done, 3, "--uds")
    assert "--bind" not in done.stderr


# as processes


def test_every_place_answers(start: Starter, tmp_path: Path) -> None:
    process = start("apps:shop.app", "--bind", "127.0.0.1:0", "--bind", f"unix:{tmp_path}/s")
    assert process.wait_for("listening")["url"] == f"unix:{tmp_path}/s"
    assert process.get().endswith("shop")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"{tmp_path}/s")
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert read_all(client).endswith("shop")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_socket_of_the_parent_is_served_by_all_processes(tmp_path: Path, workers: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as given:
        arguments = ("serve", "--bind", f"fd://{given.fileno()}", "--workers", workers, "--drain", "1s")
        with launched(*arguments, cwd=tmp_path, pass_fds=[given.fileno()]) as running:
            process = Process(running)
            for _ in range(int(workers) - 1):
                process.wait_for("listening")
            assert process.port == given.getsockname()[1]
            for _ in range(4):
                assert process.get().startswith("HTTP/1.1 200 OK")
            process.signal()
            assert process.end()[0] == 0


def test_a_descriptor_that_was_not_inherited_ends_it_with_3() -> None:
    assert_one_line(run("serve", "--bind", "fd://12345"), 3, "fd://12345", "has not inherited it")


def test_a_place_that_is_none_ends_it_with_2() -> None:
    assert_one_line(run("serve", "--bind", "8000"), 2, "--bind", "'8000' is not a place to listen")
