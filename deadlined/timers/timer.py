"""One runtime timer: a callback that is wanted at a time, and the entry that stands for it in a queue.

Facts      Most timeouts are moved or cancelled long before they fire (Varghese and Lauck, SOSP 1987), and a
           server moves one on every read and write.
Hazard     Telling the queue of each move costs O(log n) per packet, for timers that will never fire.
Answer     A timer keeps two times: `when` it is wanted and the `key` at which its entry is filed, with
           `key <= when`. Moving it later is a store to `when`; the queue hears of it only when the key comes.
Cost       One wake-up and one re-filing per old key that passes, instead of one heap operation per move.

State follows from the two times, so it cannot disagree with them:

    key       when      the timer is
    inf       inf       idle: no entry, not wanted
    finite    finite    pending
    finite    inf       a zombie: stopped, its entry still stored
    inf       finite    due again within the check that is running, about to be filed anew
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

INF: Final = math.inf

Callback = Callable[[Any, int, float], object]


class Timer:
    """A callback and the time at which it is wanted; `Timers` files it and calls it.

    `callback(arg, seq, lateness)` is called synchronously by `Timers.check`. It must be short and must not
    block. `seq` is the owner's generation number as it stands when the timer is taken out of its queue, so that
    an owner that bumps `timer.seq` on every change recognises a firing that was overtaken. `lateness` is in
    seconds, never negative.

    While a timer is pending its owner may store any finite value `>= timer.key` to `timer.when`: that is the lazy
    extension, and needs no call. Everything else goes through `Timers.modify` and `Timers.stop`. The other
    fields belong to the facility and its queue: read them, do not write them.
    """

    __slots__ = (
        "arg",
        "armed_in",
        "callback",
        "due",
        "index",
        "key",
        "order",
        "owner",
        "period",
        "seq",
        "slot",
        "when",
    )

    def __init__(self, callback: Callback, arg: Any = None) -> None:
        self.callback: Callback = callback
        self.arg: Any = arg
        self.seq: int = 0
        self.when: float = INF
        self.period: float = 0.0
        # the time for which it last fired, -inf if it has not
        self.due: float = -INF
        # Where the entry is filed and its rank among equal keys.
        self.key: float = INF
        self.order: int = 0
        # The queue's own notes: the entry's place there (-1: none), and for queues made of several bags the bag that
        # this place is in (-1: none). What a place is, each queue says.
        self.index: int = -1
        self.slot: int = -1
        # The facility that holds or last held the entry, and its check during which the timer was last armed.
        self.owner: object = None
        self.armed_in: int = -1

    @property
    def pending(self) -> bool:
        """True from `modify` until the timer fires for the last time or is stopped."""
        return self.when < INF

    @property
    def zombie(self) -> bool:
        """True while the timer is stopped but its entry is still stored."""
        return self.key < INF and self.when == INF

    def __repr__(self) -> str:
        state = "zombie" if self.zombie else f"when={self.when!r}" if self.pending else "idle"
        return f"<{type(self).__name__} {state} seq={self.seq}>"
