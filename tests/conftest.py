"""What every test must leave behind: nothing. No open descriptor, and no pump that outlives its run.

A test that has to leave a descriptor open says so with `@pytest.mark.leaks_fds`.

Property tests draw the same examples in every run, so that a failure is the change's and nobody's luck. New ones are
looked for with `--hypothesis-profile=explore`, and what it finds becomes an `@example`.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import deadlined.runtime.pump
from deadlined.freshness import PACKAGE, RECORD, stale_sources
from deadlined.timers import COMPILED
from tests.support.command import Starter, starter
from tests.support.parsers import PARSERS, Choice

ROOT = Path(__file__).parents[1]

_FDS = "/proc/self/fd"

# the time that an example takes is the machine's affair
settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", max_examples=1000, deadline=None)
settings.load_profile("repeatable")


def pytest_configure() -> None:
    refuse_a_stale_build()
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # started in the background by a shell, which ignores Ctrl-C for this process and its children; the tests send
        # it
        signal.signal(signal.SIGINT, signal.default_int_handler)


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


def _open_descriptors() -> set[tuple[str, str]]:
    """Each open descriptor and what it stands for, so that a number which came again is told from the old one."""
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
    pumps = set(deadlined.runtime.pump._alive)
    before = set() if tolerant else _open_descriptors()
    yield
    running = [pump for pump in deadlined.runtime.pump._alive if pump not in pumps and not pump._poller._closed]
    assert not running, "a pump outlives its run"
    if tolerant or _open_descriptors() <= before:
        return
    # what only garbage holds is not leaked: a socket there has its ResourceWarning, and that is an error already
    gc.collect()
    leaked = _open_descriptors() - before
    assert not leaked, f"the test leaks descriptors: {sorted(leaked)}"


@pytest.fixture(params=PARSERS)
def parser(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test runs once with each parser of heads."""
    Choice.name = request.param
    yield Choice.name
    Choice.name = "auto"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    """`start(*arguments)` runs `deadlined serve` until the test is over."""
    with starter(tmp_path) as start:
        yield start
