"""What a worker process accepts from: the slots that its supervisor hands to it, and takes back."""

from __future__ import annotations

import json
import socket
from collections.abc import Collection, Mapping, Sequence

from ..http import HttpServer
from ..net import Listener


def change(added: Mapping[int, int], removed: Collection[int]) -> bytes:
    """Return the payload of an ACCEPT frame: the slots that are added, with the numbers of their descriptors, and those
    that are removed."""
    return json.dumps([list(added.items()), list(removed)]).encode()


def descriptors_in(payload: bytes) -> int:
    """Return how many descriptors come with an ACCEPT frame."""
    added, _ = json.loads(payload)
    return sum(number for _, number in added)


class Accepting:
    """The listeners of a server in a worker process, by their slots."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._listeners: dict[int, list[Listener]] = {}

    def change(self, payload: bytes, descriptors: Sequence[int]) -> None:
        """Do what an ACCEPT frame says. Takes over the descriptors."""
        added, removed = json.loads(payload)
        rest = iter(descriptors)
        for slot, number in added:
            listeners = [Listener.from_socket(socket.socket(fileno=next(rest))) for _ in range(number)]
            self._listeners[slot] = listeners
            for listener in listeners:
                self._server.add_listener(listener)
        for slot in removed:
            for listener in self._listeners.pop(slot):
                self._server.remove_listener(listener)
