"""What `DeadlineExceeded` says and carries."""

from __future__ import annotations

import copy
import math
import pickle

import pytest

from deadlined import DeadlineExceeded


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
