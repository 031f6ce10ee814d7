"""The addresses of a host. A host that is written as an address needs no look-up: no thread and no task."""

from __future__ import annotations

import math
import socket as stdlib
from collections.abc import Awaitable, Callable
from typing import Any

from ..errors import DeadlineExceeded, Kept
from ..runtime import Event, checkpoint, current_host, open_group
from .errors import note_name

# a result of `getaddrinfo`: family, type, protocol, canonical name, address
AddressInfo = tuple[int, int, int, str, Any]

_NUMERIC = stdlib.AI_NUMERICHOST | stdlib.AI_NUMERICSERV

_LARGEST_PORT = 65535


def require_port(port: int) -> None:
    """Raise TypeError if `port` is not an int, ValueError if no port has this number: `getaddrinfo` would use it modulo
    65,536, without a word. 0 lets the kernel choose."""
    if not isinstance(port, int):
        raise TypeError(f"port must be an int, not {port!r}")
    if not 0 <= port <= _LARGEST_PORT:
        raise ValueError(f"port must be from 0 to {_LARGEST_PORT}, not {port}")


def require_host(host: str | bytes | None) -> None:
    """Raise TypeError unless `host` is text or None, OSError if it has a NUL: C would take the part before that for the
    host."""
    if not isinstance(host, str | bytes | None):
        raise TypeError(f"host must be a str or bytes, not {host!r}")
    if host is not None and b"\0" in (host.encode("utf-8", "replace") if isinstance(host, str) else host):
        raise no_such_host(host)


def require_given(host: object) -> None:
    """Raise TypeError if a host to connect to is None. For `getaddrinfo` that is this machine, and for a program most
    likely a setting that is missing."""
    if host is None:
        raise TypeError("host must be a str or bytes, not None")


def no_such_host(host: str | bytes | None) -> OSError:
    """Return the error for what cannot be the name of a host."""
    return stdlib.gaierror(stdlib.EAI_NONAME, f"this cannot be the name of a host: {host!r}")


async def look_up(host: str | bytes | None, port: int, kind: int, flags: int = 0) -> list[AddressInfo]:
    """Do what `socket.getaddrinfo` does for a type of socket, without blocking. OSError if there is no address. A
    cancellation abandons the look-up. A checkpoint."""
    found = numeric(host, port, kind, flags)
    if found is None:
        return await _ask(host, port, kind, flags)
    await checkpoint()
    return found


def look_up_here(host: str | bytes | None, port: int, kind: int, flags: int = 0) -> list[AddressInfo]:
    """Resolve as `look_up`, blocking this thread. OSError if there is no such host."""
    require_host(host)
    try:
        return [*stdlib.getaddrinfo(host, port, type=kind, flags=flags)]
    except UnicodeError as error:
        raise no_such_host(host) from error


async def look_up_by(deadline: float, host: str | bytes, port: int) -> list[AddressInfo]:
    """Return the addresses to connect to. OSError if there are none; DeadlineExceeded at `deadline`. A checkpoint only
    if `host` is a name."""
    require_given(host)
    found = numeric(host, port, stdlib.SOCK_STREAM)
    if found is not None:
        return found
    if deadline == math.inf:
        return await _ask(host, port, stdlib.SOCK_STREAM, 0)
    done = Event()

    async def wait() -> None:
        if not await done.wait_until(deadline):
            raise DeadlineExceeded("connect", deadline)

    return await LookUp(host, port, stdlib.SOCK_STREAM, done.set).run(wait)


class LookUp:
    """A look-up of a name, for which the caller waits in its own way and may give up. Once `is_over`, `wake` is
    called."""

    def __init__(self, host: str | bytes, port: int, kind: int, wake: Callable[[], object]) -> None:
        self._name = (host, port, kind)
        self._wake = wake
        self._found: list[AddressInfo] = []
        self._error: Kept | None = None
        self.is_over: bool = False

    async def run(self, wait: Callable[[], Awaitable[object]]) -> list[AddressInfo]:
        """Return the addresses; OSError if there are none. `wait()` must sleep until `wake` is called and `is_over` is
        True. If it raises an error before, that is raised, and the look-up is abandoned."""
        async with open_group() as group:
            group.start_soon(self._look_up)
            try:
                await wait()
            except Exception as error:
                self._error = Kept(error)
            group.cancel()
        if self._error is not None:
            # here, because a group would wrap it
            self._error.reraise()
        return self._found

    async def _look_up(self) -> None:
        try:
            self._found = await _ask(*self._name, 0)
        except Exception as error:
            self._error = Kept(error)
        self.is_over = True
        self._wake()


async def _ask(host: str | bytes | None, port: int, kind: int, flags: int) -> list[AddressInfo]:
    """Ask the event loop for the addresses of a name. The `filename` of a gaierror is the name."""
    try:
        return await current_host().getaddrinfo(host, port, kind, flags)
    except UnicodeError as error:
        # empty or long labels cannot be encoded
        raise no_such_host(host) from error
    except stdlib.gaierror as error:
        note_name(error, host)
        raise


def numeric(host: str | bytes | None, port: int, kind: int, flags: int = 0) -> list[AddressInfo] | None:
    """Return what `getaddrinfo` returns for a `host` that is an address, or for None, which means every interface or
    this machine. Return None if `host` is a name, as all text is that is not ASCII."""
    require_host(host)
    if isinstance(host, str) and not host.isascii():
        # encoding a long one takes time: asyncio and uvloop do it in their threads
        return None
    try:
        return [*stdlib.getaddrinfo(host, port, type=kind, flags=flags | _NUMERIC)]
    except UnicodeError:
        return None
    except stdlib.gaierror as error:
        if error.errno == stdlib.EAI_NONAME:
            return None
        raise
