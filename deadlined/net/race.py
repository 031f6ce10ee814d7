"""Connecting to the first address of a name that answers: happy eyeballs (RFC 8305).

Facts      A name has several addresses, of two families. One that is not reachable may answer nothing for minutes.
Answer     An attempt begins when the one before has failed, or has not answered within 250 ms (section 5). The families
           take turns (section 4). The first connection wins; the others are closed.
Cost       A task per attempt, unless there is only one address.
"""

from __future__ import annotations

import errno
import os
import socket as stdlib
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Any

from ..errors import DeadlineExceeded
from ..runtime import Event, Group, current_time, open_group
from .conn import Conn
from .names import AddressInfo

# seconds; the "Connection Attempt Delay" that RFC 8305 recommends
_DELAY = 0.25


class Race:
    """One race to `addresses`. Each attempt ends at `deadline`, absolute seconds."""

    def __init__(self, addresses: Sequence[AddressInfo], deadline: float) -> None:
        self._addresses = interleaved(addresses)
        self._deadline = deadline
        self._winner: Conn | None = None
        self._running = 0
        # set when an attempt has ended
        self._ended = Event()
        self.errors: list[OSError] = []

    async def run(self) -> Conn | None:
        """Return the first connection, None if every attempt has failed; `errors` says why."""
        if len(self._addresses) == 1:
            await self._attempt(self._addresses[0])
            return self._winner
        try:
            async with open_group() as attempts:
                await self._run_in(attempts)
        except BaseException:
            if self._winner is not None:
                # cancelled just as an attempt has won: the caller will not get the connection
                self._winner.close()
            raise
        return self._winner

    async def _run_in(self, attempts: Group) -> None:
        for address in self._addresses:
            self._running += 1
            # an attempt of an eager task may end at once
            self._ended = Event()
            attempts.start_soon(self._attempt, address)
            await self._ended.wait_until(current_time() + _DELAY)
            if self._winner is not None:
                break
        while self._winner is None and self._running:
            self._ended = Event()
            await self._ended.wait_until(self._deadline + _DELAY)
        attempts.cancel()

    async def _attempt(self, address: AddressInfo) -> None:
        try:
            conn = await connect(address, self._deadline)
        except OSError as error:
            self.errors.append(error)
        else:
            if self._winner is None:
                self._winner = conn
            else:
                conn.close()
        self._running -= 1
        self._ended.set()


def interleaved(addresses: Sequence[AddressInfo]) -> list[AddressInfo]:
    """Return the addresses with their families in turns, in the order in which each family comes."""
    families: dict[int, list[AddressInfo]] = {}
    for address in addresses:
        families.setdefault(address[0], []).append(address)
    return [address for address in chain(*zip_longest(*families.values())) if address is not None]


async def connect(address: AddressInfo, deadline: float) -> Conn:
    """Connect to one address. OSError as connect(2); DeadlineExceeded at `deadline`, absolute seconds."""
    family, kind, proto, _, name = address
    socket = stdlib.socket(family, kind, proto)
    try:
        socket.setblocking(False)
        code = socket.connect_ex(name)
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, os.strerror(code))
        # registered only now: an event queue reports a socket that is not connecting as hung up
        conn = Conn.from_socket(socket)
    except BaseException:
        socket.close()
        raise
    try:
        conn.set_write_deadline(deadline)
        await _wait_connected(conn)
    except BaseException:
        conn.close()
        raise
    conn.set_write_deadline(float("inf"))
    return conn


async def _wait_connected(conn: Conn) -> None:
    while True:
        await conn.wait_writable()
        code = conn.socket.getsockopt(stdlib.SOL_SOCKET, stdlib.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        peer = _peer(conn.socket)
        if peer is not None:
            _require_another(conn, peer)
            return


def _peer(socket: stdlib.socket) -> Any:
    """Return the address that the socket is connected to, None if it is not connected yet."""
    try:
        return socket.getpeername()
    except OSError as error:
        if error.errno == errno.ENOTCONN:
            return None
        raise


def _require_another(conn: Conn, peer: Any) -> None:
    """Raise ConnectionRefusedError if the connection is one to itself (RFC 9293, 3.5): nobody listens on the port, and
    the kernel has chosen the same one for this side."""
    if conn.socket.getsockname() == peer:
        # an ordinary close would keep a server from the port for a minute
        conn.abort()
        raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))


def why_nobody_answered(where: str, deadline: float, errors: Sequence[OSError]) -> OSError:
    """Return the error of a race that no attempt has won: DeadlineExceeded if one was cut by the deadline; else an
    OSError with the errno, and so of the class, of the most telling attempt."""
    if any(isinstance(error, DeadlineExceeded) for error in errors):
        return DeadlineExceeded("connect", deadline)
    # in words, each once
    reasons = "; ".join(dict.fromkeys(error.strerror or str(error) for error in errors))
    text = f"all attempts to connect to {where} failed: {reasons}"
    code = _most_telling(errors)
    failure = OSError(text) if code is None else OSError(code, text)
    failure.__cause__ = ExceptionGroup(text, list(errors)) if errors else None
    return failure


def _most_telling(errors: Sequence[OSError]) -> int | None:
    """Return the errno of the first attempt that has reached a machine, else of the first one. A name often has
    addresses of a family that this machine has no route for."""
    answers = [error for error in errors if isinstance(error, ConnectionError)]
    return next((error.errno for error in [*answers, *errors]), None)
