"""How many descriptors this process may have open, and how many of them clients may take: each connection is one, and
the usual 1,024 are few.

Facts      A process may raise its soft limit up to its hard one, and its children inherit the soft limit, also through
           an exec. 1,024 is the usual one because select(2) knows no higher descriptor.
Hazard     A command that was started here may use select, or close every descriptor up to its limit, which can be a
           billion. A sandbox may refuse the system calls. macOS has a bound below a hard limit of "unlimited".
           Clients that hold every descriptor leave none to the application's files and database, or to the connection
           to an upstream that each request of a proxy needs.
Answer     As Go: the limit is raised for this process, and a command gets the one that was there before. A limit that
           cannot be asked for, or raised, is kept. A tenth of the descriptors is kept from clients, and half of the
           rest in a proxy, as HAProxy derives its maxconn.
"""

from __future__ import annotations

import math
import os
import resource
from contextlib import suppress
from typing import Final

from ..errors import StartupError

# The least limit with which a server is begun: an event loop, its pipes and the sockets of a service are about 20, and
# what fails without a descriptor in their making names no limit; libuv even aborts the process
LEAST: Final = 32

# descriptors that are kept from clients, a tenth within these bounds, but half at most: for the application, the admin
# page and the logs
_LEAST_KEPT: Final = 16
_MOST_KEPT: Final = 500

# the soft and the hard limit before they were raised, None if they were not
_before: tuple[int, int] | None = None


def require_file_limit() -> None:
    """Raise StartupError if the hard limit of open files is too low to begin."""
    with suppress(ValueError, OSError):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard != resource.RLIM_INFINITY and hard < LEAST:
            raise StartupError(
                f"this process may open {hard} files, and needs {LEAST}, and one more for each connection: raise the "
                "limit (RLIMIT_NOFILE, `ulimit -n`, systemd's LimitNOFILE=)"
            )


def raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard one, if the system allows it."""
    global _before  # noqa: PLW0603, a process has one limit
    # of Python's for two error numbers, and the rest
    with suppress(ValueError, OSError):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            _before = (soft, hard)


def restore_file_limit() -> None:
    """Undo `raise_file_limit`, in a child before its exec. Calls only what is loaded."""
    if _before is not None:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, _before)


def free_descriptors() -> float:
    """Return how many more descriptors this process may open; `inf` if nothing limits them."""
    with suppress(ValueError, OSError):
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if soft != resource.RLIM_INFINITY:
            return max(soft - _open_descriptors(), 0)
    return math.inf


def connections_within(free: float, upstream: float = 0) -> float:
    """Return how many connections of clients a process may have that has `free` descriptors for them and for what is
    beside them. `upstream`: connections that it may need to upstreams, of which each request in flight has one."""
    if free == math.inf:
        return free
    rest = free - min(max(free // 10, _LEAST_KEPT), _MOST_KEPT, free // 2)
    return max(rest - min(upstream, rest // 2), 1)


def _open_descriptors() -> int:
    try:
        # of which one is that of this call
        return len(os.listdir("/dev/fd")) - 1  # noqa: PTH208, the names are only counted
    except OSError:
        # a sandbox without it
        return LEAST
