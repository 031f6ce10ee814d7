"""A process of the load test beside this one: it runs one function, and talks through one connection.

Facts      A measurement must not share an interpreter with what draws the progress, nor a load with the client whose
           latency is measured. A terminal sends Ctrl-C to every process of its group.
Hazard     A child that dies of Ctrl-C takes its figures with it; one that outlives its parent attacks for ever.
Answer     The child has a session of its own, so that Ctrl-C reaches the parent only, which asks it to stop. The
           child's function sees the end of the connection when the parent is gone, and returns.
Cost       A third of a second to start.
"""

from __future__ import annotations

import gc
import importlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

# seconds that a child gets to end by itself
STOP = 5.0

Function = Callable[["Connection[Any, Any]"], None]


class Child:
    """A running child; a context manager that ends it.

    `function` must be a module's: it is called in the child with the connection whose other end is `connection`.
    """

    def __init__(self, function: Function) -> None:
        ours, theirs = socket.socketpair()
        root = str(Path(__file__).resolve().parent.parent)
        command = [sys.executable, "-m", __name__, str(theirs.fileno()), function.__module__, function.__name__]
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
        around = {**os.environ, "PYTHONPATH": path}
        with theirs:
            self._process = subprocess.Popen(command, env=around, pass_fds=[theirs.fileno()], start_new_session=True)
        self.connection: Connection[Any, Any] = Connection(ours.detach())

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        try:
            self._process.wait(STOP)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def receive(self) -> Any:
        """Return the next message. RuntimeError if the child has ended."""
        try:
            return self.connection.recv()
        except (EOFError, ConnectionResetError) as error:
            raise RuntimeError("a process of the load test has ended; its error is above") from error


def main(descriptor: str, module: str, name: str) -> None:
    """Run the function in this process."""
    # collections would stop the measurement; what is kept is small and bounded
    gc.disable()
    function: Function = getattr(importlib.import_module(module), name)
    with Connection(int(descriptor)) as connection:
        try:
            function(connection)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return  # the parent has gone


if __name__ == "__main__":
    main(*sys.argv[1:])
