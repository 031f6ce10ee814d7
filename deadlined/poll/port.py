"""What a port must give: the portable poller stands on these six members and nothing else.

A port wraps one kernel event queue. It reports readiness edge by edge: an event means "something changed since the last
event", never "there is still data". So an operation is tried first and waits after; an event that turns out to be about
nothing is harmless, a lost one would hang a task for ever.
"""

from __future__ import annotations

from typing import Final, Protocol

# Events taken from the kernel in one call. The rest comes with the next call, after the tasks that these have woken: so
# long, at most, a deadline waits for them. Where thousands of peers speak at once, p99 was 40 ms with 512, 6 with 64,
# and is 4 to 5 with 32; each batch is a turn of the loop, so that less costs throughput.
MAX_EVENTS: Final = 32

# seconds, a day (trio's choice; Go's is 11.5 days): the most that a finite wait takes, because a kernel counts in
# small integers. epoll's are milliseconds in an int, 24.8 days.
MAX_WAIT: Final = 86_400.0

READ: Final = 1  # worth trying to read: bytes, end of stream, or an error to collect
WRITE: Final = 2  # worth trying to write
ERROR: Final = 4  # the kernel reports an error and nothing else: the descriptor cannot be polled
HANGUP: Final = 8  # the peer has ended its side, or the connection is gone: reading will reach an end
URGENT: Final = 16  # the peer has sent TCP's urgent data, or may have: a read ends before it, whatever lies behind it


class Port(Protocol):
    """One kernel event queue."""

    name: str

    def register(self, fd: int) -> None:
        """Watch `fd` in both directions, once, until `deregister`.

        Raises OSError: EPERM where the file's type cannot be polled (a regular file), EEXIST if it is watched already.
        """

    def deregister(self, fd: int) -> None:
        """Stop watching `fd`. To be called before the descriptor is closed: a duplicate may outlive it."""

    def wait(self, timeout: float) -> list[tuple[int, int]]:
        """Up to MAX_EVENTS pairs of a descriptor and a union of READ, WRITE, ERROR, HANGUP and URGENT.

        `timeout` in seconds: at or below 0 returns at once, `inf` waits for an event. Rounded up to what the kernel can
        do and cut to MAX_WAIT, so the caller reads its clock afterwards. The list is empty when the time is up.
        """

    def fileno(self) -> int:
        """The descriptor of the event queue itself; it is readable while events wait to be taken."""

    def close(self) -> None:
        """Give the event queue back to the kernel. Idempotent."""
