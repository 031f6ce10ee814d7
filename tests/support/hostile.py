"""Clients that ask for anything and leave at any moment, in threads. Which of them does what depends on a seed only."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

PATIENCE = 30.0

_RESET = struct.pack("ii", 1, 0)


class HostileClient:
    """One client after another: each pipelines some requests, may stop in the middle of one, may end its side, reads
    some of what comes or nothing, and closes, or resets the connection. `paths` are asked for; of one that begins with
    /upload a body is sent, too."""

    def __init__(self, port: int, paths: Sequence[str], seed: int) -> None:
        self._port = port
        self._paths = paths
        self._random = random.Random(seed)
        # connections by how they have ended
        self.ended: Counter[str] = Counter()

    def run(self, connections: int) -> None:
        """Use up so many connections."""
        for _ in range(connections):
            with socket.create_connection(("127.0.0.1", self._port), timeout=PATIENCE) as client:
                try:
                    self._misbehave(client)
                except (BrokenPipeError, ConnectionResetError):
                    self.ended["cut by the server"] += 1
                    continue
                if self._random.random() < 0.4:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                self.ended["left"] += 1

    def _misbehave(self, client: socket.socket) -> None:
        dice = self._random
        for _ in range(dice.choice([1, 1, 3, 10])):
            data = b"".join(self._request() for _ in range(dice.choice([1, 1, 1, 2, 5])))
            what = dice.random()
            client.settimeout(PATIENCE)
            client.sendall(data[: dice.randrange(len(data))] if what < 0.1 else data)
            if what < 0.35:
                return
            if what < 0.4:
                client.shutdown(socket.SHUT_WR)
            client.settimeout(dice.choice([0.002, 0.02, 0.3]))
            with suppress(TimeoutError):
                for _ in range(dice.choice([1, 2, 20])):
                    if not client.recv(65536):
                        return

    def _request(self) -> bytes:
        path = self._random.choice(self._paths)
        if not path.startswith("/upload"):
            return f"GET {path} HTTP/1.1\r\nhost: a\r\n\r\n".encode()
        length = self._random.choice([10, 5_000, 100_000])
        return f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n".encode() + bytes(length)


def attack(port: int, paths: Sequence[str], clients: int, connections: int) -> Counter[str]:
    """Let `clients` at a time use up so many connections each. Return how these have ended."""
    crowd = [HostileClient(port, paths, seed) for seed in range(clients)]
    threads = [threading.Thread(target=client.run, args=(connections,)) for client in crowd]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum((client.ended for client in crowd), Counter())
