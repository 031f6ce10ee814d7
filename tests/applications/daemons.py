"""A redis-server and a PostgreSQL of these tests: data in a folder of their own, ended with the tests.

Tests that miss one skip on a developer's machine; with DEADLINED_REQUIRE_TOOLS=1 they fail. PostgreSQL does not run as
root: then it runs as its own user, which Debian's package makes.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.applications.running import Output
from tests.support.command import PATIENCE


def found(tool: str, *folders: Path) -> str:
    """Return the path of a program, looked for in the folders, too; skip the test if there is none."""
    places = os.pathsep.join([os.environ.get("PATH", ""), *map(str, folders)])
    path = shutil.which(tool, path=places)
    if path is None:
        assert os.environ.get("DEADLINED_REQUIRE_TOOLS") != "1", f"{tool} is required, and not there"
        pytest.skip(f"no {tool} here")
    return path


# below the ports that kernels give to clients, and to servers that let them choose
PORTS = range(20_000, 32_000)


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on now, for a program that cannot tell which it has chosen.

    A port of the kernel's choice could be given to a client of another test before the program listens.
    """
    while True:
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def tied(*user: str) -> list[str]:
    """Return the beginning of a command that ends with this process also if this is killed; none where there is no
    setpriv. `user`: options of setpriv for another user."""
    setpriv = shutil.which("setpriv")
    return [] if setpriv is None else [setpriv, *user, "--pdeathsig=INT", "--"]


@contextmanager
def daemon(sign: str, *command: str) -> Iterator[None]:
    """Run a daemon that says `sign` on stdout or stderr once it is ready."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/") as process:
        assert process.stdout is not None
        output = Output(process.stdout, sign)
        try:
            assert output.ready.wait(PATIENCE), f"{command[0]} does not start"
            assert any(sign in line for line in output.lines), "".join(output.lines)
            yield
        finally:
            # a fast shutdown for PostgreSQL, any for redis
            process.send_signal(signal.SIGINT)
            try:
                process.wait(PATIENCE)
            finally:
                process.kill()
                output.join()


@contextmanager
def redis_server() -> Iterator[str]:
    """Run a redis-server, and give its URL."""
    program = found("redis-server")
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        options = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no", "--dir", folder]
        with daemon("Ready to accept connections", *tied(), program, *options):
            yield f"redis://127.0.0.1:{port}/0"


@contextmanager
def postgresql() -> Iterator[str]:
    """Run a PostgreSQL on a unix socket and a TCP port, and give its URL."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    initdb, postgres = found("initdb", *debian), found("postgres", *debian)
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        prefix = tied()
        if os.getuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(folder, user.pw_uid, user.pw_gid)
            prefix = tied("--reuid=postgres", "--regid=postgres", "--clear-groups")
            assert prefix, "setpriv is required to run PostgreSQL as another user than root"
        data = f"{folder}/data"
        options = ["--auth=trust", "--username=shop", "--no-sync", "--no-locale", "--encoding=UTF8"]
        made = subprocess.run([*prefix, initdb, *options, data], capture_output=True, text=True, cwd="/", check=False)
        assert made.returncode == 0, made.stderr
        settings = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": folder, "fsync": "off"}
        arguments = [f"--{name}={value}" for name, value in settings.items()]
        with daemon("ready to accept connections", *prefix, postgres, "-D", data, *arguments):
            yield f"postgresql://shop@127.0.0.1:{port}/postgres"
