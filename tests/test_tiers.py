"""What runs by default of the tests that are repeated for each event loop, or for each parser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.parsers import PARSERS
from tests.support.tiers import (
    INTEGRATION,
    INTEGRATION_TESTS,
    LOOPS,
    ONE_BY_DEFAULT,
    PEER,
    REPEATED_IN_INTEGRATION,
    THOROUGH,
    left_out,
    repetitions,
    turn,
)

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("nodeid", "found"),
    [
        ("tests/service/test_a.py::test_b[trio]", [("tests/service/test_a.py::test_b[]trio", "trio")]),
        ("tests/websockets/test_a.py::test_b[x-uvloop-y]", [("tests/websockets/test_a.py::test_b[x-y]trio", "uvloop")]),
        ("tests/applications/test_a.py::test_b[uvicorn]", [("tests/applications/test_a.py::test_b[]trio", "uvicorn")]),
        ("tests/asgi/test_a.py::test_b[h11-c]", [("tests/asgi/test_a.py::test_b[c]h11", "h11")]),
        ("tests/applications/test_a.py::test_b", []),
        ("tests/applications/test_a.py::test_b[trios]", []),
        ("tests/http/test_a.py::test_b[trio-h11]", []),
        ("tests/asgi/test_a.py::test_b[trio]", []),
    ],
)
def test_a_choice_is_one_of_the_parameters(nodeid: str, found: list[tuple[str, str]]) -> None:
    assert repetitions(nodeid) == found


@pytest.mark.parametrize("folder", ["applications", "service", "websockets"])
def test_each_event_loop_has_its_turn(folder: str) -> None:
    turns = [turn(f"tests/{folder}/test_{number}.py::test[]trio", set(LOOPS)) for number in range(50)]
    assert set(turns) == set(LOOPS)


def test_each_parser_has_its_turn() -> None:
    assert {turn(f"tests/asgi/test_a.py::test[{number}]h11", set(PARSERS)) for number in range(50)} == set(PARSERS)


def test_the_tests_of_a_module_share_a_server_and_those_of_autobahn_do_not() -> None:
    tests = [f"::test_a_case[{number}]trio" for number in range(50)]
    assert len({turn(f"tests/websockets/test_floods.py{test}", set(LOOPS)) for test in tests}) == 1
    assert {turn(f"tests/websockets/test_autobahn.py{test}", set(LOOPS)) for test in tests} == set(LOOPS)


@pytest.mark.parametrize("loops", [{"trio"}, {"uvloop"}, {"asyncio", "uvloop"}, {*LOOPS, PEER}, {PEER}])
def test_another_server_is_chosen_only_if_there_is_no_other_choice(loops: set[str]) -> None:
    for number in range(50):
        chosen = turn(f"tests/websockets/test_{number}.py::test[]trio", loops)
        assert chosen in loops
        assert chosen != PEER or loops == {PEER}


DEFAULT = "not timed and not thorough and not integration"


def test_the_default_tier_is_that_of_the_options(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.getini("addopts")[-2:] == ["-m", DEFAULT]


@pytest.mark.parametrize("name", INTEGRATION)
def test_a_file_of_the_tier_integration_is_read_unless_it_is_deselected(name: str) -> None:
    assert (ROOT / name).exists()
    assert (ROOT / name).is_dir() == name.endswith("/")
    assert left_out(ROOT / name, ROOT, DEFAULT)
    for expression in ("", "not timed", "not timed and not thorough", "integration and not timed", "timed"):
        assert not left_out(ROOT / name, ROOT, expression)


@pytest.mark.parametrize("name", ["tests/", "tests/service/", "tests/http/", "tests/test_tiers.py"])
def test_what_has_tests_of_the_default_tier_is_read(name: str) -> None:
    assert not left_out(ROOT / name, ROOT, DEFAULT)


@pytest.mark.parametrize("test", [*ONE_BY_DEFAULT, *REPEATED_IN_INTEGRATION, *INTEGRATION_TESTS])
def test_a_test_that_is_named_is_there(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text()


@pytest.mark.parametrize("file", THOROUGH)
def test_a_file_that_does_not_run_by_default_is_there(file: str) -> None:
    assert (ROOT / file).is_file()
