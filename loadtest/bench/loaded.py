"""What all benchmarks of loaded servers share: CPU time and neighbours during a load, and memory per connection.

Facts      Memory that is resident at the start belongs to no connection. A server that has just answered still works.
Answer     Memory is the growth of the server after the first hundred connections, each of which was answered once, and
           a second later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final

from ..servers import START, Server, Usage, raise_file_limit
from .contest import ContestantError, Metric
from .neighbours import in_quiet, neighbours

# connections that are opened before memory is measured for the first time, and seconds to finish the last answers
_FIRST: Final = 100
_SETTLING: Final = 1.0

CONTEXT: Final[Mapping[str, Metric]] = {
    "busy": Metric("% of a core", None),
    "others": Metric("% of both cores", None),
}

# starts a server, for the length of a context
Serving = Callable[[], AbstractContextManager[Server]]
# loads a server; returns what was done, the seconds that it took, and further figures
Load = Callable[[Server], tuple[float, float, Mapping[str, float]]]


def under(serving: Serving, warm: Callable[[Server], object], load: Load) -> dict[str, float]:
    """Return rate, CPU time of each request in microseconds, `busy`, `others`, and the load's own figures.

    Each measurement has a server of its own, which is warmed up first; one beside much other load is repeated.
    """

    def once() -> dict[str, float]:
        with serving() as server:
            warm(server)
            return figures(server, load)

    return in_quiet(once)


def figures(server: Server, load: Load) -> dict[str, float]:
    """Load a server, and return what `under` does."""
    before = Usage.of(server.pid).cpu
    with neighbours(server.pid) as others:
        done, seconds, more = load(server)
    cpu = Usage.of(server.pid).cpu - before
    return {"rate": done / seconds, "cpu": cpu / done * 1e6, "busy": cpu / seconds * 100, "others": others.share,
            **more}  # fmt: skip


def memory(serving: Serving, opened: Callable[[Server], AbstractContextManager[Any]], number: int) -> float:
    """Return the resident bytes of a server for each of `number` open connections."""
    raise_file_limit(number + 2 * _FIRST)
    with serving() as server, ExitStack() as clients:

        def resident_with(more: int) -> int:
            for _ in range(more):
                clients.enter_context(opened(server))
            time.sleep(_SETTLING)
            return Usage.of(server.pid).resident

        before = resident_with(_FIRST)
        return (resident_with(number) - before) / number


def wait_for_answer(server: Server, ask: Callable[[], object], unless: type[Exception] | None = None) -> None:
    """Ask until it works: granian reports its port before its worker listens. ContestantError if it does not.

    Only a refused connection is tried again, or what is `unless`.
    """
    end = time.monotonic() + START
    while True:
        try:
            ask()
            return
        except (OSError, RuntimeError, ContestantError) as error:
            refused = isinstance(getattr(error, "reason", error), ConnectionRefusedError)
            if not (refused or (unless and isinstance(error, unless))) or time.monotonic() > end:
                raise ContestantError(f"{error}\n{''.join(server.output)}") from error
            time.sleep(0.05)
