"""The error of a service that cannot listen: why, and what to do, which bind(2) does not say."""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from typing import NamedTuple

from ...net.sockets import join_host_port
from ..errors import CANNOT_BIND, StartupError
from .holders import ITSELF, port_holder, uds_holder

_UNPRIVILEGED = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")

# what to do about an error of bind(2)
_HINTS = {
    errno.EEXIST: "remove it, or choose another {option}",
    errno.EADDRNOTAVAIL: "no interface of this machine has this address, choose another {host}",
    errno.ENOENT: "its directory must exist",
    errno.ENOTDIR: "a part of its path is a file, not a directory",
    errno.EROFS: "choose a {option} on another file system, for example in /run or /tmp",
    errno.EAFNOSUPPORT: "this machine has no addresses of this kind, choose another {host}",
}


def cannot_listen(error: OSError, *, uds: str | None, host: str, port: int, option: str | None = None) -> StartupError:
    """Make the error of a service that cannot listen on the unix socket `uds` or, if that is None, on `host` and
    `port`. `option` has said where to listen, --uds or --host and --port if it is None."""
    where = join_host_port(host, port) if uds is None else uds
    options = _Options(option or ("--port" if uds is None else "--uds"), option or "--host")
    hint = _hint(error, uds, port, options)
    return StartupError(f"cannot listen on {where}: {_why(error)}{'; ' if hint else ''}{hint}", CANNOT_BIND)


class _Options(NamedTuple):
    """The options that say where to listen: the port or path, and the address."""

    place: str
    host: str


def _why(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"{error.strerror} (the name was looked up)"
    return error.strerror or str(error)


def _hint(error: OSError, uds: str | None, port: int, options: _Options) -> str:
    if isinstance(error, socket.gaierror):
        return f"choose another {options.host}: an address of this machine, 127.0.0.1 for itself or 0.0.0.0 for all"
    if error.errno == errno.EADDRINUSE:
        holder = port_holder(port) if uds is None else uds_holder(uds)
        return f"{_who_has_it(holder)}, choose another {options.place}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return _without_permission(uds, port, options.place)
    if error.errno is None and "too long" in str(error):
        shorter = f"choose a shorter {options.place}, or one relative to the current directory"
        return f"the system allows about 100 bytes; {shorter}"
    return _HINTS.get(error.errno or 0, "").format(option=options.place, host=options.host)


def _who_has_it(holder: str) -> str:
    if holder == ITSELF:
        return "this service listens there already (--admin, another --bind, or its application)"
    return f"another process has it{f' ({holder})' if holder else ''}"


def _without_permission(uds: str | None, port: int, option: str) -> str:
    if uds is not None:
        return f"this user may not create it there, choose another {option} or change the directory's permissions"
    first = _first_unprivileged()
    if port >= first:
        return f"this user may not listen there, choose another {option}"
    return (
        f"this user may not listen on ports below {first}, choose another {option}; or grant it: with systemd "
        "AmbientCapabilities=CAP_NET_BIND_SERVICE, in a container sysctl net.ipv4.ip_unprivileged_port_start=0"
    )


def _first_unprivileged() -> int:
    try:
        return int(_UNPRIVILEGED.read_text())
    except (OSError, ValueError):
        return 1024
