"""The connections whose output is kept until the end of the event loop's turn, and when it must not be kept.

Facts      On one machine, each response that is sent alone wakes its client.
Hazard     While a handler blocks the event loop, output that waits for the end of the turn waits for the handler.
Answer     Output is sent when the turn ends, and when more comes and the first has waited for _LONGEST_TURN. After a
           block each response is sent at once for a while.
Cost       One look at the clock per response.
"""

from __future__ import annotations

import logging
from typing import Final

from ..poll import Clock
from .base import ConnectionBase
from .reporting import report
from .timeouts import INF

# seconds for which responses may wait for the end of the turn while others join them
_LONGEST_TURN: Final = 0.0005

# a handler that runs for longer blocks the event loop, and the responses that wait for the end of its turn with it
_BLOCKED: Final = 0.005

# after a block, responses are sent at once for _AFTER_BLOCK_TIMES as long as it has lasted, but for _AFTER_BLOCK_MOST
# seconds at most: the next block may be near; but if none comes, sending each response alone costs up to half of the
# rate
_AFTER_BLOCK_TIMES: Final = 50
_AFTER_BLOCK_MOST: Final = 1.0

# what `add` returns: the output must be sent at once; it is the first that is kept; others are kept already
AT_ONCE: Final = 0
FIRST: Final = 1
JOINED: Final = 2


class Unsent:
    """The connections with output that is kept in this turn. The caller that adds the first one has `flush` called at
    the end of the turn."""

    __slots__ = ("_at_once_since", "_at_once_until", "_clock", "_connections", "_since")

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._connections: list[ConnectionBase] = []
        # when the first of them was added
        self._since = INF
        # until when each response is sent at once
        self._at_once_until = -INF
        # when a response was last sent at once, or flushed
        self._at_once_since = -INF

    def add(self, connection: ConnectionBase) -> int:
        """Keep the output of `connection`, and return FIRST or JOINED. Return AT_ONCE if it must be sent now, because
        handlers block. If what is kept has waited for _LONGEST_TURN, flush it first."""
        now = self._clock.now()
        if now < self._at_once_until:
            # a gap is a further block, or the load is so low that sending together gains nothing
            self._note_block(self._at_once_since, now)
            self._at_once_since = now
            return AT_ONCE
        if not self._connections:
            self._since = now
            self._connections.append(connection)
            return FIRST
        if now - self._since > _LONGEST_TURN:
            self.flush()
            return self.add(connection)
        self._connections.append(connection)
        return JOINED

    def flush(self) -> None:
        """Let all connections send what they have kept."""
        if self._connections:
            self._at_once_since = self._clock.now()
            self._note_block(self._since, self._at_once_since)
            kept, self._connections = self._connections, []
            for connection in kept:
                try:
                    connection.flush()
                except Exception as error:
                    # the others must be sent nevertheless
                    report(
                        logging.ERROR, "the connection with %s failed inside the server", connection.peer, error=error
                    )

    def _note_block(self, since: float, now: float) -> None:
        """Have responses sent at once for a while, if none could be sent from `since` to `now`."""
        if now - since > _BLOCKED:
            until = now + min(_AFTER_BLOCK_MOST, _AFTER_BLOCK_TIMES * (now - since))
            # a shorter block that follows takes nothing away
            self._at_once_until = max(self._at_once_until, until)
