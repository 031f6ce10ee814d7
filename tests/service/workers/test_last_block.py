"""What a supervisor knows of the latest block of a worker process's event loop."""

from __future__ import annotations

import json
import time

import pytest

from deadlined.service.workers.last_block import _HEAD, _SIZE, LastBlock
from tests.support.runtime import exit_status_of


def test_it_is_known_in_the_process_that_has_forked() -> None:
    block = LastBlock()
    begun = time.monotonic()
    assert exit_status_of(lambda: block.note("shop.py", "buy", "lock.acquire()\n")) == 0
    assert block.since(begun) == {"file": "shop.py", "function": "buy", "stack": "lock.acquire()\n"}


def test_one_from_before_is_not_told() -> None:
    block = LastBlock()
    assert block.since(0.0) == {}
    block.note("shop.py", "buy", "")
    assert block.since(time.monotonic()) == {}


def test_the_latest_counts() -> None:
    block = LastBlock()
    block.note("shop.py", "buy", "x" * 3000)
    block.note("shop.py", "sell", "y")
    assert block.since(0.0) == {"file": "shop.py", "function": "sell", "stack": "y"}


@pytest.mark.parametrize(
    ("file", "stack", "told"),
    [
        ("caf\udce9.py", "\N{GRINNING FACE}" * 3000, {"file": "caf\udce9.py", "stack": "\N{GRINNING FACE}" * 3000}),
        ("shop.py", "x" * 20_000, {"file": "shop.py", "stack": ""}),
        ("f" * 20_000, "x", {}),
    ],
    ids=["not text", "too long", "all too long"],
)
def test_what_does_not_fit_is_left_out(file: str, stack: str, told: dict[str, str]) -> None:
    block = LastBlock()
    block.note(file, "buy", stack)
    assert block.since(0.0) == (told | {"function": "buy"} if told else {})


def test_it_may_fill_the_memory_and_have_no_byte_more() -> None:
    block = LastBlock()
    room = _SIZE - _HEAD.size - len(json.dumps(["shop.py", "buy", ""]))
    block.note("shop.py", "buy", "x" * room)
    assert block.since(0.0)["stack"] == "x" * room
    block.note("shop.py", "buy", "x" * (room + 1))
    assert block.since(0.0) == {"file": "shop.py", "function": "buy", "stack": ""}


def test_what_is_half_written_is_nothing() -> None:
    block = LastBlock()
    block.note("shop.py", "buy", "a stack")
    block._memory[20:24] = b"\xff\xff\xff\xff"
    assert block.since(0.0) == {}
