"""What the C library's allocator does with memory that a serving process has freed.

Facts      glibc gives memory back to the system as soon as 128 KiB at the end of its heap are free, and makes a mapping
           of its own for each block of that size. A process that has ever freed such a block has higher limits, up to
           KEPT: the allocator learns from it. Many applications free none.
Hazard     A response of 100 kB then takes its memory from the system, page by page, and gives it back, each time: a
           quarter of the time of such a request.
Answer     The limits are the highest that the allocator could learn, from the start. Memory beyond that is given back
           when the process has grown (`GarbageWatch`).
Cost       Up to KEPT free bytes stay with the process.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

# bytes at the end of the heap; a block of more than half of that has a mapping of its own. Glibc's own largest values
KEPT = 64 << 20

# of glibc's <malloc.h>
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def keep_freed_memory() -> bool:
    """Let the process keep up to KEPT bytes that it has freed, and return whether it does.

    False, and nothing changes, with another C library, or if the environment configures glibc's allocator.
    """
    chosen = any(name.startswith("MALLOC_") for name in os.environ) or "GLIBC_TUNABLES" in os.environ
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    return not chosen and bool(mallopt(_M_TRIM_THRESHOLD, KEPT) and mallopt(_M_MMAP_THRESHOLD, KEPT // 2))


def trimmer() -> Callable[[], object]:
    """Return a call of glibc's malloc_trim; with another C library, a function that does nothing."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:
        return lambda: None
    return lambda: trim(0)
