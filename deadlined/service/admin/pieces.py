"""Work on all connections of a process, in pieces between which its event loop serves others.

Facts      A pass over 15,000 connections takes ten milliseconds, or fifty where nothing is compiled.
Hazard     Every client would wait as long, once a second while a live page is open. Work that takes one small piece per
           turn of a busy event loop takes for ever.
Answer     A piece is PIECE connections, and PAUSE follows. The later the event loop comes back from that, because it is
           busy, the larger is the next piece. There are MOST_PIECES at most.
Cost       PAUSE per piece.
"""

from __future__ import annotations

import time
from typing import Final

from ...runtime import current_time
from ...timing import sleep

# connections in a piece: one to three milliseconds
PIECE: Final = 1000

# seconds for others between two pieces
PAUSE: Final = 0.001

# an answer about a hundred thousand connections must not take much longer
MOST_PIECES: Final = 20

# seconds by which the event loop is late for each further PIECE
_LATE: Final = 0.005


class Pieces:
    """The pieces of work on `number` connections, the first of which begins now. `size`: how many connections are in
    the next one."""

    def __init__(self, number: int) -> None:
        self._least = max(PIECE, -(-number // MOST_PIECES))
        self._is_short = number <= PIECE
        self.size: int = self._least
        self._spent = 0.0
        self._begun = time.thread_time()

    @property
    def spent(self) -> float:
        """Seconds of processor time until now, without the pauses."""
        return self._spent + time.thread_time() - self._begun

    async def pause(self) -> None:
        """Let other tasks run after a piece; not if there is only one."""
        if self._is_short:
            return
        self._spent = self.spent
        back_at = current_time() + PAUSE
        await sleep(PAUSE)
        late = max(current_time() - back_at, 0.0)
        self.size = self._least * (1 + int(late / _LATE))
        self._begun = time.thread_time()
