"""Which tests run by default, and which in the thorough tier only: those that are marked `thorough`.

Many tests are repeated: for each event loop, where a server that is a process costs a second of a processor for each,
or for each parser, where they are not about what a parser reads. Those of the folders below run by default with one of
them, and with all in the thorough tier. The modules, or the tests of a module, take turns, so that by default, too,
each event loop and each parser serves some of them. A module's tests stay on one event loop if they share a server.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import pytest

from tests.support.parsers import PARSERS

LOOPS = ("trio", "asyncio", "uvloop")

# another server, with which ours is compared: never the only one that a test runs on by default
PEER = "uvicorn"

# who takes turns, by how their names begin
LOOPS_BY_MODULE = ("tests/applications/", "tests/websockets/")
LOOPS_BY_TEST = (
    "tests/service/",
    "tests/websockets/test_autobahn.py",
    "tests/conformance/test_loops.py::test_ctrl_c_ends_a_run_in_order",
)
PARSERS_BY_TEST = ("tests/asgi/", "tests/service/")


def mark_turns(items: Iterable[pytest.Item]) -> None:
    """Mark as thorough the repetitions of a test whose turn it is not."""
    repeated = [(item, test, choice) for item in items for test, choice in repetitions(item.nodeid)]
    choices: dict[str, set[str]] = {}
    for _, test, choice in repeated:
        choices.setdefault(test, set()).add(choice)
    for item, test, choice in repeated:
        if choice != turn(test, choices[test]):
            item.add_marker(pytest.mark.thorough)


def repetitions(nodeid: str) -> list[tuple[str, str]]:
    """Return, for each choice that the test takes turns in, the test without it, and what this repetition has chosen.

    The name of the test ends with the kind of the choice.
    """
    found = []
    test, _, parameters = nodeid.rstrip("]").partition("[")
    for prefixes, choices in (
        (LOOPS_BY_MODULE + LOOPS_BY_TEST, (*LOOPS, PEER)),
        (PARSERS_BY_TEST, PARSERS),
    ):
        each = parameters.split("-")
        choice = next((name for name in each if name in choices), None)
        if choice is not None and nodeid.startswith(prefixes):
            each.remove(choice)
            found.append((f"{test}[{'-'.join(each)}]{choices[0]}", choice))
    return found


def turn(test: str, choices: set[str]) -> str:
    """Return the one of the choices, event loops or parsers, that the test runs with by default."""
    order = PARSERS if choices & set(PARSERS) else LOOPS
    by_module = order is LOOPS and not test.startswith(LOOPS_BY_TEST)
    taker = test.partition("::")[0] if by_module else test
    first = zlib.crc32(taker.encode()) % len(order)
    for choice in (*order[first:], *order[:first]):
        if choice in choices:
            return choice
    return PEER
