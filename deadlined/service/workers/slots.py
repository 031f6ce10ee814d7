"""The listening sockets of a service of several worker processes. The supervisor owns them, and passes them to the
worker processes.

Facts      With SO_REUSEPORT the kernel spreads new connections over the sockets of a port by a hash of their addresses.
           Only Linux does; FreeBSD has another option for it. On other systems one of the sockets gets all connections.
           A connection waits in the queue of its socket until it is accepted, and is reset when no process has that
           socket any more. All processes that wait for one socket are woken by each connection: EPOLLEXCLUSIVE, which
           wakes only one of them, has no effect through an event queue that is nested in another, as ours is.
Hazard     A socket that ends with its process takes the connections in its queue along. With one socket for all, the
           process that is woken first gets most connections: which one that is depends on the order in which they
           began to wait, not on their load.
           An open port tells load balancers and probes that a service is ready.
Answer     The places are taken at once, and connections refused until the first worker process is ready. Then there is
           a slot for each worker process: its own sockets, one per TCP address, which the supervisor has for as long as
           it serves. A process accepts from its own slot. Another one accepts from a slot whose process has ended,
           drains, does not serve yet, or does not answer, so that no connection is left waiting in it. Unix and
           inherited sockets, which cannot be opened twice, and TCP sockets over which the kernel would not spread
           connections, are in one slot that all processes accept from.
Cost       A connection in a slot waits for its process, for up to two seconds, also if that is busy while others are
           not.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping
from typing import TypeGuard

from ...net.listen import listening_sockets, spreading_option
from ..config import ServeConfig
from ..config.binds import Bind, TcpBind
from ..errors import StartupError
from ..listening.free_port import free_port
from ..listening.listening import cannot_listen_at, take_places, url_of
from .worker_process import WorkerProcess

# the slot that all worker processes accept from; the others are numbered as the worker processes are
SHARED = 0


class Slots:
    """The sockets, for `number` worker processes. Their places are taken at once; connections are refused until `open`.
    StartupError if a place cannot be had; none is taken then.

    The ports of `config` are chosen: 0 would be another one in each slot.
    """

    def __init__(self, config: ServeConfig, number: int) -> None:
        self._config = config
        self._number = number
        self._places = take_places(config)
        # by their slots; empty until `open`
        self._sockets: dict[int, list[socket.socket]] = {}
        # where clients connect, in the order of the configuration
        self.urls: list[str] = [url_of(config, each) for place in self._places for each in place.sockets]

    def __len__(self) -> int:
        """Return the number of slots that are open, without the shared one."""
        return max(len(self._sockets) - 1, 0)

    def open(self) -> None:
        """Listen everywhere. StartupError if a socket cannot be opened, because another process listens there by now
        for example: close everything then."""
        self._open_first()
        self.grow(self._number)

    def sockets(self, slot: int) -> list[socket.socket]:
        """Return the sockets of a slot."""
        return self._sockets[slot]

    def hand_out(self, workers: Collection[WorkerProcess]) -> None:
        """Let `workers`, no number twice, accept from all slots: tell each what has changed for it. Others keep what
        they have."""
        found = assign(len(self), {worker.pid: worker.number for worker in workers})
        for worker in workers:
            worker.accept_from({slot: self.sockets(slot) for slot in found[worker.pid]})

    def grow(self, number: int) -> None:
        """Add slots until there is one for each of `number` worker processes, now or in `open`; remove none.
        StartupError if a socket cannot be opened: `assign` then lets worker processes without a slot share those of
        others."""
        self._number = max(self._number, number)
        if self._sockets:
            for slot in range(len(self) + 1, number + 1):
                self._open_more(slot)

    def close(self) -> None:
        """Remove the files of unix sockets, and close everything. Connections in a queue are reset unless a worker
        process has the socket. Idempotent."""
        for place in self._places:
            place.unlink()
        self.release()

    def release(self) -> None:
        """Close all sockets, but leave the files of unix sockets, which belong to the supervisor: in a forked process,
        and for `close`."""
        for sockets in (*self._sockets.values(), *(place.sockets for place in self._places)):
            for each in sockets:
                each.close()
        for sockets in self._sockets.values():
            sockets.clear()

    def _open_first(self) -> None:
        """Open the shared slot, and the first of the others."""
        self._sockets = {SHARED: [], 1: []}
        for place in self._places:
            if _is_opened_for_each(place.bind):
                # its socket cannot share the port
                place.release()
                self._require_free(place.bind)
                self._sockets[1] += self._opened(place.bind)
            else:
                self._sockets[SHARED] += place.listen()

    def _require_free(self, place: TcpBind) -> None:
        """Raise StartupError if another process listens there by now, or this service does for another name of the
        place: SO_REUSEPORT would let it listen, too."""
        try:
            free_port(place.host, place.port)
        except OSError as error:
            raise cannot_listen_at(place, self._config, error) from None

    def _open_more(self, slot: int) -> None:
        found: list[socket.socket] = []
        try:
            for place in self._places:
                if _is_opened_for_each(place.bind):
                    found += self._opened(place.bind)
        except StartupError:
            for each in found:
                each.close()
            raise
        self._sockets[slot] = found

    def _opened(self, place: TcpBind) -> list[socket.socket]:
        try:
            return listening_sockets(place.port, place.host or None, reuse_port=True)
        except OSError as error:
            raise cannot_listen_at(place, self._config, error) from None


def _is_opened_for_each(place: Bind) -> TypeGuard[TcpBind]:
    """Return True if each slot has sockets of its own there, False if all worker processes share one."""
    return isinstance(place, TcpBind) and spreading_option() is not None


def assign(slots: int, workers: Mapping[int, int]) -> dict[int, set[int]]:
    """Return the slots that each worker process accepts from, by its pid. `workers` has the numbers of those that serve
    and answer by their pids, no number twice.

    Each has the slot of its number. A slot without its process goes to the process that has the fewest. A process whose
    slot could not be opened shares one.
    """
    found = {pid: {SHARED} | ({number} if number <= slots else set()) for pid, number in workers.items()}
    if not found or not slots:
        return found
    for slot in sorted(set(range(1, slots + 1)) - set(workers.values())):
        min(found.items(), key=lambda item: (len(item[1]), item[0]))[1].add(slot)
    for pid, number in workers.items():
        if len(found[pid]) == 1:
            found[pid].add((number - 1) % slots + 1)
    return found
