"""A million timers in one heap: the cost to start, move, stop and fire one, and its memory.

Facts      Timers are started and stopped all the time, and few fire (Varghese and Lauck, SOSP 1987). asyncio uses
           `heapq`: a stopped timer stays in the heap until it is reached, or until half of the heap is stopped.
           Its handles compare in Python; the same heap of tuples, which compare in C, is a contestant of its own.
Hazard     One sum of all phases hides a slow one. An empty callback favours implementations that call it directly.
Answer     The phases are measured apart, one after another on the same timers. Times are random and the same for all
           contestants. "start and fire" can be measured in Go, too: from the first start until all have fired.
Cost       Go runs every AfterFunc in a goroutine of its own, which is part of its figure.

Memory is the growth of the process, including the timer object and the reference that its owner keeps.
"""

from __future__ import annotations

from .programs import Programs

BENCHMARK = Programs("heap")
