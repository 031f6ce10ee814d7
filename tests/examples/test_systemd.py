"""The units of systemd: they are understood, shut in, and start a server on the socket that systemd has opened."""

from __future__ import annotations

import configparser
import http.client
import json
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from deadlined.service.errors import WRONG_ARGUMENTS
from tests.applications.daemons import found, tied
from tests.support.admin import admin_of
from tests.support.command import COMMAND, PATIENCE, Process, environment, kill_all
from tests.support.deployment import EXAMPLES, LATEST, SHOP, duration, with_any_port

FOLDER = EXAMPLES / "systemd"
PROGRAM = "/srv/shop/venv/bin/deadlined"

# out of 100: what systemd calls OK ends at 50, and a service without any protection has 96
MOST_EXPOSURE = 15


class Unit(configparser.ConfigParser):
    """A unit file, in which a key may stand several times; the last value is kept."""

    def __init__(self, name: str) -> None:
        super().__init__(strict=False, interpolation=None)
        self.read(FOLDER / name)

    def optionxform(self, optionstr: str) -> str:
        return optionstr


SERVICE = Unit("shop.service")["Service"]
SOCKET = Unit("shop.socket")["Socket"]


def arguments() -> list[str]:
    """Return the arguments of the service, with another port of its admin listener."""
    program, *words = shlex.split(SERVICE["ExecStart"])
    assert program == PROGRAM
    place = words.index("--admin") + 1
    words[place] = with_any_port(words[place])
    return words


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """Copies of the units, whose program is one that this machine has."""
    for path in FOLDER.iterdir():
        (tmp_path / path.name).write_text(path.read_text().replace(PROGRAM, f'"{sys.executable}"'))
    return tmp_path


def analyze(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [found("systemd-analyze"), "--no-pager", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_systemd_understands_every_line(units: Path) -> None:
    done = analyze("verify", units / "shop.service", units / "shop.socket")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("mistake", ["Typ=notify", "SystemCallFilter=@sistem-service", "KillMode=gentle"])
def test_a_mistake_would_be_told(units: Path, mistake: str) -> None:
    with (units / "shop.service").open("a") as file:
        file.write(f"[Service]\n{mistake}\n")
    done = analyze("verify", units / "shop.service")
    assert done.stderr != ""


def test_the_service_is_shut_in(units: Path) -> None:
    done = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSURE}", units / "shop.service")
    assert done.returncode == 0, done.stdout


def test_the_threshold_is_one(units: Path) -> None:
    file = units / "shop.service"
    file.write_text(file.read_text().replace("SystemCallFilter=", "# "))
    assert analyze("security", "--offline=true", f"--threshold={MOST_EXPOSURE}", file).returncode != 0


def test_the_service_is_not_killed_before_its_drain_has_ended() -> None:
    words = arguments()
    drain = duration(words[words.index("--drain") + 1])
    assert drain + LATEST < float(SERVICE["TimeoutStopSec"])
    # only the main process is told to end: the others would be told twice
    assert SERVICE["KillMode"] == "mixed"


def test_wrong_arguments_are_not_tried_again() -> None:
    assert int(SERVICE["RestartPreventExitStatus"]) == WRONG_ARGUMENTS


def test_another_failure_is_tried_again_without_an_end_and_not_in_a_hurry() -> None:
    assert SERVICE["Restart"] == "on-failure"
    assert Unit("shop.service")["Unit"]["StartLimitIntervalSec"] == "0"
    assert float(SERVICE["RestartSec"]) >= 1


@pytest.mark.parametrize("name", ["shop.service", "shop.socket"])
def test_what_the_example_enables_can_be_enabled(name: str) -> None:
    text = (FOLDER / "shop.service").read_text()
    assert name in text[text.index("systemctl enable") :].splitlines()[0].split()
    assert Unit(name)["Install"]["WantedBy"]


@contextmanager
def activated(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Open a socket at `path` soon, as systemd does, and start the service with it upon the first connection."""
    activate = [*tied(), found("systemd-socket-activate"), f"--listen={path}"]
    variables = [f"--setenv=PYTHONPATH={environment()['PYTHONPATH']}"]
    process = subprocess.Popen(
        [*activate, *variables, *COMMAND, *arguments()],
        cwd=SHOP,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        kill_all(process)
        process.communicate()


def asking(path: Path, **fields: str) -> http.client.HTTPConnection:
    """Ask over a unix socket who asks."""
    connection = http.client.HTTPConnection("shop.example", timeout=PATIENCE)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(PATIENCE)
    end = time.monotonic() + PATIENCE
    while connection.sock.connect_ex(str(path)):
        # the socket is bound before it listens
        assert time.monotonic() < end
    connection.request("GET", "/client", headers={name.replace("_", "-"): value for name, value in fields.items()})
    return connection


def test_it_serves_the_socket_that_systemd_has_opened(tmp_path: Path) -> None:
    path = tmp_path / "shop.sock"
    with activated(path) as process:
        with closing(asking(path, x_forwarded_for="192.0.2.7", x_forwarded_proto="https")) as connection:
            answer = json.load(connection.getresponse())
        assert answer == {"client": "192.0.2.7", "scheme": "https", "host": "shop.example"}
        server = Process(process)
        assert admin_of(server).get("/readyz").status == 200
        server.signal()
        assert process.wait(PATIENCE) == 0
        # it is systemd's, and the next process serves what waits there
        assert path.exists()


def test_nginx_is_the_only_other_that_may_connect() -> None:
    config = (EXAMPLES / "nginx" / "nginx.conf").read_text()
    assert f"server unix:{SOCKET['ListenStream']};" in config
    assert f"user {SOCKET['SocketGroup']};" in config
    assert SOCKET["SocketMode"] == "0660"
