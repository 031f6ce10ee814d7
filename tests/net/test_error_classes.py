"""The errors of a socket are what a trio program, an asyncio program and a program for sockets expect."""

from __future__ import annotations

import copy
import errno
import pickle

import pytest
import trio

import deadlined
from deadlined.net.errors import broken_error, closed_error

EXPECTED = {
    deadlined.BusyResourceError: (trio.BusyResourceError, RuntimeError),
    deadlined.ClosedResourceError: (trio.ClosedResourceError, OSError),
    deadlined.BrokenResourceError: (trio.BrokenResourceError, ConnectionError),
    deadlined.DeadlineExceeded: (TimeoutError, OSError),
}


@pytest.mark.parametrize("kind", EXPECTED, ids=lambda kind: kind.__name__)
def test_each_error_is_what_programs_of_either_kind_catch(kind: type[Exception]) -> None:
    assert all(issubclass(kind, base) for base in EXPECTED[kind])


def test_no_error_is_taken_for_another() -> None:
    for kind in EXPECTED:
        assert not any(issubclass(kind, other) for other in EXPECTED if other is not kind)


def test_a_broken_connection_keeps_the_kernel_s_error() -> None:
    reset = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")

    error = broken_error(reset)

    assert isinstance(error, deadlined.BrokenResourceError)
    assert error.errno == errno.ECONNRESET
    assert error.__cause__ is reset
    assert str(error) == "the connection is broken: Connection reset by peer"


def test_a_descriptor_that_was_closed_here_is_not_the_peer_s_fault() -> None:
    assert isinstance(broken_error(OSError(errno.EBADF, "Bad file descriptor")), deadlined.ClosedResourceError)


def test_a_closed_socket_says_so_and_has_its_number() -> None:
    error = closed_error()

    assert error.errno == errno.EBADF
    assert str(error) == "this socket was closed here"


@pytest.mark.parametrize(
    "error",
    [
        deadlined.DeadlineExceeded("write", 5.0, 3),
        broken_error(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")),
        deadlined.BrokenResourceError("without a number"),
        closed_error(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_reaches_another_process_with_its_number_and_its_notes(error: OSError) -> None:
    error.add_note("in the third attempt")

    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error)
        assert (str(other), other.errno, other.args) == (str(error), error.errno, error.args)
        assert vars(other) == vars(error)
