"""Where a command of `deadlined run` is to listen: a unix socket in a directory of its own, or a port of 127.0.0.1.

Facts      A port that the kernel has chosen and that was closed again is free, until another process is given it. A
           unix socket is a file, which is left behind by a server that was killed.
Hazard     Another user who can connect to the command goes around the guard. A server may refuse to listen where a file
           is left.
Answer     The directory is for this user only (mkdtemp). A file that was left in it is removed before each start, and
           the directory at the end. Every local user can connect to a port, so `{uds}` is better.
Cost       An empty directory, or one with a socket, is left if this process ends at once: killed, or by a second
           SIGTERM.
"""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from ...net import Conn, open_tcp_stream, open_unix_stream
from ..errors import StartupError
from ..listening.free_port import free_port

_HOST = "127.0.0.1"


class Place(ABC):
    """A place where a command listens. An abstract base class. `name`: the placeholder in the command; `value`: what
    replaces it; `address`: the same place as --upstream has it."""

    name: str
    value: str
    address: str

    def arguments(self, command: Sequence[str]) -> list[str]:
        """Return the arguments of `command` with the place in them."""
        return [word.replace(self.name, self.value) for word in command]

    @abstractmethod
    async def connect(self, deadline: float) -> Conn:
        """Connect to what listens there. Errors as `open_tcp_stream`."""

    def clear(self) -> None:  # noqa: B027, a port needs nothing
        """Remove what a server has left that listens no more."""

    def close(self) -> None:  # noqa: B027, as above
        """Remove the place. Idempotent."""


class SocketPlace(Place):
    """A unix socket, for `{uds}`."""

    name = "{uds}"

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="deadlined-"))
        self._socket = self._directory / "socket"
        self.value: str = str(self._socket)
        self.address: str = f"unix:{self._socket}"

    async def connect(self, deadline: float) -> Conn:
        return await open_unix_stream(self._socket, deadline=deadline)

    def clear(self) -> None:
        self._socket.unlink(missing_ok=True)

    def close(self) -> None:
        # the command may have put something else there
        shutil.rmtree(self._directory, ignore_errors=True)


class PortPlace(Place):
    """A TCP port, for `{port}`."""

    name = "{port}"

    def __init__(self) -> None:
        self._port = free_port(_HOST, 0)
        self.value: str = str(self._port)
        self.address: str = f"{_HOST}:{self._port}"

    async def connect(self, deadline: float) -> Conn:
        return await open_tcp_stream(_HOST, self._port, deadline=deadline)


def place_in(command: Sequence[str]) -> Place:
    """Make the place whose placeholder is in `command`. The caller must close it. StartupError if the system has
    none."""
    try:
        return SocketPlace() if any(SocketPlace.name in word for word in command) else PortPlace()
    except OSError as error:
        raise StartupError(f"there is no place for the command to listen: {error.strerror or error}") from None
