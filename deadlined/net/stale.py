"""Files of unix sockets on which no process listens.

Facts      Connecting to a unix socket succeeds or fails at once. If the queue of the listener is full, Linux says
           EAGAIN; macOS and the BSDs refuse, as they do where nobody listens.
Hazard     The file of a busy server is taken for stale, and removed.
Answer     Elsewhere than on Linux a refusal counts after several, in a tenth of a second. Who asks does the waiting, in
           an event loop or without one.
Cost       That time, where the file is stale. The file of a server whose queue stays full for longer is removed.
"""

from __future__ import annotations

import contextlib
import socket as stdlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

# seconds between two questions
_WAITS: Final = (0.01, 0.03, 0.06)


def remove_stale(file: Path) -> Iterator[float]:
    """Remove `file` if it is a socket on which no process listens. The caller must wait for each number of seconds that
    this gives, and go on to the end."""
    if not file.is_socket():
        return
    for seconds in () if sys.platform == "linux" else _WAITS:
        if _answers(file):
            return
        yield seconds
    if not _answers(file):
        with contextlib.suppress(FileNotFoundError):
            file.unlink()


def _answers(file: Path) -> bool:
    """Return True if a process listens on this socket, or if that cannot be told."""
    with stdlib.socket(stdlib.AF_UNIX, stdlib.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(file))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
        return True
