"""TLS peers that a test moves by hand, and connected pairs of `TlsConn`."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from deadlined import Conn, TlsConn
from deadlined.net.tls_core import PIECE, TlsCore
from tests.support.net import SERVER_NAME, certificates, tcp_pair


def cores(client: ssl.SSLContext | None = None, server: ssl.SSLContext | None = None) -> tuple[TlsCore, TlsCore]:
    """Return both sides, before the handshake."""
    one = TlsCore(client or certificates().client, False, SERVER_NAME)
    return one, TlsCore(server or certificates().server, True, None)


def shaken_cores(client: ssl.SSLContext | None = None) -> tuple[TlsCore, TlsCore]:
    """Return both sides, after the handshake and the session tickets."""
    one, other = cores(client)
    shake(one, other)
    assert not one.holds_bytes
    return one, other


def shake(one: TlsCore, other: TlsCore) -> None:
    """Do the handshake, and let the client read the session tickets."""
    for _ in range(3):
        for core, peer in ((one, other), (other, one)):
            core.shake()
            if core.has_output:
                peer.feed(core.data_to_send())
    assert other.shaken
    assert one.read(1) is None


def encrypt(core: TlsCore, data: bytes) -> bytes:
    """Return `data` as ciphertext of `core`."""
    for start in range(0, len(data), PIECE):
        core.write(data[start : start + PIECE])
    return core.data_to_send()


@asynccontextmanager
async def tls_pair(
    *, client_context: ssl.SSLContext | None = None, https_compatible: bool = False, shaken: bool = True
) -> AsyncIterator[tuple[TlsConn, TlsConn]]:
    """Give a client and a server over TCP, after the handshake unless `shaken` is False."""
    async with tcp_pair() as (near, far):
        context = client_context or certificates().client
        client = TlsConn(near, context, server_hostname=SERVER_NAME, https_compatible=https_compatible)
        server = TlsConn(far, certificates().server, server_side=True, https_compatible=https_compatible)
        if shaken:
            await shake_hands(client, server)
        yield client, server


async def shake_hands(client: TlsConn | trio.SSLStream[Conn], server: TlsConn | trio.SSLStream[Conn]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.do_handshake)
        nursery.start_soon(server.do_handshake)


def only_tls_12() -> ssl.SSLContext:
    """Return a client's context that trusts the test's authority and speaks nothing later than TLS 1.2."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    certificates().trust(context)
    return context


class ByHand:
    """A TLS client over a `Conn` whose bytes a test sends piece by piece."""

    def __init__(self, conn: Conn) -> None:
        self.conn = conn
        self.core = TlsCore(certificates().client, False, SERVER_NAME)

    def hello(self) -> bytes:
        """Return the ClientHello."""
        assert not self.core.shake()
        return self.core.data_to_send()

    async def finish(self) -> None:
        """Do the rest of the handshake after the ClientHello."""
        while not self.core.shake():
            await self._send_output()
            self.core.feed(await self.conn.receive_some())
        await self._send_output()

    async def receive(self) -> bytes:
        """Return the next plaintext; b"" at the end, with or without a close_notify."""
        while (data := self.core.read(65536)) is None:
            self.core.feed(await self.conn.receive_some())
        return data

    async def shake_hands(self) -> None:
        await self.conn.send_all(self.hello())
        await self.finish()

    async def send(self, data: bytes) -> None:
        await self.conn.send_all(encrypt(self.core, data))

    async def _send_output(self) -> None:
        if self.core.has_output:
            await self.conn.send_all(self.core.data_to_send())
