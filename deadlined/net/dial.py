"""Outgoing connections under a deadline, which includes the name look-up.

A non-blocking connect to a unix socket never waits: it succeeds or fails, on Linux with EAGAIN if the listener's queue
is full. No event reports room in the queue, so the connect is tried again after 5 ms, and then at growing intervals.
macOS and the BSDs refuse the connection then, as they do where nobody listens: there it is not tried again.
"""

from __future__ import annotations

import math
import os
import socket as stdlib
import ssl

from ..errors import DeadlineExceeded
from ..runtime import checkpoint, current_time
from ..timing import sleep_until
from .conn import Conn
from .errors import note_name
from .names import look_up_by, require_port
from .race import Race, why_nobody_answered
from .tls import TlsConn

# seconds between two attempts at a full queue: the first is short because a working server accepts soon, the longest is
# the delay that a caller may see after there is room
_RETRY_FIRST = 0.005
_RETRY_MOST = 0.1


async def open_tcp_stream(host: str | bytes, port: int, *, deadline: float = math.inf) -> Conn:
    """Connect to a TCP port at the first address of `host` that answers.

    DeadlineExceeded (op "connect") at `deadline`, absolute seconds, which includes the name look-up; at or before now
    it is raised at once. OSError if no address can be reached: of the class of a ConnectionError, such as
    ConnectionRefusedError, if an address has answered so, else with the errno of the first attempt. Its cause is a
    group of the errors of all attempts. NaN is a ValueError.
    """
    require_port(port)
    await _require_time(deadline)
    race = Race(await look_up_by(deadline, host, port), deadline)
    try:
        conn = await race.run()
        if conn is None:
            name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
            raise why_nobody_answered(f"{name}:{port}", deadline, race.errors)
        return conn
    finally:
        # the frames of an attempt's error refer to the race, also where a later attempt has won: a cycle
        race.errors.clear()


async def open_tls_stream(
    host: str,
    port: int,
    *,
    ssl_context: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
    https_compatible: bool = False,
    deadline: float = math.inf,
) -> TlsConn:
    """Connect to a TCP port as `open_tcp_stream`, and set TLS up; `deadline` includes the handshake.

    Without a context, `ssl.create_default_context()` verifies the server against the system's authorities. It must have
    a certificate for `server_hostname`, or `host`. BrokenResourceError if the handshake fails; its cause is the
    SSLError.
    """
    context = ssl_context or ssl.create_default_context()
    conn = await open_tcp_stream(host, port, deadline=deadline)
    try:
        tls = TlsConn(conn, context, server_hostname=server_hostname or host, https_compatible=https_compatible)
        conn.set_deadline(deadline)
        await tls.do_handshake()
        conn.set_deadline(math.inf)
    except DeadlineExceeded as late:
        conn.close()
        raise DeadlineExceeded("connect", deadline) from late
    except BaseException:
        conn.close()
        raise
    return tls


async def open_unix_stream(path: str | bytes | os.PathLike[str], *, deadline: float = math.inf) -> Conn:
    """Connect to a unix socket. Waits while the listener's queue is full; on macOS and the BSDs, which do not tell that
    from a socket on which nobody listens, ConnectionRefusedError then. Errors as `open_tcp_stream`; the `filename` of
    one of the kernel is the path. A name that begins with a NUL is an abstract one (Linux)."""
    name = os.fsdecode(path)
    await _require_time(deadline)
    delay = _RETRY_FIRST
    socket = stdlib.socket(stdlib.AF_UNIX, stdlib.SOCK_STREAM)
    try:
        socket.setblocking(False)
        while not _try_connect(socket, name):
            await sleep_until(min(current_time() + delay, deadline))
            _require_left(deadline)
            delay = min(2 * delay, _RETRY_MOST)
        return Conn.from_socket(socket)
    except BaseException:
        socket.close()
        raise


def _try_connect(socket: stdlib.socket, path: str) -> bool:
    """Try to connect; False if the listener's queue is full, where the kernel tells."""
    try:
        socket.connect(path)
    except BlockingIOError:
        return False
    except OSError as error:
        note_name(error, path)
        raise
    return True


async def _require_time(deadline: float) -> None:
    """Raise DeadlineExceeded if `deadline` has come, ValueError if it is NaN. A checkpoint."""
    if deadline != deadline:
        raise ValueError("a deadline must not be NaN; use inf for none")
    await checkpoint()
    _require_left(deadline)


def _require_left(deadline: float) -> None:
    if deadline <= current_time():
        raise DeadlineExceeded("connect", deadline)
