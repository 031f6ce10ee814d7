"""What `DeadlineExceeded` says and carries."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Awaitable, Callable

import pytest
from trio.testing import MockClock

from deadlined import DeadlineExceeded, open_udp
from tests.support.net import LOCALHOST, fails_at_its_deadline, local_listener, unix_pair


@pytest.mark.parametrize(
    ("op", "remedy"),
    [
        ("read", "set_read_deadline()"),
        ("write", "set_write_deadline()"),
        ("accept", "set_deadline()"),
        ("connect", "a later deadline="),
    ],
)
def test_the_message_names_the_operation_its_deadline_and_the_remedy(op: str, remedy: str) -> None:
    text = str(DeadlineExceeded(op, 12.5))
    assert text.startswith(f"{op} deadline exceeded")
    assert "12.5" in text
    assert text.endswith(remedy)


def test_the_message_counts_bytes_only_if_some_were_sent() -> None:
    assert "after 7 bytes were sent" in str(DeadlineExceeded("write", 1.0, sent=7))
    assert "bytes" not in str(DeadlineExceeded("write", 1.0))


def test_it_is_a_timeout_and_an_os_error_without_a_number() -> None:
    error = DeadlineExceeded("read", 1.0)
    assert isinstance(error, TimeoutError)
    assert isinstance(error, OSError)
    assert error.errno is None


@pytest.mark.parametrize("deadline", [1.0, 0.1 + 0.2, -math.inf])
@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"])
def test_a_copy_is_equal_in_all_its_fields(again: object, deadline: float) -> None:
    assert callable(again)
    error = DeadlineExceeded("write", deadline, 3)
    other = again(error)
    assert type(other) is DeadlineExceeded
    assert (other.op, other.deadline, other.sent) == ("write", deadline, 3)
    assert str(other) == str(error)


async def test_its_traceback_does_not_show_that_the_kernel_had_nothing(autojump_clock: MockClock) -> None:
    async with (
        local_listener() as (listener, _),
        await open_udp(LOCALHOST) as datagrams,
        unix_pair() as (one, _),
    ):
        waits: list[tuple[Callable[[float], None], Callable[[], Awaitable[object]]]] = [
            (listener.set_timeout, listener.accept),
            (datagrams.set_timeout, datagrams.receive_from),
            (one.set_timeout, one.receive_some),
            (one.set_timeout, lambda: one.send_all(bytes(10_000_000))),
        ]
        for set_timeout, wait in waits:
            set_timeout(1.0)
            assert (await fails_at_its_deadline(wait)).__context__ is None
