"""Datagrams with deadlines: Go's net.PacketConn over UDP."""

from __future__ import annotations

import socket as stdlib
from typing import Any

import trio
from trio.lowlevel import checkpoint

from ..runtime import current_pump, yield_shielded
from .side import Side, require_open

# bytes; no UDP datagram is longer
MAX_DATAGRAM = 65535

Address = Any


class PacketConn(trio.abc.AsyncResource):
    """A UDP socket whose operations end by their deadlines, as those of `Conn` do. Make it with `open_udp`."""

    def __init__(self, socket: stdlib.socket) -> None:
        socket.setblocking(False)
        self._pump = current_pump()
        self._desc = self._pump.open(socket.fileno())
        self._socket = socket
        self._reading = Side("read", self._desc.read)
        self._writing = Side("write", self._desc.write)

    @property
    def socket(self) -> stdlib.socket:
        """The socket, for options and its address."""
        return self._socket

    def set_read_deadline(self, when: float) -> None:
        """Let pending and future `receive_from` fail at `when`; `inf` is none. ClosedResourceError once closed."""
        require_open(self._desc.read)
        self._desc.read.set_deadline(when)

    def set_write_deadline(self, when: float) -> None:
        """Let pending and future `send_to` fail at `when`; `inf` is none. ClosedResourceError once closed."""
        require_open(self._desc.write)
        self._desc.write.set_deadline(when)

    def set_deadline(self, when: float) -> None:
        """Set the read and the write deadline."""
        self.set_read_deadline(when)
        self.set_write_deadline(when)

    async def receive_from(self, max_bytes: int = MAX_DATAGRAM) -> tuple[bytes, Address]:
        """The next datagram, cut to `max_bytes`, and its sender's address.

        OSError (ECONNREFUSED) if an earlier datagram of a connected socket was refused; the socket can be used on.
        """
        side = self._reading
        side.enter()
        try:
            await side.begin()
            while True:
                try:
                    received = self._socket.recvfrom(max_bytes)
                    break
                except BlockingIOError:
                    side.woken(await side.parking)
            if not side.slept:
                await yield_shielded
            return received
        finally:
            side.leave()

    async def send_to(self, data: bytes, address: Address = None) -> None:
        """Send one datagram, whole or not at all, to `address`, or to the peer of a connected socket if it is None.

        OSError as the kernel gives it (EMSGSIZE, ECONNREFUSED, ENOBUFS); the socket can be used on.
        """
        side = self._writing
        side.enter()
        try:
            await side.begin()
            while not self._try_send(data, address):
                side.woken(await side.parking)
            if not side.slept:
                await yield_shielded
        finally:
            side.leave()

    async def aclose(self) -> None:
        """Close; pending operations raise ClosedResourceError. Idempotent."""
        self._pump.close(self._desc)
        self._socket.close()
        await checkpoint()

    def _try_send(self, data: bytes, address: Address) -> bool:
        try:
            if address is None:
                self._socket.send(data)
            else:
                self._socket.sendto(data, address)
        except BlockingIOError:
            return False
        return True


async def open_udp(host: str | None = None, port: int = 0, *, remote: tuple[str, int] | None = None) -> PacketConn:
    """A UDP socket bound to `host` and `port` (None: all interfaces, 0: any port), connected to `remote` if that is
    given."""
    look_up = remote or (host, port)
    flags = 0 if remote else stdlib.AI_PASSIVE
    found = await trio.socket.getaddrinfo(*look_up, type=stdlib.SOCK_DGRAM, flags=flags)
    family, type_, proto, _, address = found[0]
    socket = stdlib.socket(family, type_, proto)
    try:
        if remote is None:
            socket.bind(address)
        else:
            if host is not None or port:
                socket.bind((host or "", port))
            socket.connect(address)
        return PacketConn(socket)
    except BaseException:
        socket.close()
        raise
