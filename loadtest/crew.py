"""Client processes side by side: each gets an order, and gives what it has counted in the end.

Facts      A terminal's Ctrl-C reaches this process only (child.py), at any moment.
Hazard     An exception in the middle of a message would tear it, and lose what that client has counted.
Answer     While the clients are waited for, Ctrl-C only sets a flag; then each that still runs is told to stop, and all
           give what they have. A second Ctrl-C raises as usual.
"""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from threading import Event
from typing import Any

from .child import Child, Function
from .histogram import NO_PORTS, Tally, lacks_ports
from .servers import raise_file_limit
from .target import ForbiddenTargetError

# seconds from an order to the first request, so that all processes have begun
LEAD = 0.3
# descriptors of a process beside its connections
_SPARE = 100


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


def need_ports(troubles: Iterable[str]) -> None:
    """ForbiddenTargetError if one of these failures says that there are no ports."""
    if lacks_ports(troubles):
        raise ForbiddenTargetError(NO_PORTS)


class Crew:
    """The processes. RuntimeError of each method if one of them ends without a result."""

    def __init__(self, children: Sequence[Child]) -> None:
        self._running = list(children)

    def order(self, orders: Iterable[object]) -> None:
        """Give each its order."""
        for child, order in zip(self._running, orders, strict=True):
            child.connection.send(order)

    def tell(self, message: object) -> int:
        """Send a message to those that still run, and return how many these are."""
        for child in self._running:
            with suppress(ConnectionError):  # it ends just now, and its result is on its way
                child.connection.send(message)
        return len(self._running)

    def collect(self, on_turn: Callable[[], object], on_message: Callable[[Child, Any], object]) -> list[Any]:
        """Return the counts of all. `on_turn` is called a few times a second, `on_message` with all other messages.

        Upon Ctrl-C tell those that still run "enough".
        """
        counted: list[Any] = []
        with _noted() as interrupt:
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
                if interrupt.is_set():
                    interrupt.clear()
                    self.tell("enough")
        return counted


@contextmanager
def crew(function: Function, number: int) -> Iterator[Crew]:
    """Start so many processes that run `function` (child.py), and end them."""
    with ExitStack() as stack:
        yield Crew([stack.enter_context(Child(function)) for _ in range(number)])


@contextmanager
def _noted() -> Iterator[Event]:
    """Let Ctrl-C set an event while the block runs; a second one raises as usual."""
    noted = Event()

    def note(*_: object) -> None:
        noted.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)
