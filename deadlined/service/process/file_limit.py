"""How many descriptors this process may have open: each connection is one, and the usual 1,024 are few.

Facts      A process may raise its soft limit up to its hard one, and its children inherit the soft limit, also through
           an exec. 1,024 is the usual one because select(2) knows no higher descriptor.
Hazard     A command that was started here may use select, or close every descriptor up to its limit, which can be a
           billion. A sandbox may refuse the system calls. macOS has a bound below a hard limit of "unlimited".
Answer     As Go: the limit is raised for this process, and a command gets the one that was there before. A limit that
           cannot be asked for, or raised, is kept.
"""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

from ..errors import StartupError

# The least limit with which a server is begun: an event loop, its pipes and the sockets of a service are about 20, and
# what fails without a descriptor in their making names no limit; libuv even aborts the process
LEAST: Final = 32

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
