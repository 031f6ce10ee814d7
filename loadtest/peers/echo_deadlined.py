"""An echo server on `deadlined.Conn`: `python -m loadtest.peers.echo_deadlined plain|moved|least|contract [SECONDS]`.

plain: no deadline. moved: the read deadline is moved before every read and the write deadline before every write, by
SECONDS (5). The other two are bounds, not streams. least: two system calls and the two turns of trio's loop that two
operations owe it, without any check for a cancellation, a deadline, a second user or an error. contract: the same with
the checks for a cancellation, which make both operations checkpoints, as trio requires.
"""

from __future__ import annotations

import sys
from contextlib import suppress

import trio
from trio.lowlevel import checkpoint_if_cancelled

import deadlined
from deadlined import Conn
from deadlined.runtime.on_trio.parking import yield_shielded

SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 5.0


async def plain(conn: Conn) -> None:
    """Echo until the peer ends."""
    while data := await conn.receive_some():
        await conn.send_all(data)


async def moved(conn: Conn) -> None:
    """Echo until the peer ends, each read and each write within SECONDS."""
    while True:
        conn.set_read_timeout(SECONDS)
        data = await conn.receive_some()
        if not data:
            return
        conn.set_write_timeout(SECONDS)
        await conn.send_all(data)


async def least(conn: Conn) -> None:
    """Echo until the peer ends, with two turns of trio's loop per message."""
    socket = conn.socket
    slept = False
    while True:
        try:
            data = socket.recv(65536)
        except BlockingIOError:
            await conn.wait_readable()
            slept = True
            continue
        if not data:
            return
        if not slept:
            await yield_shielded
        slept = False
        socket.send(data)
        await yield_shielded


async def contract(conn: Conn) -> None:
    """Do the same as `least`, with a check for a cancellation before each operation."""
    socket = conn.socket
    slept = False
    await checkpoint_if_cancelled()
    while True:
        try:
            data = socket.recv(65536)
        except BlockingIOError:
            await conn.wait_readable()
            slept = True
            continue
        if not data:
            return
        if not slept:
            await yield_shielded
        slept = False
        await checkpoint_if_cancelled()
        socket.send(data)
        await yield_shielded
        await checkpoint_if_cancelled()


async def handle(conn: Conn) -> None:
    """Serve a connection in the mode of the command line."""
    # the client ends by closing, or was too slow
    with suppress(trio.BrokenResourceError, deadlined.DeadlineExceeded, ConnectionError):
        await {"plain": plain, "moved": moved, "least": least, "contract": contract}[sys.argv[1]](conn)


async def main() -> None:
    """Serve on a free port until the process is terminated."""
    listeners = await deadlined.open_tcp_listeners(0, host="127.0.0.1")
    print(f"listening on tcp://127.0.0.1:{listeners[0].socket.getsockname()[1]}", flush=True)
    await trio.serve_listeners(handle, listeners)


if __name__ == "__main__":
    trio.run(main)
