"""What runs by default of the tests that are repeated for each event loop."""

from __future__ import annotations

import pytest

from tests.support.tiers import LOOPS, PEER, loop_of, turn


@pytest.mark.parametrize(
    ("nodeid", "found"),
    [
        ("tests/service/test_a.py::test_b[trio]", ("tests/service/test_a.py::test_b[]", "trio")),
        ("tests/websockets/test_a.py::test_b[x-uvloop-y]", ("tests/websockets/test_a.py::test_b[x-y]", "uvloop")),
        ("tests/applications/test_a.py::test_b[uvicorn]", ("tests/applications/test_a.py::test_b[]", "uvicorn")),
        ("tests/applications/test_a.py::test_b", None),
        ("tests/applications/test_a.py::test_b[trios]", None),
        ("tests/http/test_a.py::test_b[trio]", None),
    ],
)
def test_the_event_loop_of_a_test_is_one_of_its_parameters(nodeid: str, found: tuple[str, str] | None) -> None:
    assert loop_of(nodeid) == found


@pytest.mark.parametrize("folder", ["applications", "service", "websockets"])
def test_each_event_loop_has_its_turn(folder: str) -> None:
    turns = [turn(f"tests/{folder}/test_{number}.py::test[]", set(LOOPS)) for number in range(50)]
    assert set(turns) == set(LOOPS)


def test_the_tests_of_a_module_share_a_server_and_those_of_autobahn_do_not() -> None:
    tests = [f"::test_a_case[{number}]" for number in range(50)]
    assert len({turn(f"tests/websockets/test_floods.py{test}", set(LOOPS)) for test in tests}) == 1
    assert {turn(f"tests/websockets/test_autobahn.py{test}", set(LOOPS)) for test in tests} == set(LOOPS)


@pytest.mark.parametrize("loops", [{"trio"}, {"uvloop"}, {"asyncio", "uvloop"}, {*LOOPS, PEER}, {PEER}])
def test_a_test_runs_on_one_that_it_is_made_for_and_on_another_server_only_if_there_is_no_choice(
    loops: set[str],
) -> None:
    for number in range(50):
        chosen = turn(f"tests/websockets/test_{number}.py::test[]", loops)
        assert chosen in loops
        assert chosen != PEER or loops == {PEER}
