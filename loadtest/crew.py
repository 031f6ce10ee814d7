"""Processes of the load test beside this one: each runs one function, and talks through one connection.

Facts      A measurement must not share an interpreter with what draws the progress, nor a load with the client whose
           latency is measured. A terminal sends Ctrl-C to every process of its group, at any moment.
Hazard     A child that dies of Ctrl-C takes its figures with it; one that outlives its parent attacks for ever. An
           exception in the middle of a message would tear it, and lose what that client has counted.
Answer     A child has a session of its own, so that Ctrl-C reaches the parent only. From the start of the clients until
           all have ended it only sets a flag; each that still runs is then told to stop, and all give what they have. A
           second Ctrl-C raises as usual. The child's function sees the end of the connection when the parent is gone,
           and returns.
Cost       A third of a second to start.
"""

from __future__ import annotations

import gc
import importlib
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event
from typing import Any

from .histogram import Tally
from .servers import raise_file_limit, wait_or_kill
from .target import ForbiddenTargetError

# seconds from an order to the first request, so that all processes have taken it
LEAD = 0.3
# descriptors of a process beside its connections
_SPARE = 100
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
        around = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))}
        with theirs:
            self._process = subprocess.Popen(command, env=around, pass_fds=[theirs.fileno()], start_new_session=True)
        self.connection: Connection[Any, Any] = Connection(ours.detach())

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        wait_or_kill(self._process, STOP)

    def receive(self) -> Any:
        """Return the next message. RuntimeError if the child has ended."""
        try:
            return self.connection.recv()
        except (EOFError, ConnectionResetError) as error:
            raise RuntimeError("a process of the load test has ended; its error is above") from error


# called with a child and what it has said
OnMessage = Callable[[Child, Any], object]


def need_descriptors(connections: int, less: str = "fewer --connections") -> None:
    """Raise the limit of descriptors, if so many connections of one process need that.

    ForbiddenTargetError if the machine does not allow it; `less` says what would help.
    """
    wanted = connections + _SPARE
    limit = raise_file_limit(max(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
    if limit < wanted:
        need = f"a process needs {wanted} descriptors, {connections} of them for connections"
        advice = f", or give {less}" if limit > _SPARE else ""
        raise ForbiddenTargetError(f"{need}, and the limit is {limit}: raise it (ulimit -n){advice}")


class Crew:
    """The processes, once each has said that it has begun: on a busy machine that takes a while, for which its first
    requests would be late. RuntimeError, also of each method, if one of them ends without a result."""

    def __init__(self, children: Sequence[Child]) -> None:
        self._running = list(children)
        for child in self._running:
            child.receive()

    def order(self, orders: Iterable[object]) -> None:
        for child, order in zip(self._running, orders, strict=True):
            child.connection.send(order)

    def tell(self, message: object) -> int:
        """Send a message to those that still run, and return how many these are."""
        for child in self._running:
            with suppress(ConnectionError):  # it ends just now, and its result is on its way
                child.connection.send(message)
        return len(self._running)

    def collect(self, interrupt: Event, on_turn: Callable[[], object], on_message: OnMessage) -> list[Any]:
        """Return the counts of all. `on_turn` is called a few times a second, `on_message` with all other messages.

        Once `interrupt` is set, tell those that still run "enough".
        """
        counted: list[Any] = []
        stopped = False
        while self._running:
            for child in list(self._running):
                while child in self._running and child.connection.poll(0.05):
                    message = child.receive()
                    if isinstance(message, Tally):
                        counted.append(message)
                        self._running.remove(child)
                    else:
                        on_message(child, message)
            on_turn()
            if interrupt.is_set() and not stopped:
                stopped = True
                self.tell("enough")
        return counted


@contextmanager
def crew(function: Function, number: int) -> Iterator[Crew]:
    """Start so many processes that run `function`, which first sends any message, and end them."""
    with ExitStack() as stack:
        yield Crew([stack.enter_context(Child(function)) for _ in range(number)])


@contextmanager
def noted() -> Iterator[Event]:
    """Let Ctrl-C set an event while the block runs; a second one raises as usual. No effect where SIGINT is ignored."""
    event = Event()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield event
        return

    def note(*_: object) -> None:
        event.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)


def main(descriptor: str, module: str, name: str) -> None:
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
