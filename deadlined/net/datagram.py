"""Datagrams with deadlines: Go's net.PacketConn, over UDP and unix sockets."""

from __future__ import annotations

import errno
import socket as stdlib
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import trio

from ..poll import Half
from ..runtime import Event, current_host
from .errors import close_socket, note_name
from .names import AddressInfo, LookUp, look_up, numeric, require_given, require_port
from .side import Side, require_open, shown_name
from .sockets import address_text, require_datagrams

# bytes; UDP's length field allows no more
MAX_DATAGRAM = 65535

Address = Any

_INTERNET = (stdlib.AF_INET, stdlib.AF_INET6)

# seconds between two attempts to send to a unix socket with a full queue, if this one is not connected to it: no event
# tells of room there. The first wait is short because a peer that reads has room soon
_RETRY_FIRST = 0.001
_RETRY_MOST = 0.1

# hosts with a meaning for `socket.sendto`: this machine, and all in its network
_NOT_NAMES = ("", "<broadcast>")


class PacketConn(trio.abc.AsyncResource):
    """A UDP socket whose operations end by deadlines that follow the rules of `Conn`. Make it with `open_udp` or
    `PacketConn.from_socket`.

    Any number of tasks may send, and one may receive at a time.
    """

    def __init__(self, socket: stdlib.socket) -> None:
        require_datagrams(socket)
        socket.setblocking(False)
        self._host = current_host()
        self._desc = self._host.open(socket.fileno())
        self._socket = socket
        self._family = socket.family
        self._reading = Side("read", self._desc.read, self._host)
        self._writing = Side("write", self._desc.write, self._host)
        # an event for each task that sends, in the order of their arrival, set when its turn comes: the first one sends
        self._senders: OrderedDict[Event, None] = OrderedDict()
        # a half for each look-up that a send waits for: a half has one waiter at a time, and many sends may wait. Each
        # has the deadline of the write half, and is closed with it
        self._look_ups: set[Half] = set()

    @classmethod
    def from_socket(cls, socket: stdlib.socket) -> PacketConn:
        """Take over a SOCK_DGRAM socket that the caller made: one with options that must be set before it is bound, as
        for multicast, or a unix socket, whose addresses are paths.

        It becomes non-blocking, and the PacketConn closes it. ValueError for another type of socket, TypeError for one
        of an event loop or with TLS.
        """
        return cls(socket)

    def __repr__(self) -> str:
        if self._desc.read.closed:
            return "<PacketConn closed>"
        name = shown_name(self._socket.getsockname)
        return f"<PacketConn {name} read_deadline={self.read_deadline} write_deadline={self.write_deadline}>"

    @property
    def socket(self) -> stdlib.socket:
        """The socket, for options and its address. The PacketConn closes it."""
        return self._socket

    @property
    def read_deadline(self) -> float:
        """The read deadline as it was last set; `inf` if there is none."""
        return self._desc.read.deadline

    @property
    def write_deadline(self) -> float:
        """The write deadline as it was last set; `inf` if there is none."""
        return self._desc.write.deadline

    def set_read_deadline(self, when: float) -> None:
        """Set the deadline of pending and future `receive_from`: absolute seconds on the loop's clock; `inf` is none.
        ClosedResourceError once closed."""
        require_open(self._desc.read)
        self._desc.read.set_deadline(when)

    def set_write_deadline(self, when: float) -> None:
        """Set the deadline of pending and future `send_to`: absolute seconds on the loop's clock; `inf` is none.
        ClosedResourceError once closed."""
        require_open(self._desc.write)
        self._desc.write.set_deadline(when)
        self._limit_look_ups()

    def set_deadline(self, when: float) -> None:
        """Set the read and the write deadline."""
        require_open(self._desc.read)
        self._desc.set_deadline(when)
        self._limit_look_ups()

    def set_read_timeout(self, seconds: float) -> None:
        """Set the read deadline, in seconds from now; at or below 0 it expires at once. NaN is a ValueError."""
        require_open(self._desc.read)
        self._desc.read.set_timeout(seconds)

    def set_write_timeout(self, seconds: float) -> None:
        """Set the write deadline, in seconds from now; at or below 0 it expires at once. NaN is a ValueError."""
        require_open(self._desc.write)
        self._desc.write.set_timeout(seconds)
        self._limit_look_ups()

    def set_timeout(self, seconds: float) -> None:
        """Set the read and the write deadline to the same time, `seconds` from now."""
        require_open(self._desc.read)
        self._desc.set_timeout(seconds)
        self._limit_look_ups()

    async def receive_from(self, max_bytes: int = MAX_DATAGRAM) -> tuple[bytes, Address]:
        """Receive the next datagram, cut to `max_bytes`, and its sender's address.

        OSError (ECONNREFUSED) if the peer of a connected socket refused an earlier datagram; the socket stays usable.
        """
        side = self._reading
        side.enter()
        try:
            await side.begin()
            while (received := self._try_receive(max_bytes)) is None:
                side.woken(await side.parking)
            if not side.slept:
                await side.finish()
            return received
        finally:
            side.leave()

    async def send_to(self, data: bytes, address: Address = None) -> None:
        """Send one datagram, whole or not at all, to `address`; None means the peer of a connected socket.

        While there is no room for it, other tasks wait for their turn. Connect a unix socket that sends much to one
        peer: only then the kernel reports when a full queue has room.

        A host that is a name is looked up again for each datagram, without blocking, before its turn; the write
        deadline applies. To send many, give an address, or connect with `remote` of `open_udp`.

        OSError if the name has no address in the socket's family, and for errors of the kernel (EMSGSIZE, ECONNREFUSED,
        ENOBUFS); the socket stays usable.
        """
        require_open(self._writing.half)
        if self._host.yields_first:
            # before its turn comes: other tasks wait for the end of that
            await self._host.checkpoint()
        if address is not None and self._is_name(address):
            address = await self._look_up(address)
        turn = Event()
        try:
            self._senders[turn] = None
            if next(iter(self._senders)) is not turn:
                await turn.wait()
            slept = await self._send_in_turn(data, address)
        finally:
            self._end_turn(turn)
        if not slept:
            await self._writing.finish()

    async def aclose(self) -> None:
        """Close; pending operations raise ClosedResourceError. Idempotent."""
        self.close()
        await self._host.checkpoint()

    def close(self) -> None:
        """Do what `aclose` does, without the checkpoint. May be called from callbacks, after the event loop has ended,
        and in a forked child, where it closes the child's descriptor only."""
        self._host.close(self._desc)
        for half in [*self._look_ups]:
            if not self._host.poller.is_open():
                # its task does not run any more; the poller did the same with the socket's own halves
                half.unpark()
            half.close()
        close_socket(self._socket)

    async def _send_in_turn(self, data: bytes, address: Address) -> bool:
        """Send one datagram. True if that has been a checkpoint."""
        side = self._writing
        side.enter()
        # if the host yields first, `send_to` has yielded
        side.has_yielded = True
        try:
            await side.begin()
            delay = _RETRY_FIRST
            while not self._try_send(data, address):
                if address is None or self._family != stdlib.AF_UNIX:
                    side.woken(await side.parking)
                else:
                    await side.pause(self._host.clock.now() + delay)
                    delay = min(2 * delay, _RETRY_MOST)
            return side.slept
        finally:
            side.leave()

    def _end_turn(self, turn: Event) -> None:
        """Let the next task send, if it was this one's turn."""
        self._senders.pop(turn, None)
        for following in self._senders:
            following.set()
            break

    def _is_name(self, address: Address) -> bool:
        """Return True if `sendto` would look the host up, and block. A malformed address is left to `sendto`, which
        raises."""
        try:
            stdlib.inet_pton(self._family, address[0])
        except (OSError, TypeError, ValueError, IndexError):
            return self._family in _INTERNET and _has_name(address)
        return False

    async def _look_up(self, address: Address) -> Address:
        """Return the first address of a name in the socket's family."""
        host, port = address[:2]
        require_port(port)
        found = numeric(host, port, stdlib.SOCK_DGRAM)
        if found is None:
            found = await self._ask(host, port)
        for family, _, _, _, resolved in found:
            if family == self._family:
                # flow and scope of IPv6 may be the caller's
                return (*resolved[:2], *address[2:]) if address[2:] else resolved
        raise OSError(errno.EAFNOSUPPORT, f"{host!r} has no address in the socket's family")

    async def _ask(self, host: str | bytes, port: int) -> list[AddressInfo]:
        """Look a name up, unless the write deadline or a close comes first."""
        # other tasks may have run since the send began
        require_open(self._desc.write)
        half = Half(self._host.poller)
        half.set_deadline(self._desc.write.deadline)
        side = Side("write", half, self._host)
        # if the host yields first, `send_to` has yielded
        side.has_yielded = True
        lookup = LookUp(host, port, stdlib.SOCK_DGRAM, partial(half.unblock, True))

        async def wait() -> None:
            while not lookup.is_over:
                side.woken(await side.parking)

        self._look_ups.add(half)
        try:
            await side.begin()
            return await lookup.run(wait)
        finally:
            self._look_ups.discard(half)
            half.close()

    def _limit_look_ups(self) -> None:
        """Give each look-up the write deadline, which was moved."""
        for half in [*self._look_ups]:
            half.set_deadline(self._desc.write.deadline)

    def _try_receive(self, max_bytes: int) -> tuple[bytes, Address] | None:
        try:
            return self._socket.recvfrom(max_bytes)
        except BlockingIOError:
            return None

    def _try_send(self, data: bytes, address: Address) -> bool:
        try:
            if address is None:
                self._socket.send(data)
            else:
                self._socket.sendto(data, address)
        except BlockingIOError:
            return False
        return True


def _has_name(address: Address) -> bool:
    """Return True if the host of something like an address is a text."""
    if not isinstance(address, tuple) or len(address) < 2:
        return False
    return isinstance(address[0], bytes) or (isinstance(address[0], str) and address[0] not in _NOT_NAMES)


async def open_udp(host: str | None = None, port: int = 0, *, remote: tuple[str, int] | None = None) -> PacketConn:
    """Open a UDP socket bound to `host` and `port` (None: all interfaces, 0: any port), and connected to `remote` if
    that is given.

    A socket has one address family. For `host` None it is that of `remote`, or else the one that the system prefers:
    IPv4 on Linux. "::" serves IPv4 as well where IPV6_V6ONLY is off, which is Linux's default; addresses of IPv4 are
    written "::ffff:192.0.2.1" there.

    Names are resolved without blocking. OSError if one cannot be resolved, if `host` and `remote` have no address
    family in common, or if the kernel refuses an address, which is its `filename` then.
    """
    is_bound = remote is None or host is not None or port != 0
    if remote is not None:
        require_given(remote[0])
    local = await _resolve(host or None, port, stdlib.AI_PASSIVE) if is_bound else []
    peers = await _resolve(remote[0], remote[1]) if remote is not None else []
    family, address, peer = _choose(local, peers)
    socket = stdlib.socket(family, stdlib.SOCK_DGRAM)
    try:
        _give(socket.bind, address)
        _give(socket.connect, peer)
        return PacketConn(socket)
    except BaseException:
        socket.close()
        raise


def _give(call: Callable[[Address], object], address: Address) -> None:
    """Call bind or connect, unless there is no address. The kernel does not say which one it means, the error does."""
    if address is None:
        return
    try:
        call(address)
    except OSError as error:
        note_name(error, address_text(address))
        raise


async def _resolve(host: str | None, port: int, flags: int = 0) -> list[tuple[int, Address]]:
    """Look up the families and addresses of a name, the preferred one first."""
    require_port(port)
    found = await look_up(host, port, stdlib.SOCK_DGRAM, flags)
    return [(family, address) for family, _, _, _, address in found]


def _choose(local: list[tuple[int, Address]], peers: list[tuple[int, Address]]) -> tuple[int, Address, Address]:
    """Choose a family, an address to bind to and one to connect to: the first peer that a local address can reach.

    An empty list gives None for its address; at most one of the two is empty.
    """
    local = local or [(family, None) for family, _ in peers]
    peers = peers or [(family, None) for family, _ in local]
    for family, peer in peers:
        for other, address in local:
            if other == family:
                return family, address, peer
    raise OSError(errno.EAFNOSUPPORT, "the local and the remote host have no address family in common")
