"""What the C library keeps of the memory that a process has freed. Each case is a process of its own."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

pytestmark = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")

# 40 MB in blocks of C's own, which the allocator takes from its heap, and nothing else comes to lie above them. Prints
# the megabytes by which the process has grown when they are freed, and when it has given its free memory back
PROGRAM = """
import ctypes, os, sys
from pathlib import Path
from deadlined.service.process.allocator import keep_freed_memory, trimmer

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
changed = keep_freed_memory() if sys.argv[1] == "keep" else None
trim = trimmer()
blocks = [0] * 400
trim()
before = resident()
for index in range(len(blocks)):
    blocks[index] = libc.malloc(100_000)
    libc.memset(blocks[index], 1, 100_000)
while blocks:
    libc.free(blocks.pop())
after = resident()
trim()
print(changed, (after - before) >> 20, (resident() - before) >> 20)
"""


def measured(what: str, environment: Mapping[str, str] | None = None) -> tuple[str, int, int]:
    """Run the program, and return what it prints."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", PROGRAM, what]
    output = subprocess.run(
        command, env=inherited | dict(environment or {}), capture_output=True, text=True, check=True
    )
    changed, kept, left = output.stdout.split()
    return changed, int(kept), int(left)


def test_freed_memory_is_kept_until_it_is_given_back() -> None:
    changed, kept, left = measured("keep")
    assert changed == "True"
    assert kept >= 35
    assert left <= 5


def test_without_it_most_is_given_back_at_once() -> None:
    assert measured("leave")[1] <= 20


@pytest.mark.parametrize(
    "environment",
    [{"MALLOC_TRIM_THRESHOLD_": "131072"}, {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=131072"}],
    ids=["MALLOC_", "GLIBC_TUNABLES"],
)
def test_what_the_environment_sets_stays(environment: Mapping[str, str]) -> None:
    changed, kept, _ = measured("keep", environment)
    assert changed == "False"
    assert kept <= 5
