"""Fixtures of every test. A test fails if it leaves a descriptor open, or a pump that outlives its run.

A test that has to leave a descriptor open is marked `leaks_fds`.

Property tests draw the same examples in every run, so that a failure comes from the change and not from chance.
`--hypothesis-profile=thorough` draws four times as many, as one session of .ci/run does, and `explore` many new ones;
what it finds becomes an `@example`.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import weakref
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from deadlined.freshness import PACKAGE, RECORD, stale_sources
from deadlined.runtime.forking import inherited
from deadlined.service import ServeConfig
from deadlined.timers import COMPILED
from tests.support.command import Starter, starter
from tests.support.parsers import PARSERS, Choice
from tests.support.tiers import INTEGRATION, left_out, mark_integration, mark_turns

ROOT = Path(__file__).parents[1]

_FDS = "/proc/self/fd"

# how long an example takes depends on the machine
REPEATABLE = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", REPEATABLE, max_examples=25)
settings.register_profile("thorough", REPEATABLE, max_examples=100)
settings.register_profile("explore", max_examples=1000, deadline=None)
settings.load_profile("repeatable")


def pytest_configure() -> None:
    refuse_a_stale_build()
    open_what_libuv_keeps()
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # a shell that starts a command in the background makes it ignore Ctrl-C, which the tests send
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        # so does nohup with the end of a terminal
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def open_what_libuv_keeps() -> None:
    """Make uvloop's first loop: libuv opens a pipe then that belongs to the process, not to a test."""
    with contextlib.suppress(ImportError):
        import uvloop

        uvloop.new_event_loop().close()


def refuse_a_stale_build() -> None:
    """Stop before any test if the compiled modules beside the sources were made of other sources."""
    if not COMPILED or PACKAGE.parent != ROOT:
        return
    recorded = (PACKAGE / RECORD).exists()
    if stale := stale_sources() if recorded else ["no record of what was compiled"]:
        raise pytest.UsageError(
            f"the compiled modules are older than the sources ({', '.join(stale)}). Build again (pip install -e .) "
            "or interpret them (DEADLINED_PURE=1 pip install -e .)"
        )


def pytest_xdist_auto_num_workers() -> int:
    """Return three processes for two processors with `-n auto`: many tests wait for a process, a peer or the kernel."""
    processors = len(os.sched_getaffinity(0))
    return processors + processors // 2


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without looking for garbage: there is little among a million objects, and it is a third of the
    time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests before pytest selects by marks."""
    mark_turns(items)
    mark_integration(items)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files of which no test is selected: they may need packages of the extra `integration`."""
    return left_out(collection_path, ROOT, config.option.markexpr) or None


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int | pytest.ExitCode, config: pytest.Config
) -> None:
    """Say what was left out, unless tests were named and found."""
    expression = config.option.markexpr
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    found = exitstatus != pytest.ExitCode.NO_TESTS_COLLECTED
    if left_out(ROOT / INTEGRATION[0], ROOT, expression) and not (named and found):
        terminalreporter.write_line(
            f"left out ({expression}): {len(INTEGRATION)} files and folders were not read; see tests/support/tiers.py"
        )


def pytest_collection_finish() -> None:
    """Leave what was imported and collected, a million objects, out of every garbage collection of a test."""
    gc.collect()
    gc.freeze()


def _open_descriptors() -> set[tuple[str, str]]:
    """Return each open descriptor with what it refers to, so that a number that was used again counts as new."""
    found = set()
    for number in os.listdir(_FDS):  # noqa: PTH208, a fifth of pathlib's time, twice per test
        try:
            found.add((number, os.readlink(f"{_FDS}/{number}")))  # noqa: PTH115, the same
        except FileNotFoundError:
            # the descriptor of the listing itself
            continue
    return found


@pytest.fixture(autouse=True)
def leaves_nothing_open(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test that leaks a descriptor (on Linux) or a pump."""
    tolerant = sys.platform != "linux" or request.node.get_closest_marker("leaks_fds") is not None
    # not kept alive: what a test before has left may be garbage that is not collected yet
    hosts = weakref.WeakSet(inherited())
    before = set() if tolerant else _open_descriptors()
    yield
    running = [host for host in inherited() if host not in hosts and host.is_open()]
    assert not running, "a pump outlives its run"
    if tolerant or _open_descriptors() <= before:
        return
    # a descriptor that only garbage holds is not leaked: a socket's ResourceWarning is an error already
    gc.collect()
    leaked = _open_descriptors() - before
    assert not leaked, f"the test leaks descriptors: {sorted(leaked)}"


@pytest.fixture(scope="session", autouse=True)
def processes_share_bytecode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the processes that tests start keep their bytecode among the files of this run, if Python is to keep none.

    Hundreds start, and each would compile the package again.
    """
    with pytest.MonkeyPatch.context() as patch:
        if sys.dont_write_bytecode and "PYTHONPYCACHEPREFIX" not in os.environ:
            folder = tmp_path_factory.getbasetemp()
            shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
            patch.setenv("PYTHONPYCACHEPREFIX", str(shared / "bytecode"))
            patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield


@pytest.fixture(params=PARSERS)
def parser(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test once with each parser."""
    Choice.name = request.param
    yield Choice.name
    Choice.name = "auto"


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[ServeConfig]:
    """What the command would serve with, instead of serving."""
    configs: list[ServeConfig] = []

    def serve(config: ServeConfig, sources: object) -> int:
        configs.append(config)
        return 0

    monkeypatch.setattr("deadlined.cli.outcome.serve", serve)
    return configs


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    """Give `start(*arguments)`, which runs `deadlined serve` until the test ends."""
    with starter(tmp_path) as start:
        yield start
