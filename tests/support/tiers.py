"""Which tests run by default, and which in the two tiers above, which are marked `integration` and `thorough`.

The default tier takes two minutes, with its installation. What needs packages of other projects beyond those of the
extra `test`, or starts many processes, is marked `integration` below, by the beginnings of names. Whole files of it are
not even imported by default, so that their packages need not be there; pytest says so at its end.

Many tests are repeated: for each event loop, where a server that is a process costs a second of a processor for each,
or for each parser, where they are not about what a parser reads. Those of the folders below run by default with one of
them, and with all in the thorough tier. The modules, or the tests of a module, take turns, so that by default, too,
each event loop and each parser serves some of them. A module's tests stay on one event loop if they share a server.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

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

# Files, and folders of them. Frameworks, databases, browsers and other clients, web servers in front; the load test,
# which is no part of the package; what follows a document step by step; many processes, often under load.
INTEGRATION = (
    "tests/applications/",
    "tests/asgi/test_frameworks.py",
    "tests/asgi/test_isolation_under_load.py",
    "tests/examples/",
    "tests/loadtest/",
    "tests/service/admin/test_processes.py",
    "tests/service/serving/test_drain_under_load.py",
    "tests/service/log/test_full_disk.py",
    "tests/service/command/test_guarding.py",
    "tests/service/command/test_guarding_tcp.py",
    "tests/service/workers/test_hanging.py",
    "tests/service/process/test_hangup.py",
    "tests/service/content/test_lifespan.py",
    "tests/service/test_misbehaviour.py",
    "tests/service/process/test_notify.py",
    "tests/service/log/test_output.py",
    "tests/service/test_permissions.py",
    "tests/service/test_reload.py",
    "tests/service/serving/test_restarting.py",
    "tests/service/workers/test_rolling_under_load.py",
    "tests/service/serving/test_starting.py",
    "tests/service/test_terminal.py",
    "tests/service/tls/test_tls_clients.py",
    "tests/service/workers/test_supervisor.py",
    "tests/test_cli.py",
    "tests/test_documented_tests.py",
    "tests/test_end_to_end.py",
    "tests/test_examples.py",
    "tests/test_examples_interrupted.py",
    "tests/test_tutorial.py",
    *(
        f"tests/websockets/test_{name}.py"
        for name in ("channels", "chat", "chromium", "clients", "fastapi", "floods", "litestar", "quart", "starlette")
    ),
)

# beginnings of the names of single tests: what needs a framework, and what waits for seconds of real time
INTEGRATION_TESTS = (
    "tests/asgi/test_websocket_loops.py::test_a_drain_closes_every_websocket_and_ends",
    "tests/conformance/test_handlers.py::test_work_after_the_response_does_not_hold_the_connection",
    "tests/conformance/test_http.py::test_a_drain_waits_for_the_handlers_that_run[uvloop",
    "tests/conformance/test_http.py::test_a_handler_that_swallows_its_cancellation_does_not_hold_the_end_for_ever[uvloop",
    "tests/conformance/test_task_reuse.py::test_a_deadline_cancels_its_own_handler_alone",
    "tests/conformance/test_task_reuse.py::test_no_request_waits_for_one_that_sleeps",
    "tests/net/test_tls_conn.py::test_it_keeps_the_contract_of_a_half_closeable_stream",
    "tests/service/process/test_garbage.py::test_what_handlers_hold_that_were_cut_is_freed_without_any_growth",
    "tests/service/process/test_stalls.py::test_the_log_says_once_where_the_application_blocks",
    "tests/service/content/test_loading.py::test_what_is_no_application_is_refused_with_what_to_give[django",
    "tests/service/content/test_loading.py::test_what_is_no_application_is_refused_with_what_to_give[flask",
)

# the repetitions of a test, but for one
REPEATED_IN_INTEGRATION = (
    "tests/asgi/test_disconnect.py::test_a_client_that_leaves_cancels_what_runs_for_it",
    "tests/conformance/test_never_early.py::test_no_deadline_fires_early_in_a_busy_loop",
)

# the load test, which is no part of the package, against servers that it starts
THOROUGH = tuple(f"tests/loadtest/test_{name}.py" for name in ("bench_servers", "check_command", "openloop_servers"))

# each repetition starts a process of its own, and shows little that the others do not: one of them runs by default
ONE_BY_DEFAULT = (
    "tests/applications/test_wrong_loop.py::test_the_log_names_the_loop_that_is_needed_once",
    "tests/service/admin/test_processes.py::test_a_start_that_fails_leaves_no_socket_behind",
    "tests/service/admin/test_processes.py::test_wrong_arguments_are_one_line",
    "tests/service/listening/test_binding.py::test_a_place_that_does_not_exist_is_one_line_and_3",
    "tests/service/log/test_output.py::test_a_broken_stdout_costs_neither_a_request_nor_the_drain_nor_the_exit_code",
    "tests/service/log/test_output.py::test_a_supervisor_with_a_broken_stdout_replaces_and_drains",
    "tests/service/serving/test_restarting.py::test_what_cannot_be_reloaded_ends_it_with_2",
    "tests/service/test_terminal.py::test_a_startup_that_fails_is_shown_from_the_application_on",
    "tests/service/test_terminal.py::test_colours_are_as_the_environment_wants",
    "tests/service/workers/test_supervisor.py::test_a_worker_that_has_ended_is_replaced",
    "tests/test_cli.py::test_a_wrong_argument_ends_it_with_2",
    "tests/test_cli.py::test_who_may_connect_to_the_unix_socket_is_an_option",
)


def left_out(path: Path, root: Path, expression: str) -> bool:
    """Tell whether no test of this file or folder can be selected by this expression of marks."""
    if "not integration" not in expression:
        return False
    name = path.relative_to(root).as_posix() + ("/" if path.is_dir() else "")
    return name in INTEGRATION


def mark_integration(items: Sequence[pytest.Item]) -> None:
    """Mark what belongs to the tier `integration`."""
    seen: set[str] = set()
    for item in items:
        test = item.nodeid.partition("[")[0]
        if item.nodeid.startswith(INTEGRATION + INTEGRATION_TESTS) or test in seen:
            item.add_marker(pytest.mark.integration)
        elif test in REPEATED_IN_INTEGRATION and item.get_closest_marker("thorough") is None:
            seen.add(test)


def mark_turns(items: Sequence[pytest.Item]) -> None:
    """Mark as thorough the repetitions of a test whose turn it is not, and what is listed as such."""
    repeated = [(item, test, choice) for item in items for test, choice in repetitions(item.nodeid)]
    choices: dict[str, set[str]] = {}
    for _, test, choice in repeated:
        choices.setdefault(test, set()).add(choice)
    for item, test, choice in repeated:
        if choice != turn(test, choices[test]):
            item.add_marker(pytest.mark.thorough)
    seen: set[str] = set()
    for item in items:
        test = item.nodeid.partition("[")[0]
        if test in seen or test.startswith(THOROUGH):
            item.add_marker(pytest.mark.thorough)
        elif test in ONE_BY_DEFAULT and item.get_closest_marker("thorough") is None:
            seen.add(test)


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
