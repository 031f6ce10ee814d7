"""The cases of the Autobahn test suite: the library's own server proves the table, and ours passes it."""

from __future__ import annotations

import pytest

from tests.applications.running import Server

from .autobahn import closing, deflate, framing, limits, utf8
from .autobahn.case import Case, run

CASES = [*framing.CASES, *utf8.CASES, *closing.CASES, *limits.CASES]


def test_the_table_has_every_case_once() -> None:
    names = [case.name for case in CASES] + [case.name for case in deflate.CASES]
    assert len(names) == len(set(names))
    assert len([name for name in names if name.replace(".", "").isdigit()]) == 508


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_table_is_right_of_the_library(reference: Server, case: Case) -> None:
    run(case, reference.port)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_case(server: Server, case: Case) -> None:
    run(case, server.port)


@pytest.mark.thorough
@pytest.mark.parametrize("case", deflate.CASES, ids=[case.name for case in deflate.CASES])
def test_the_table_of_compression_is_right_of_the_library(reference: Server, case: deflate.DeflateCase) -> None:
    deflate.run(case, reference.port)


# compression is the same on every event loop
@pytest.mark.parametrize("loop", ["trio"], indirect=True)
@pytest.mark.parametrize("case", deflate.CASES, ids=[case.name for case in deflate.CASES])
def test_a_case_of_compression(server: Server, case: deflate.DeflateCase) -> None:
    deflate.run(case, server.port)
