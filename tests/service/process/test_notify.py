"""What a service manager is told, by a socket of the test's own and by systemd-socket-activate."""

from __future__ import annotations

import errno
import math
import os
import secrets
import select
import shutil
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from deadlined import sleep
from deadlined.service.config import Sources, resolve
from deadlined.service.process.notify import AGAIN, Notifier, inherited_sockets, notifier
from deadlined.service.workers.overseer import Overseer
from deadlined.service.workers.watchdog import LoopWatchdog, SupervisorWatchdog
from tests.support.command import APPS, COMMAND, PATIENCE, Process, Starter, launched
from tests.support.conformance import Loop, in_virtual_time

# pid, uid and gid
_CREDENTIALS = struct.Struct("3i")


class Manager:
    """A socket on which a service says what it does."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(PATIENCE)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        # the processes that have spoken
        self.senders: set[int] = set()
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)

    def next(self) -> dict[str, str]:
        data, ancillary, _, _ = self._socket.recvmsg(65536, socket.CMSG_SPACE(_CREDENTIALS.size))
        self.senders |= {_CREDENTIALS.unpack(found)[0] for _, _, found in ancillary}
        return dict(line.split("=", 1) for line in data.decode().split("\n"))

    def wait_for(self, name: str) -> dict[str, str]:
        """Return the next message with this name."""
        while name not in (found := self.next()):
            continue
        return found

    def fill(self) -> None:
        """Leave no room in the queue: the manager is busy, and the service writes nothing until `read_all`."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end, suppress(BlockingIOError):
            end.setblocking(False)
            while True:
                end.sendto(b"STATUS=busy", self._socket.getsockname())

    def read_all(self) -> list[dict[str, str]]:
        """Return what has come, without what has filled the queue."""
        found = []
        while select.select([self._socket], [], [], 0)[0]:
            found.append(self.next())
        return [each for each in found if each != {"STATUS": "busy"}]

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    found = Manager(str(tmp_path / "notify") if request.param == "path" else f"@deadlined-{secrets.token_hex(8)}")
    yield found
    found.close()


def test_messages_are_lines_of_a_datagram(manager: Manager) -> None:
    found = notifier(environ := {"NOTIFY_SOCKET": manager.address, "A": "1"})
    assert environ == {"A": "1"}
    found.ready("two\nlines")
    assert manager.next() == {"READY": "1", "STATUS": "two lines"}
    found.reloading()
    message = manager.next()
    assert message["RELOADING"] == "1"
    assert message["MONOTONIC_USEC"].isdecimal()
    found.stopping("bye")
    assert manager.next() == {"STOPPING": "1", "STATUS": "bye"}
    found.alive()
    assert manager.next() == {"WATCHDOG": "1"}


@pytest.mark.parametrize("address", ["", "relative", "vsock:2:3", "/no/such/socket", "@nobody-listens-here"])
def test_without_a_manager_nothing_happens(address: str) -> None:
    notifier({"NOTIFY_SOCKET": address}).ready("serving")


def test_a_manager_that_does_not_read_holds_nobody_up(manager: Manager) -> None:
    found = Notifier(manager.address)
    for _ in range(10_000):
        found.alive()


def test_the_latest_state_is_sent_once_the_manager_reads_again(manager: Manager) -> None:
    found = Notifier(manager.address)
    manager.fill()
    found.ready("serving")
    found.resend()
    assert found.unsent
    found.stopping("bye")
    assert manager.read_all() == []
    found.resend()
    assert manager.read_all() == [{"STOPPING": "1", "STATUS": "bye"}]
    assert not found.unsent
    found.resend()
    assert manager.read_all() == []


def test_a_sign_of_life_comes_after_the_state(manager: Manager) -> None:
    found = Notifier(manager.address)
    manager.fill()
    found.ready("serving")
    found.alive()
    manager.read_all()
    found.alive()
    assert manager.read_all() == [{"READY": "1", "STATUS": "serving"}, {"WATCHDOG": "1"}]


@pytest.mark.parametrize("address", ["/no/such/socket", "@nobody-listens-here"])
def test_a_state_that_nobody_wants_is_not_kept(address: str) -> None:
    found = Notifier(address)
    found.ready("serving")
    assert not found.unsent


@in_virtual_time
async def test_an_event_loop_sends_a_state_again_until_it_is_sent(loop: Loop) -> None:
    with closing(Manager(f"@deadlined-{secrets.token_hex(8)}")) as manager:
        found = Notifier(manager.address)
        watchdog = LoopWatchdog(found)
        manager.fill()
        found.reloading()
        found.ready("serving")
        await sleep(2.5 * AGAIN)
        assert manager.read_all() == []
        await sleep(AGAIN)
        assert manager.read_all() == [{"READY": "1", "STATUS": "serving"}]
        # what could not be sent by the end is not sent
        manager.fill()
        found.stopping("bye")
        watchdog.end()
        manager.read_all()
        await sleep(2 * AGAIN)
        assert manager.read_all() == []


def test_a_supervisor_sends_a_state_again_until_it_is_sent(manager: Manager) -> None:
    found = Notifier(manager.address)
    watchdog = SupervisorWatchdog(found, math.inf, Overseer(), lambda event, **fields: None)
    manager.fill()
    found.ready("serving")
    now = 1000.0
    for _ in range(3):
        assert watchdog.until <= now
        watchdog.tick([], now)
        assert watchdog.until == now + AGAIN
        now += AGAIN
    assert manager.read_all() == []
    watchdog.tick([], now)
    assert manager.read_all() == [{"READY": "1", "STATUS": "serving"}]
    assert watchdog.until == math.inf


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({"WATCHDOG_USEC": "2500000"}, 2.5),
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": str(os.getpid())}, 2.5),
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({}, 0.0),
    ],
)
def test_the_watchdog_is_for_the_process_that_is_named(variables: dict[str, str], seconds: float) -> None:
    assert notifier({"NOTIFY_SOCKET": "@a"} | variables).watchdog == seconds
    assert notifier(dict(variables)).watchdog == 0.0


@pytest.mark.parametrize(
    ("variables", "number"),
    [({}, 2), ({"LISTEN_PID": "1"}, 0), ({"LISTEN_FDS": "many"}, 0), ({"LISTEN_PID": ""}, 0)],
)
def test_sockets_are_for_the_process_that_is_named(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], number: int
) -> None:
    # the descriptors of this process are other ones
    monkeypatch.setattr(os, "set_inheritable", lambda *_: None)
    environ = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b", "A": "1"} | variables
    assert inherited_sockets(environ) == number
    assert environ == {"A": "1"}


@pytest.mark.parametrize("number", ["2", "1000000000000"])
def test_nothing_that_is_started_gets_the_sockets_nor_is_one_looked_for_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    open_until, asked = 4, list[tuple[int, bool]]()

    def set_inheritable(fd: int, inheritable: bool) -> None:
        asked.append((fd, inheritable))
        if fd > open_until:
            raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(os, "set_inheritable", set_inheritable)
    counted = inherited_sockets({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": number})
    assert asked == [(3 + index, False) for index in range(counted)]
    assert counted == (2 if number == "2" else 3)


def test_sockets_are_where_to_listen_if_nothing_else_says_so() -> None:
    found = resolve(Sources(sockets=2))
    assert (found.config.bind, found.origins["bind"], found.warnings) == (("fd://3", "fd://4"), "LISTEN_FDS", ())
    other = resolve(Sources(sockets=1, flags={"port": 80}))
    assert (other.config.bind, other.config.port) == ((), 80)
    assert other.warnings == ("the service manager has passed fd://3, and nothing listens there",)
    chosen = resolve(Sources(sockets=2, flags={"bind": ("fd://4", "127.0.0.1:80")}))
    assert chosen.warnings == ("the service manager has passed fd://3, and nothing listens there",)


# processes


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_service_says_what_it_does(start: Starter, manager: Manager, workers: str) -> None:
    process = start("apps:pid", "--workers", workers, NOTIFY_SOCKET=manager.address)
    assert "STATUS" in manager.wait_for("READY")
    for _ in range(2):
        process.signal(signal.SIGHUP)
        assert "MONOTONIC_USEC" in manager.wait_for("RELOADING")
        manager.wait_for("READY")
    assert process.get().startswith("HTTP/1.1 200")
    process.signal()
    assert "STATUS" in manager.wait_for("STOPPING")
    assert process.end() == (0, "")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_service_that_starts_while_the_manager_is_busy_is_ready_later(
    start: Starter, tmp_path: Path, workers: int
) -> None:
    with closing(Manager(str(tmp_path / "notify"))) as manager:
        manager.fill()
        process = start("apps:pid", "--workers", str(workers), NOTIFY_SOCKET=manager.address)
        answers: set[str] = set()
        # until all serve, and it was tried to say so; the test's own time limit ends this
        while len(answers) < workers:
            answers.add(process.get())
        (message,) = manager.read_all() or [manager.next()]
        assert message["READY"] == "1"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_reload_that_is_refused_is_over(start: Starter, manager: Manager, tmp_path: Path, workers: str) -> None:
    (tmp_path / "shop.toml").write_text("")
    process = start("apps:pid", "--workers", workers, "--config", "shop.toml", NOTIFY_SOCKET=manager.address)
    manager.wait_for("READY")
    (tmp_path / "shop.toml").write_text("idle = 'soon'")
    process.signal(signal.SIGHUP)
    manager.wait_for("RELOADING")
    assert "refused" in manager.wait_for("READY")["STATUS"]


def test_new_worker_processes_that_do_not_start_are_said_until_they_do(
    start: Starter, manager: Manager, tmp_path: Path
) -> None:
    app = tmp_path / "shop.py"
    app.write_text("from apps import pid as app\n")
    process = start("shop:app", "--workers", "2", NOTIFY_SOCKET=manager.address)
    statuses = [manager.next()["STATUS"]]
    for content in ("1 / 0\n", "from apps import pid as app\n# mended\n"):
        app.write_text(content)
        process.signal(signal.SIGHUP)
        assert "RELOADING" in manager.next()
        statuses.append(manager.next()["STATUS"])
    serve, failed = "2 worker processes serve", "new worker processes do not start, the others serve"
    assert statuses == [serve, failed, serve]


def test_one_that_hangs_in_its_startup_keeps_no_later_reload_from_its_end(
    start: Starter, manager: Manager, tmp_path: Path
) -> None:
    app = tmp_path / "shop.py"
    app.write_text("from apps import pid as app\n")
    process = start("shop:app", "--workers", "2", NOTIFY_SOCKET=manager.address)
    assert "READY" in manager.next()
    app.write_text("from apps import hesitant as app\n")
    process.signal(signal.SIGHUP)
    process.wait_until("starting")
    assert "RELOADING" in manager.next()
    app.write_text("from apps import pid as app\n# mended\n")
    process.signal(signal.SIGHUP)
    assert "RELOADING" in manager.next()
    assert manager.next()["STATUS"] == "2 worker processes serve"
    process.wait_for("workers replaced")
    process.signal()
    assert process.end() == (0, "")
    assert [line["signal"] for line in process.events("stopped before it served")] == ["SIGTERM"]
    assert [line["event"] for line in process.lines if line["level"] in ("warning", "error")] == []


def test_a_worker_process_that_is_added_is_said(start: Starter, manager: Manager) -> None:
    process = start("apps:pid", "--workers", "2", NOTIFY_SOCKET=manager.address)
    assert manager.next()["STATUS"] == "2 worker processes serve"
    process.signal(signal.SIGTTIN)
    assert manager.next() == {"READY": "1", "STATUS": "3 worker processes serve"}


@pytest.mark.parametrize("said", ["from apps import pid as app\n# again\n", "1 / 0\n"], ids=["edited", "broken"])
def test_under_reload_the_process_that_was_started_speaks_and_an_edit_is_no_stop(
    start: Starter, manager: Manager, tmp_path: Path, said: str
) -> None:
    app = tmp_path / "shop.py"
    app.write_text("from apps import pid as app\n")
    process = start("shop:app", "--reload", NOTIFY_SOCKET=manager.address, WATCHDOG_USEC="3600000000")
    app.write_text(said)
    process.wait_for("stopped")
    process.wait_for("listening" if "again" in said else "the application has ended; waiting for a change")
    process.signal()
    process.end()
    found = manager.read_all()
    assert [set(each) for each in found if "WATCHDOG" not in each] == [{"READY", "STATUS"}, {"STOPPING", "STATUS"}]
    assert {"WATCHDOG": "1"} in found
    assert manager.senders == {process.pid}


def test_what_has_no_event_loop_learns_when_to_attend_to_the_manager(manager: Manager) -> None:
    assert Notifier().attend() == math.inf
    assert Notifier("/no/such/socket").attend() == math.inf
    assert Notifier(manager.address, watchdog=0.5).attend() == 0.25
    assert manager.next() == {"WATCHDOG": "1"}
    assert Notifier(manager.address, watchdog=3600.0).attend() == 1800.0
    assert manager.next() == {"WATCHDOG": "1"}
    found = Notifier(manager.address)
    manager.fill()
    found.ready("serving")
    assert found.attend() == AGAIN
    manager.read_all()
    assert found.attend() == math.inf
    assert manager.read_all() == [{"READY": "1", "STATUS": "serving"}]


@pytest.mark.parametrize("loop", ["trio", "asyncio", "uvloop"])
def test_an_event_loop_that_is_blocked_gives_no_sign_of_life(start: Starter, manager: Manager, loop: str) -> None:
    process = start("apps:blocking", "--loop", loop, NOTIFY_SOCKET=manager.address, WATCHDOG_USEC="200000")
    for _ in range(3):
        manager.wait_for("WATCHDOG")
    with process.begin():
        process.wait_until_busy()
        manager._socket.settimeout(1.0)
        with pytest.raises(TimeoutError):
            for _ in range(10):
                manager.wait_for("WATCHDOG")


def test_a_worker_process_whose_event_loop_is_blocked_is_killed_and_replaced(start: Starter, manager: Manager) -> None:
    process = start("apps:blocking", "--workers", "2", NOTIFY_SOCKET=manager.address, WATCHDOG_USEC="1000000")
    process.wait_for("listening")
    with process.begin():
        process.wait_until_busy()
        told = process.wait_for("worker does not answer: killed")
        assert process.wait_for("worker ended")["pid"] == told["pid"]
        process.wait_for("listening")
    manager.wait_for("WATCHDOG")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_real_socket_of_systemd_is_served(tmp_path: Path, workers: str) -> None:
    tool = shutil.which("systemd-socket-activate")
    if tool is None:
        assert "DEADLINED_REQUIRE_TOOLS" not in os.environ, "systemd-socket-activate is missing"
        pytest.skip("systemd-socket-activate is not installed")
    (tmp_path / "apps.py").write_text(APPS)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [
        tool,
        "-l",
        address,
        "-E",
        "PYTHONPATH",
        "-E",
        "PATH",
        *COMMAND,
        "serve",
        "apps:pid",
        "--workers",
        workers,
    ]
    with launched(command=command, cwd=tmp_path) as running:
        assert running.stderr is not None
        assert "Listening on" in running.stderr.readline()
        # it starts the service for the first connection, which waits
        host, _, port = address.partition(":")
        with socket.create_connection((host, int(port)), PATIENCE) as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            process = Process(running)
            assert process.url == f"http://{address}"
            assert client.recv(65536).startswith(b"HTTP/1.1 200")
        process.signal()
        assert process.end()[0] == 0
