"""The messages of a websocket that wait, and the one that has not come whole, by times and bytes."""

from __future__ import annotations

import pytest

from deadlined.http.inbox import Inbox
from deadlined.http.websocket_deadlines import Incomplete
from tests.support.http import only
from tests.support.net import INF

# a second for each 100 bytes
TIMEOUTS = only(body_grace=10, body_min_rate=100)


@pytest.mark.parametrize(
    ("message", "most"),
    [(b"x", 64), ("x", 64), (b"", 64), (bytes(16 * 1024), 4), (bytes(1 << 20), 1)],
    ids=["bytes", "text", "empty", "long", "too long"],
)
def test_so_many_messages_or_bytes_may_wait(message: str | bytes, most: int) -> None:
    inbox = Inbox()
    for _ in range(most):
        assert not inbox.full
        inbox.put([message])
    assert inbox.full
    assert inbox.pop() == message
    assert not inbox.full


def test_what_is_forgotten_makes_room() -> None:
    inbox = Inbox()
    inbox.put([bytes(1 << 20), "text"])
    inbox.clear()
    assert (len(inbox), inbox.full) == (0, False)


def test_a_message_has_more_time_for_each_byte_of_it() -> None:
    incomplete = Incomplete()
    assert incomplete.deadline(TIMEOUTS) == INF
    assert incomplete.note(True, False, 100, 5.0)
    assert incomplete.deadline(TIMEOUTS) == 16.0
    assert not incomplete.note(True, False, 300, 6.0)
    assert incomplete.deadline(TIMEOUTS) == 19.0
    assert not incomplete.note(False, True, 300, 7.0)
    assert incomplete.deadline(TIMEOUTS) == INF


def test_a_message_that_begins_with_the_end_of_another_has_its_own_time() -> None:
    incomplete = Incomplete()
    incomplete.note(True, False, 500, 5.0)
    assert incomplete.note(True, True, 300, 14.0)
    # nobody knows how much of the 300 bytes is of this one
    assert incomplete.deadline(TIMEOUTS) == 24.0


def test_only_the_time_of_a_message_that_has_begun_counts_anew() -> None:
    incomplete = Incomplete()
    incomplete.begin_again(5.0)
    assert incomplete.deadline(TIMEOUTS) == INF
    incomplete.note(True, False, 100, 6.0)
    incomplete.begin_again(8.0)
    assert incomplete.deadline(TIMEOUTS) == 19.0
