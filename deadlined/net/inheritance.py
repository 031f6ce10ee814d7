"""The listening sockets of a server in a forked child.

Facts      A socket listens for as long as one process has it.
Hazard     A child keeps the port of a server that has ended: clients that connect wait for nobody, and the next server
           cannot listen there.
Answer     A child closes its copies. So from the moment a server listens, also while its application starts. A plain
           Listener does not: a program may fork processes that accept from its socket.
"""

from __future__ import annotations

import socket as stdlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from ..runtime import current_host
from ..runtime.forking import Inherited


@contextmanager
def closed_in_children(sockets: Callable[[], Iterable[stdlib.socket]]) -> Iterator[None]:
    """Within the block, close what `sockets()` returns in each forked child, and end a child that returns into the
    event loop, where it would do its parent's work once more."""
    host = current_host()

    def disown() -> None:
        for socket in sockets():
            socket.close()
        host.end_child_on_return()

    inherited = Inherited(disown, lambda: any(socket.fileno() >= 0 for socket in sockets()))
    try:
        yield
    finally:
        inherited.release()
