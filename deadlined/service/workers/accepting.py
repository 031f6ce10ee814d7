"""What a worker process accepts from: the slots that its supervisor hands to it, and takes back."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice

from ...http import HttpServer
from ...net import Listener


def change(added: Mapping[int, int], removed: Collection[int]) -> bytes:
    """Return the payload of an ACCEPT frame: the slots that are added, with the numbers of their descriptors, and those
    that are removed."""
    return json.dumps([list(added.items()), list(removed)]).encode()


def descriptors_in(payload: bytes) -> int:
    """Return how many descriptors come with an ACCEPT frame."""
    added, _ = json.loads(payload)
    return sum(number for _, number in added)


class Accepting:
    """The listeners of a server in a worker process, by their slots. `begun()` is called when it has the first ones,
    unless it drains by then."""

    def __init__(self, server: HttpServer, begun: Callable[[], object]) -> None:
        self._server = server
        self._begun: Callable[[], object] | None = begun
        self._listeners: dict[int, list[Listener]] = {}

    def change(self, payload: bytes, descriptors: Sequence[int]) -> None:
        """Do what an ACCEPT frame says. Takes over the descriptors. OSError if the process cannot listen on one of
        them; nothing has changed then."""
        added, removed = json.loads(payload)
        rest = iter(_listeners_of(descriptors))
        for slot, number in added:
            self._listeners[slot] = listeners = list(islice(rest, number))
            for listener in listeners:
                self._server.add_listener(listener)
        begun, self._begun = self._begun, None
        if begun is not None and not self._server.draining:
            begun()
        for slot in removed:
            # a slot whose sockets could not be listened on is taken back like any other
            for listener in self._listeners.pop(slot, ()):
                self._server.remove_listener(listener)


def _listeners_of(descriptors: Sequence[int]) -> list[Listener]:
    """Make listeners of sockets that have arrived. OSError if the process has no room for one; all are closed then."""
    with ExitStack() as undo:
        sockets = [undo.enter_context(socket.socket(fileno=each)) for each in descriptors]
        listeners: list[Listener] = []
        for each in sockets:
            listeners.append(Listener.from_socket(each))
            undo.callback(listeners[-1].close)
        undo.pop_all()
    return listeners
