"""The timer queues by name: what `Timers(queue=...)` and DEADLINED_QUEUE may choose.

| name | order, lateness | START | for |
|---|---|---|---|
| `heap4` | exact | O(log n) | everything: the default |
| `heap2` | exact | O(log n) | comparison |
| `tree` | exact | O(log n) | comparison |
| `sorted` | exact | O(n) | a few dozen timers |
| `unsorted` | exact | O(1) | a handful of timers |
| `wheel` | below one tick | O(1) up to 4 s | short timeouts |
| `hashed` | below one tick | O(1) | many timers of one length |
| `hierarchical` | below one tick | O(1) | many timers of all lengths |
| `kernel` | below one tick and an eighth of the delay | O(1) | many timeouts that rarely come |

A tick is 1/1024 of a second. For another one, put a scheme of your own here: `SCHEMES["coarse"] = CoarseWheel`, where
calling the value makes one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .hashed import HashedWheel
from .heap2 import Heap2
from .heap4 import Heap4
from .hierarchical import HierarchicalWheel
from .kernel import KernelWheel
from .ordered import SortedList
from .scheme import Scheme
from .tree import Tree
from .unsorted import UnsortedList
from .wheel import SimpleWheel

SCHEMES: Final[dict[str, Callable[[], Scheme]]] = {
    "heap4": Heap4,
    "heap2": Heap2,
    "unsorted": UnsortedList,
    "sorted": SortedList,
    "tree": Tree,
    "wheel": SimpleWheel,
    "hashed": HashedWheel,
    "hierarchical": HierarchicalWheel,
    "kernel": KernelWheel,
}


def check_queue(name: str) -> str:
    """Return `name`. ValueError, with all names, unless it is a key of `SCHEMES`."""
    if name not in SCHEMES:
        raise ValueError(f"unknown timer queue {name!r}: choose one of {', '.join(sorted(SCHEMES))}")
    return name
