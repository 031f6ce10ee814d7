"""The error of a service that cannot listen: why, which process has the port, and what to do.

Facts      bind(2) says what is wrong, but not which process has the port, nor what to do. Linux shows listening sockets
           in /proc/net, and in /proc/PID/fd whose they are, for processes of the same user (and for root).
Cost       One search through /proc, only when the port is taken.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..net.sockets import join_host_port
from .errors import CANNOT_BIND, StartupError
from .style import harmless

_PROC = Path("/proc")
_UNPRIVILEGED = _PROC / "sys/net/ipv4/ip_unprivileged_port_start"

# of /proc/net/tcp: the state of a socket that listens
_LISTENS = "0A"

_ITSELF = "itself"

# characters of a command that are shown
_LONGEST = 60

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
    if holder == _ITSELF:
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


def port_holder(port: int, proc: Path = _PROC) -> str:
    """Describe a process that listens on a TCP port: "itself" for this one, "" if that is not known."""
    inodes = set()
    for table in ("net/tcp", "net/tcp6"):
        for line in _lines(proc / table):
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTENS and fields[1].endswith(f":{port:04X}"):
                inodes.add(fields[9])
    return _owner(inodes, proc)


def uds_holder(path: str, proc: Path = _PROC) -> str:
    """Describe a process that has a unix socket at `path`: "itself" for this one, "" if that is not known."""
    # a socket is listed by the path that it was bound to, which may be relative
    names = {path, str(Path(path).absolute())}
    fields = (line.split(maxsplit=7) for line in _lines(proc / "net/unix"))
    return _owner({each[6] for each in fields if len(each) == 8 and each[7] in names}, proc)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(errors="replace").splitlines()[1:]
    except OSError:
        return []


def _owner(inodes: set[str], proc: Path) -> str:
    sockets = {f"socket:[{inode}]" for inode in inodes}
    if sockets:
        for process in _processes(proc):
            if not sockets.isdisjoint(_open_files(process)):
                return _described(process)
    return ""


def _processes(proc: Path) -> list[Path]:
    """Return the processes, the oldest numbers first: a server's main process comes before its workers."""
    with suppress(OSError):
        return sorted((each for each in proc.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))
    return []


def _open_files(process: Path) -> Iterator[str]:
    """Give what the descriptors of a process are; nothing if it has ended or is another user's."""
    files: list[Path] = []
    with suppress(OSError):
        files = list((process / "fd").iterdir())
    for file in files:
        with suppress(OSError):
            yield str(file.readlink())


def _described(process: Path) -> str:
    if process.name == str(os.getpid()):
        return _ITSELF
    try:
        command = (process / "cmdline").read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        command = ""
    # a password may be among the arguments of a command, as in a URL
    command = re.sub(r"://[^/@\s]*@", "://...@", command)
    shown = harmless(command if len(command) <= _LONGEST else f"{command[:_LONGEST]}...")
    return f"process {process.name}{f': {shown}' if shown else ''}"
