"""The errors of a socket's operations, told apart by whose fault they are.

Each is what a trio program expects, a class of trio's, and what an asyncio program expects, an OSError or a
RuntimeError. The fourth error, DeadlineExceeded, is an OSError and a TimeoutError.
"""

from __future__ import annotations

import errno
import socket as stdlib
from typing import Any, Final

import trio

from ..errors import DeadlineExceeded

# this process or the machine lacks descriptors or memory: no fault of a peer, and it may pass
SHORTAGES: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class BusyResourceError(trio.BusyResourceError, RuntimeError):
    """Two tasks use one direction of a socket at the same time: a mistake of this program. Nothing was changed."""


class ClosedResourceError(trio.ClosedResourceError, OSError):
    """This program has closed the socket, or has ended the side that it wants to send on. `errno` is EBADF."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _with_number, (type(self), self.args, self.errno), vars(self)


class BrokenResourceError(trio.BrokenResourceError, ConnectionError):
    """The peer or the network has ended the connection. `errno` is the kernel's, None if it gave none.

    What was sent may or may not have reached the peer. The socket can only be closed.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _with_number, (type(self), self.args, self.errno), vars(self)


def _with_number(kind: type[OSError], args: tuple[Any, ...], number: int | None) -> OSError:
    """Make an error from its pickle: an OSError is pickled without an `errno` that is not among its arguments."""
    error = kind(*args)
    error.errno = number
    return error


def note_name(error: OSError, name: str | bytes | None) -> None:
    """Set the path or host of an operation as the `filename` of its error. One of Python's own has no number, and would
    be shown without its text then."""
    if error.errno is not None:
        error.filename = name


def closed_error(message: str = "this socket was closed here") -> ClosedResourceError:
    """Make the error of an operation on a socket that this program has closed."""
    error = ClosedResourceError(message)
    error.errno = errno.EBADF
    return error


def broken_error(error: OSError) -> BrokenResourceError | ClosedResourceError:
    """Translate an error of the kernel. The original is the new error's cause."""
    if error.errno == errno.EBADF:
        return closed_error()
    broken = BrokenResourceError(f"the connection is broken: {error.strerror or error}")
    broken.errno = error.errno
    # set here, because `raise ... from` does not do it in compiled code
    broken.__cause__ = error
    return broken


def send_exceeded(late: DeadlineExceeded, sent: int) -> DeadlineExceeded:
    """Make the error of a send that `late` has ended after `sent` bytes. In the sender's frame, one of the error's, it
    would be a cycle with its name there."""
    exceeded = DeadlineExceeded("write", late.deadline, sent)
    exceeded.__cause__ = late
    return exceeded


def close_socket(socket: stdlib.socket) -> None:
    """Close a socket whose descriptor the program may have closed by its number."""
    try:
        socket.close()
    except OSError as error:
        if error.errno != errno.EBADF:
            raise
