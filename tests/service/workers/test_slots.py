"""The listening sockets of several worker processes, and who accepts from which."""

from __future__ import annotations

import socket
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deadlined.net.listen import listening_sockets
from deadlined.service import StartupError
from deadlined.service.config import ServeConfig
from deadlined.service.listening.free_port import free_port
from deadlined.service.listening.listening import with_chosen_ports
from deadlined.service.workers.slots import SHARED, Slots, assign
from tests.support.command import assert_one_line, run
from tests.support.examples import examples


def opened(number: int, **options: object) -> Slots:
    config = ServeConfig(**{"port": 0} | options)  # type: ignore[arg-type]
    slots = Slots(with_chosen_ports(config, free_port), number)
    slots.open()
    return slots


def accepted(slots: Slots, connections: int) -> dict[int, int]:
    """Connect so often, and return how many connections wait in each slot."""
    address = slots.sockets(1)[0].getsockname()
    clients = [socket.create_connection(address) for _ in range(connections)]
    counts = {}
    try:
        for slot in range(1, len(slots) + 1):
            (found,) = slots.sockets(slot)
            counts[slot] = 0
            while True:
                try:
                    found.accept()[0].close()
                except BlockingIOError:
                    break
                counts[slot] += 1
    finally:
        for client in clients:
            client.close()
    return counts


def test_each_slot_has_a_socket_of_its_own_and_the_kernel_uses_all() -> None:
    slots = opened(3)
    try:
        counts = accepted(slots, 200)
        assert sum(counts.values()) == 200
        # each is expected to get 67; that one gets less than 30 happens once in a hundred million times
        assert min(counts.values()) >= 30
    finally:
        slots.close()


@pytest.mark.parametrize("other", ["localhost", "0.0.0.0", "127.0.0.1"])
def test_a_place_is_not_listened_at_twice_under_two_names(other: str) -> None:
    """As a single process does not, for which the second one is taken."""
    port = free_port("127.0.0.1", 0)
    places = (f"127.0.0.1:{port}", f"{other}:{port}")
    with (
        pytest.raises(StartupError, match=f"cannot listen on {other}:{port}: Address already in use"),
        closing(Slots(ServeConfig(bind=places), 2)) as slots,
    ):
        slots.open()
    # nothing is left open
    with socket.create_server(("127.0.0.1", port)):
        pass


@pytest.mark.parametrize(("platform", "spreads"), [("darwin", False), ("freebsd15", True)])
def test_all_share_one_socket_where_the_kernel_does_not_spread_connections(
    platform: str, spreads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    if spreads:
        monkeypatch.setattr(socket, "SO_REUSEPORT_LB", socket.SO_REUSEPORT, raising=False)
    slots = opened(2)
    try:
        slots.grow(3)
        assert [len(slots.sockets(slot)) for slot in range(4)] == ([0, 1, 1, 1] if spreads else [1, 0, 0, 0])
        for slot in range(4):
            for each in slots.sockets(slot):
                assert bool(each.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)) is spreads
    finally:
        slots.close()


def test_connections_are_refused_until_the_slots_are_opened(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    config = with_chosen_ports(ServeConfig(bind=("127.0.0.1:0", f"unix:{path}")), free_port)
    slots = Slots(config, 1)
    try:
        slots.grow(2)
        assert (len(slots), path.is_socket()) == (0, True)
        url, _ = slots.urls
        port = int(url.rpartition(":")[2])
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        with pytest.raises(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        slots.open()
        assert [len(slots.sockets(slot)) for slot in (SHARED, 1, 2)] == [1, 1, 1]
        assert slots.sockets(2)[0].getsockname()[1] == port
        socket.create_connection(("127.0.0.1", port)).close()
    finally:
        slots.close()
    assert not path.exists()


# other systems let nobody else bind a port that is bound
@pytest.mark.parametrize("place", ["127.0.0.1:0", "unix:socket"] if sys.platform == "linux" else ["unix:socket"])
def test_a_place_that_another_process_has_taken_meanwhile_is_not_shared(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two services that are started at once: the first one that is ready gets the place."""
    monkeypatch.chdir(tmp_path)
    config = with_chosen_ports(ServeConfig(bind=(place,)), free_port)
    first, second = Slots(config, 2), Slots(config, 2)
    try:
        second.open()
        with pytest.raises(StartupError, match="Address already in use") as caught:
            first.open()
        assert caught.value.exit_code == 3
    finally:
        first.close()
        second.close()


def test_slots_can_be_added_and_the_kernel_uses_them() -> None:
    slots = opened(1)
    try:
        slots.grow(2)
        slots.grow(1)
        assert len(slots) == 2
        assert min(accepted(slots, 100).values()) >= 20
    finally:
        slots.close()


def test_each_address_has_a_socket_in_each_slot(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    slots = opened(2, bind=("127.0.0.1:0", f"unix:{path}", "127.0.0.2:0"))
    try:
        assert [len(slots.sockets(slot)) for slot in (SHARED, 1, 2)] == [1, 2, 2]
        tcp, unix, other = slots.urls
        assert (tcp[:17], unix, other[:17]) == ("http://127.0.0.1:", f"unix:{path}", "http://127.0.0.2:")
        for end in (1, 2):
            assert [found.getsockname()[0] for found in slots.sockets(end)] == ["127.0.0.1", "127.0.0.2"]
    finally:
        slots.close()
    slots.close()
    assert not path.exists()


def test_nothing_is_left_open_if_a_place_cannot_be_had(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with pytest.raises(StartupError, match="has not inherited it") as caught:
        opened(2, bind=(f"unix:{path}", "127.0.0.1:0", "fd://12345"))
    assert caught.value.exit_code == 3
    assert not path.exists()


def test_a_socket_that_cannot_be_added_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = opened(1, bind=("127.0.0.1:0", "127.0.0.1:0"))
    added: list[socket.socket] = []

    def refuse_the_second(*arguments: Any, **options: Any) -> list[socket.socket]:
        if added:
            raise OSError(24, "Too many open files")
        added.extend(listening_sockets(*arguments, **options))
        return added.copy()

    try:
        monkeypatch.setattr("deadlined.service.workers.slots.listening_sockets", refuse_the_second)
        with pytest.raises(StartupError, match="Too many open files"):
            slots.grow(2)
        assert len(slots) == 1
        assert [each.fileno() for each in added] == [-1]
    finally:
        slots.close()


# who accepts from which


@pytest.mark.parametrize(
    ("slots", "workers", "expected"),
    [
        (2, {}, {}),
        (2, {11: 1, 12: 2}, {11: {0, 1}, 12: {0, 2}}),
        (2, {11: 1}, {11: {0, 1, 2}}),
        (2, {12: 2}, {12: {0, 1, 2}}),
        (4, {11: 1, 12: 2}, {11: {0, 1, 3}, 12: {0, 2, 4}}),
        (3, {11: 1, 12: 2}, {11: {0, 1, 3}, 12: {0, 2}}),
        # the socket of the third could not be opened
        (2, {11: 1, 12: 2, 13: 3}, {11: {0, 1}, 12: {0, 2}, 13: {0, 1}}),
        (0, {11: 1, 12: 2}, {11: {0}, 12: {0}}),
    ],
)
def test_the_slots_of_those_that_serve(slots: int, workers: dict[int, int], expected: dict[int, set[int]]) -> None:
    assert assign(slots, workers) == expected


@settings(max_examples=examples(400))
@given(st.integers(1, 9), st.sets(st.integers(1, 9), min_size=1))
def test_no_slot_is_without_a_process_and_none_is_given_twice(slots: int, numbers: set[int]) -> None:
    found = assign(slots, {100 + number: number for number in numbers})
    own = [slot for given in found.values() for slot in given if slot != SHARED]
    assert set(own) == set(range(1, slots + 1))
    assert all(SHARED in given and len(given) > 1 for given in found.values())
    if max(numbers) <= slots:
        assert len(own) == slots
        sizes = [len(given) for given in found.values()]
        assert max(sizes) - min(sizes) <= 1


# a host or a path that cannot be had


@pytest.mark.parametrize("host", ["127.0.0..1", "a" * 64])
def test_what_cannot_be_the_name_of_a_host_is_said(host: str) -> None:
    with pytest.raises(StartupError, match=f"cannot listen on {host}:0: this cannot be the name of a host") as caught:
        opened(2, host=host)
    assert caught.value.exit_code == 3


def test_an_admin_listener_that_cannot_be_had_leaves_no_file(tmp_path: Path) -> None:
    arguments = ("--workers", "2", "--uds", "socket", "--admin", "127.0.0..1:9000")
    assert_one_line(run("serve", *arguments, cwd=tmp_path), 3, "--admin", "cannot be the name of a host")
    assert list(tmp_path.iterdir()) == []


def test_a_unix_socket_in_use_ends_all_with_3(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "socket"))
        other.listen()
        assert_one_line(run("serve", "--workers", "2", "--uds", "socket", cwd=tmp_path), 3, "another process has it")
    assert [each.name for each in tmp_path.iterdir()] == ["socket"]
