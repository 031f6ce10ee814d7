"""Where the admin listener listens, what is refused, and its sockets.

They are bound before a worker process is forked and before an event loop runs, so that mistakes are reported at once.
"""

from __future__ import annotations

import re
import socket as stdlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...net.listen import bind, sockets_for
from ...net.listen_unix import listening_unix_socket
from ...net.names import look_up_here
from ..config.binds import UnixBind, needs_token, parse_admin
from ..errors import WRONG_ARGUMENTS, StartupError
from ..listening.binding import cannot_listen
from .gate import Gate

# connections that wait to be accepted: few, because few ask
_BACKLOG = 64

# the owner alone: without a token only the file's permissions protect the listener
_MODE = 0o600

_TOKEN = re.compile(r"[!-~]+")


@dataclass(frozen=True)
class AdminSockets:
    """The bound sockets. `unlink` removes their file, None for TCP. `gate`: who may use them. `url`: their address, for
    people."""

    sockets: list[stdlib.socket]
    unlink: Callable[[], object] | None
    gate: Gate
    url: str

    def close(self, *, unlink: bool = True) -> None:
        """Close the sockets, and remove the file of a unix socket unless another process still uses it."""
        if unlink and self.unlink is not None:
            self.unlink()
        for socket in self.sockets:
            socket.close()


def open_admin(address: str, token_file: str | None) -> AdminSockets:
    """Bind the address of `--admin`. StartupError if it is malformed, taken, or public without a token."""
    token = None if token_file is None else read_token(token_file)
    try:
        place = parse_admin(address)
    except ValueError as error:
        raise StartupError(f"--admin: {error}", WRONG_ARGUMENTS) from None
    try:
        return _open_unix(place, token) if isinstance(place, UnixBind) else _open_tcp(*place, token)
    except OSError as error:
        uds, (host, port) = (place.path, ("", 0)) if isinstance(place, UnixBind) else (None, place)
        why = cannot_listen(error, uds=uds, host=host, port=port, option="--admin")
        raise StartupError(f"--admin: {why}", why.exit_code) from None


def read_token(file: str) -> bytes:
    """Return the token in the first line of `file`. StartupError if there is none."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise StartupError(f"--admin-token-file: cannot read {file}: {why}", WRONG_ARGUMENTS) from None
    token = text.partition("\n")[0].strip()
    if not _TOKEN.fullmatch(token):
        raise StartupError(
            f"--admin-token-file: the first line of {file} must be a token: printable ASCII without spaces",
            WRONG_ARGUMENTS,
        )
    return token.encode("ascii")


def _open_tcp(host: str, port: int, token: bytes | None) -> AdminSockets:
    found = look_up_here(host or None, port, stdlib.SOCK_STREAM, stdlib.AI_PASSIVE)
    public = [why for info in found if (why := needs_token(str(info[4][0])))]
    if public and token is None:
        raise StartupError(public[0], WRONG_ARGUMENTS)
    sockets: list[stdlib.socket] = []
    try:
        for socket, address in sockets_for(found):
            sockets.append(socket)
            # all addresses of a name get the port that the kernel has chosen for the first
            _listen(socket, (address[0], port, *address[2:]))
            port = socket.getsockname()[1]
    except BaseException:
        for socket in sockets:
            socket.close()
        raise
    shown = f"[{host}]" if ":" in host else host or "*"
    return AdminSockets(sockets, None, Gate(token, frozenset(("localhost", host.lower()))), f"http://{shown}:{port}")


def _listen(socket: stdlib.socket, address: Any) -> None:
    bind(socket, address)
    socket.listen(_BACKLOG)
    socket.setblocking(False)


def _open_unix(place: UnixBind, token: bytes | None) -> AdminSockets:
    socket, unlink = listening_unix_socket(place.path, backlog=_BACKLOG, mode=_MODE)
    return AdminSockets([socket], unlink, Gate(token, None), str(place))
