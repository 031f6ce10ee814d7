"""Timers for programs without an event loop: one thread for all of them, where `threading.Timer` has one for each.

    with TimerThread() as timers:
        watchdog = timers.after_func(5.0, process.kill)
        process.wait()
        if not watchdog.stop():
            print("it took too long")

Facts      10,000 `threading.Timer`s are 10,000 threads. Go up to 1.9 had one heap and one `timerproc` for any number
           of timers, Go 1.10 had 64 of them; 10,000 `AfterFunc`s added one goroutine. Most timers are stopped.
Hazard     A timer that is stopped while it is being fired: was the function called or not? A callback that raises,
           blocks, or starts and closes what it runs in. A lock held while a user's code runs; a finaliser is such code,
           and runs wherever Python collects garbage. A fork, which copies the timers and not the thread; an exit, which
           stops the thread and not the timers.
Answer     The thread sleeps until the earliest time (`sleeping`) or without end (`parked`), and only an earlier timer
           wakes it. Due timers are collected and then claimed one by one, under the lock; the calls are made without
           it. A stop and a claim both take the item of the handle's ticket, which is atomic: exactly one of them wins.
Cost       One lock and one thread for all callbacks of a bucket: one that blocks for a second delays the others of its
           bucket by a second, and no other bucket. A hand-over between threads for every sleep that ends.

Locks, for builds with and without the GIL: a bucket's lock guards its timers, what is due, its counts and its thread,
and the handles that are armed in it, except for the items of their tickets. Nothing else is called with it held, and no
reference to a user's object is dropped under it. `registry` guards the set of all buckets and lets one `take` run at a
time; it comes before a bucket's lock. No bucket's lock is waited for with another one held, except by `take`.
`TimerHandle.stop` and `TimerThread.close(wait=False)` wait for no lock: finalisers and signal handlers may call these
two, and nothing else of this package.
"""

from __future__ import annotations

from .bucket import BucketStatistics, State
from .handle import TimerHandle
from .timer_thread import TimerThread, TimerThreadStatistics

__all__ = ["BucketStatistics", "State", "TimerHandle", "TimerThread", "TimerThreadStatistics"]
