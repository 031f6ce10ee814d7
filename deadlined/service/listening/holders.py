"""Which process listens on a port, or has a unix socket.

Facts      Linux shows listening sockets in /proc/net, and in /proc/PID/fd whose they are, for processes of the same
           user (and for root).
Cost       One search through /proc.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..log.style import harmless

_PROC = Path("/proc")

# of /proc/net/tcp: the state of a socket that listens
_LISTENS = "0A"

# of /proc/net/unix: the flags of a socket that listens
_ACCEPTS = "00010000"

# what this process is called
ITSELF = "itself"

# characters of a command that are shown
_LONGEST = 60


def port_holder(port: int, proc: Path = _PROC) -> str:
    """Describe a process that listens on a TCP port: ITSELF for this one, "" if that is not known."""
    inodes = set()
    for table in ("net/tcp", "net/tcp6"):
        for line in _lines(proc / table):
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTENS and fields[1].endswith(f":{port:04X}"):
                inodes.add(fields[9])
    return _owner(inodes, proc)


def uds_holder(path: str, proc: Path = _PROC) -> str:
    """Describe a process that has a unix socket at `path`: ITSELF for this one, "" if that is not known."""
    # a socket is listed by the path that it was bound to, which may be relative
    names = {path, str(Path(path).absolute())}
    fields = (line.split(maxsplit=7) for line in _lines(proc / "net/unix"))
    return _owner({each[6] for each in fields if len(each) == 8 and each[3] == _ACCEPTS and each[7] in names}, proc)


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
        return ITSELF
    try:
        command = (process / "cmdline").read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        command = ""
    # a password may be among the arguments of a command, as in a URL
    command = re.sub(r"://[^/@\s]*@", "://...@", command)
    shown = harmless(command if len(command) <= _LONGEST else f"{command[:_LONGEST]}...")
    return f"process {process.name}{f': {shown}' if shown else ''}"
