"""The cost of deadlines in an HTTP server: `python -m loadtest.peers.http_tax h11|httptools`.

Serves `loadtest.apps:web` with all deadlines on and off in turn, see `loadtest.peers.tax`. Prints the cost when the
last connection has ended. With the idle timeout off the response lacks its keep-alive field, 24 bytes.
"""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import Final

import trio

import deadlined
from deadlined import service
from deadlined.asgi import AsgiHandler
from deadlined.http import HttpServer, Timeouts

from ..apps import web
from .tax import Meter

# seconds; each connection changes its deadlines once per stretch, which costs more than a request without a change
STRETCH: Final = 0.1

# seconds; beyond any measurement
LONG: Final = 90.0

# in addition to the deadlines that are on by default
ON: Final = Timeouts(read=LONG, write=LONG, handler=LONG, connection_age=LONG)
OFF: Final = Timeouts(**{field.name: float("inf") for field in fields(Timeouts) if not field.name.endswith("_rate")})


class Load:
    """The server and its meter. A switch applies to each wait that begins, also of open connections."""

    def __init__(self, parser: str) -> None:
        self.server = HttpServer(AsgiHandler(web), timeouts=ON, parser=parser)
        self.meter = Meter(self._switch, lambda: self.server.statistics().requests, STRETCH)

    async def watch(self) -> None:
        """Print the cost whenever the last connection has ended."""
        was_there = False
        while True:
            is_there = self.server.statistics().open > 0
            if was_there and not is_there:
                self.meter.tell()
            was_there = is_there
            await trio.sleep(STRETCH)

    def _switch(self, on: bool) -> None:
        self.server.set_timeouts(ON if on else OFF)


async def main() -> None:
    """Serve on a free port until the process is terminated."""
    load = Load(sys.argv[1])
    listeners = await deadlined.open_tcp_listeners(0, host="127.0.0.1")
    service.tune_gc()
    print(f"listening on http://127.0.0.1:{listeners[0].socket.getsockname()[1]}", flush=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.meter.alternate)
        nursery.start_soon(load.watch)
        await load.server.serve(listeners)


if __name__ == "__main__":
    trio.run(main)
