"""A binary min-heap of timers: scheme 3 of Varghese and Lauck, libevent's and Java's.

Facts      A binary heap is what textbooks and most event loops use: libevent's minheap-internal.h, the DelayedWorkQueue
           of Java's ScheduledThreadPoolExecutor, asyncio's and trio's by way of `heapq`. The first two let each
           entry know its index, so that a cancelled one can be taken from the middle.
Hazard     log2 n levels: twice as many steps, and cache misses, on the way up and down as a 4-ary heap.
Answer     None; it stands here as the measure of the default. Only two children a level are compared.
Cost       START O(log2 n), STOP O(1) lazily, check O(1), extract O(log n) per due timer, sweep O(n).
"""

from __future__ import annotations

from .heap import Heap
from .timer import Timer


class Heap2(Heap):
    """Parent `(i-1)//2`, children `2i+1` and `2i+2`."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(2)

    def _sift_up(self, index: int, key: float, timer: Timer) -> None:
        keys = self._keys
        timers = self._timers
        order = timer.order
        while index > 0:
            parent = (index - 1) // 2
            parent_key = keys[parent]
            if key > parent_key or (key == parent_key and order > timers[parent].order):
                break
            moved = timers[parent]
            keys[index] = parent_key
            timers[index] = moved
            moved.index = index
            index = parent
        keys[index] = key
        timers[index] = timer
        timer.index = index

    def _sift_down(self, index: int, key: float, timer: Timer) -> None:
        keys = self._keys
        timers = self._timers
        size = len(keys)
        order = timer.order
        child = 2 * index + 1
        while child < size:
            child_key = keys[child]
            right = child + 1
            if right < size:
                right_key = keys[right]
                if right_key < child_key or (right_key == child_key and timers[right].order < timers[child].order):
                    child = right
                    child_key = right_key
            if key < child_key or (key == child_key and order < timers[child].order):
                break
            moved = timers[child]
            keys[index] = child_key
            timers[index] = moved
            moved.index = index
            index = child
            child = 2 * index + 1
        keys[index] = key
        timers[index] = timer
        timer.index = index
