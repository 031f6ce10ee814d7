"""The protocol between the portable poller and the kernels.

A port wraps one kernel event queue. It reports readiness edge by edge: an event means "something has changed since the
last event", not "there is still data". So an operation is tried first and waits only if it would block. A spurious
event is harmless; a lost one would hang a task for ever.
"""

from __future__ import annotations

from typing import Final, Protocol

# Events taken from the kernel in one call. The others follow in the next call, after the tasks woken by these have run,
# so a batch bounds how long a deadline waits. With thousands of peers sending at once, p99 was 40 ms with 512, 6 with
# 64 and 4 to 5 with 32. Each batch is a turn of the event loop, so a smaller number costs throughput.
MAX_EVENTS: Final = 32

# seconds, a day (trio's choice; Go's is 11.5 days): the longest finite wait, because kernels count in small integers.
# epoll counts milliseconds in an int, 24.8 days.
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

        OSError: EPERM if the file's type cannot be polled (a regular file), EEXIST if it is watched already.
        """

    def deregister(self, fd: int) -> None:
        """Stop watching `fd`. Call it before the descriptor is closed, because a duplicate may outlive it."""

    def wait(self, timeout: float) -> list[tuple[int, int]]:
        """Wait for events: up to MAX_EVENTS pairs of a descriptor and a union of READ, WRITE, ERROR, HANGUP and URGENT.

        `timeout` in seconds: at or below 0 returns at once, `inf` waits for an event. It is rounded up to the kernel's
        resolution and cut to MAX_WAIT, so the caller must read its clock afterwards. After a timeout the list is empty.
        """

    def fileno(self) -> int:
        """Return the descriptor of the event queue itself, which is readable while events are waiting."""

    def close(self) -> None:
        """Close the event queue. Idempotent."""
