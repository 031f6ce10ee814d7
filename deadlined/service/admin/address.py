"""Where the admin listener listens, what is refused, and its sockets.

They are bound before a worker process is forked and before an event loop runs, so that mistakes are reported at once.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket as stdlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...net.listener import bind, listening_unix_socket, sockets_for
from ...net.names import look_up_here
from ..errors import CANNOT_BIND, WRONG_ARGUMENTS, StartupError
from .gate import Gate

UNIX = "unix:"

# connections that wait to be accepted: few, because few ask
_BACKLOG = 64

# the owner alone: without a token only the file's permissions protect the listener
_MODE = 0o600

# sun_path of unix(7), with its NUL
_LONGEST_PATH = 107

_TOKEN = re.compile(r"[!-~]+")


@dataclass(frozen=True)
class AdminSockets:
    """The bound sockets, how to remove their file (None for TCP), who may use them, and their address for people."""

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
        if address.startswith(UNIX):
            return _open_unix(address.removeprefix(UNIX), token)
        return _open_tcp(*parse(address), token)
    except OSError as error:
        raise StartupError(f"--admin: cannot listen on {address}: {error.strerror or error}", CANNOT_BIND) from None


def parse(address: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT, where an IPv6 address is in brackets. StartupError for anything else."""
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535 or (":" in host and not bracketed):
        raise StartupError(
            f"--admin: {address!r} is not an address: write HOST:PORT, [IPV6]:PORT or unix:PATH", WRONG_ARGUMENTS
        )
    return host[1:-1] if bracketed else host, int(port)


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
    public = [str(info[4][0]) for info in found if not _is_loopback(_plain(info[4][0]))]
    if public and token is None:
        raise StartupError(
            f"--admin: {public[0]} is not a loopback address, so other machines could ask: add --admin-token-file, "
            "or listen on 127.0.0.1 or unix:PATH",
            WRONG_ARGUMENTS,
        )
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


def _plain(address: Any) -> str:
    """Return an address without the name of an interface (fe80::1%eth0)."""
    return str(address).partition("%")[0]


def _listen(socket: stdlib.socket, address: Any) -> None:
    bind(socket, address)
    socket.listen(_BACKLOG)
    socket.setblocking(False)


def _open_unix(path: str, token: bytes | None) -> AdminSockets:
    if not path or len(os.fsencode(path)) > _LONGEST_PATH:
        raise StartupError(f"--admin: unix: needs a path of 1 to {_LONGEST_PATH} bytes", WRONG_ARGUMENTS)
    socket, unlink = listening_unix_socket(path, backlog=_BACKLOG, mode=_MODE)
    return AdminSockets([socket], unlink, Gate(token, None), f"{UNIX}{path}")


def _is_loopback(address: str) -> bool:
    """Return True if only this machine can reach `address`. One that is mapped to IPv4 counts as public: Python 3.13
    tells such loopback addresses apart, earlier ones do not."""
    parsed = ipaddress.ip_address(address)
    return parsed.is_loopback and getattr(parsed, "ipv4_mapped", None) is None
