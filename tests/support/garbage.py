"""What only the garbage collector frees: reference cycles."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def leaves_no_garbage(runs: int) -> Iterator[None]:
    """Fail if the `runs` inside, or every second of them, leave the collector something to free.

    What is left fewer times is not theirs: a thread that an earlier test has left ends meanwhile, or the first run
    fills a cache.
    """
    _collect_all()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield
        gc.collect()
        kinds = Counter(type(thing).__name__ for thing in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert {kind: count for kind, count in kinds.items() if 2 * count >= runs} == {}, f"all that was left: {kinds}"


def _collect_all() -> None:
    """Collect what finalisers have brought back to life, or made, too: a few times are enough, as pytest knows."""
    for _ in range(5):
        gc.collect()
