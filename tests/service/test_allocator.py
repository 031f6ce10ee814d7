"""What the C library keeps of the memory that a process has freed. Each case is a process of its own."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

pytestmark = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")

MB = 1 << 20

# 40 MB in blocks that the allocator takes from its heap; prints the megabytes that the process has less when they are
# freed, and when it has given its free memory back
PROGRAM = """
import os, sys
from pathlib import Path
from deadlined.service.allocator import keep_freed_memory, trimmer

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

changed = keep_freed_memory() if sys.argv[1] == "keep" else None
blocks = [b"x" * 100_000 for _ in range(400)]
before = resident()
blocks.clear()
after = resident()
trimmer()()
print(changed, (before - after) >> 20, (before - resident()) >> 20)
"""


def measured(what: str, environment: Mapping[str, str] | None = None) -> tuple[str, int, int]:
    """Run the program, and return what it prints."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", PROGRAM, what]
    output = subprocess.run(command, env=kept | dict(environment or {}), capture_output=True, text=True, check=True)
    changed, freed, trimmed = output.stdout.split()
    return changed, int(freed), int(trimmed)


def test_freed_memory_is_kept_until_it_is_given_back() -> None:
    changed, freed, trimmed = measured("keep")
    assert changed == "True"
    assert freed <= 1
    assert trimmed >= 30


def test_without_it_most_is_given_back_at_once() -> None:
    assert measured("leave")[1] >= 20


@pytest.mark.parametrize(
    "environment",
    [{"MALLOC_TRIM_THRESHOLD_": "131072"}, {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=131072"}],
    ids=["MALLOC_", "GLIBC_TUNABLES"],
)
def test_what_the_environment_sets_stays(environment: Mapping[str, str]) -> None:
    changed, freed, _ = measured("keep", environment)
    assert changed == "False"
    assert freed >= 20
