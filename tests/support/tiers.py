"""Which tests run by default, and which in the thorough tier only: those that are marked `thorough`.

A server that is a process costs a second of a processor for each event loop that it is started on. In the folders below
a test that is repeated for each event loop therefore runs on one of them by default, and on all in the thorough tier.
The modules, or the tests of a module, take turns, so that by default, too, each event loop serves some of them. A
module's tests stay on one event loop, because they share a server.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import pytest

LOOPS = ("trio", "asyncio", "uvloop")

# another server, with which ours is compared
PEER = "uvicorn"

# who takes turns, by the longest prefix of the path
BY_MODULE = ("tests/applications/", "tests/websockets/")
BY_TEST = ("tests/service/", "tests/websockets/test_autobahn.py")


def mark_turns(items: Iterable[pytest.Item]) -> None:
    """Mark as thorough the repetitions of a test on the event loops whose turn it is not."""
    repeated = {item: found for item in items if (found := loop_of(item.nodeid))}
    loops: dict[str, set[str]] = {}
    for test, loop in repeated.values():
        loops.setdefault(test, set()).add(loop)
    for item, (test, loop) in repeated.items():
        if loop != turn(test, loops[test]):
            item.add_marker(pytest.mark.thorough)


def loop_of(nodeid: str) -> tuple[str, str] | None:
    """Return the test without its event loop, and the event loop. None if it is not one of those that take turns."""
    if not nodeid.startswith(BY_MODULE + BY_TEST):
        return None
    test, _, parameters = nodeid.rstrip("]").partition("[")
    each = parameters.split("-")
    loop = next((name for name in each if name in (*LOOPS, PEER)), None)
    if loop is None:
        return None
    each.remove(loop)
    return f"{test}[{'-'.join(each)}]", loop


def turn(test: str, loops: set[str]) -> str:
    """Return the event loop, of those that the test is repeated on, that it runs on by default."""
    taker = test if test.startswith(BY_TEST) else test.partition("::")[0]
    first = zlib.crc32(taker.encode()) % len(LOOPS)
    for loop in (*LOOPS[first:], *LOOPS[:first]):
        if loop in loops:
            return loop
    return PEER
