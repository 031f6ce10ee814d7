"""Where a command of `deadlined run` is to listen."""

from __future__ import annotations

import socket
import stat
import tempfile
from pathlib import Path

import pytest

from deadlined.runtime import current_time
from deadlined.service.command.place import place_in
from deadlined.service.errors import StartupError


def test_a_unix_socket_is_in_a_directory_for_this_user_alone() -> None:
    place = place_in(["serve", "--bind=unix:{uds}", "{uds}"])
    path = Path(place.value)
    try:
        assert place.arguments(["serve", "--bind=unix:{uds}", "{uds}"]) == ["serve", f"--bind=unix:{path}", str(path)]
        assert place.address == f"unix:{path}"
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    finally:
        place.close()
        place.close()
    assert not path.parent.exists()


def test_what_a_server_has_left_is_removed_before_the_next_start() -> None:
    place = place_in(["{uds}"])
    place.clear()
    Path(place.value).touch()
    place.clear()
    assert list(Path(place.value).parent.iterdir()) == []
    Path(place.value).touch()
    place.close()
    assert not Path(place.value).parent.exists()


def test_a_port_is_free() -> None:
    place = place_in(["serve", "--port", "{port}"])
    (host, port) = ("127.0.0.1", int(place.value))
    assert place.arguments(["--port", "{port}"]) == ["--port", str(port)]
    assert place.address == f"{host}:{port}"
    with socket.create_server((host, port)):
        pass
    place.clear()
    place.close()


@pytest.mark.parametrize("name", ["{uds}", "{port}"])
async def test_it_is_connected_to_once_somebody_listens(name: str) -> None:
    place = place_in([name])
    with pytest.raises(OSError, match=r"\[Errno \d+\]|connect"):
        await place.connect(current_time() + 10)
    family, where = (
        (socket.AF_UNIX, place.value) if name == "{uds}" else (socket.AF_INET, ("127.0.0.1", int(place.value)))
    )
    with socket.socket(family) as listener:
        listener.bind(where)
        listener.listen()
        (await place.connect(current_time() + 10)).close()
    place.close()


def test_without_a_temporary_directory_there_is_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/directory")
    with pytest.raises(StartupError, match="there is no place for the command to listen: No such file"):
        place_in(["{uds}"])
