"""Two servers and another task in one asyncio program: a site of Starlette, a page for its operator, a clock.

    pip install starlette
    python examples/embed_asyncio.py --port 8005
    curl http://127.0.0.1:8005/            # the site
    curl http://127.0.0.1:8006/            # how the site's server is doing; on a free port if --port is 0

`async with AsgiServer(...)` serves beside its block: the application has started when the block begins, and at its end,
also by an error or a cancellation, requests that run are answered before the application shuts down. Here the block
waits until SIGTERM or Ctrl-C has ended the site. The operator's page is the outer block, so it still answers meanwhile.
A FastAPI application is served the same way.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypedDict

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from deadlined.asgi import AsgiServer
from deadlined.http import Timeouts

# seconds that requests have to end
DRAIN = 5.0


class State(TypedDict):
    """What the lifespan gives to every request."""

    clock: Clock


class Clock:
    """A task of the program that the site shows."""

    def __init__(self) -> None:
        self.seconds = 0

    async def run(self) -> None:
        """Count seconds until cancelled."""
        while True:
            await asyncio.sleep(1)
            self.seconds += 1


def site(clock: Clock) -> Starlette:
    """Make the application."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[State]:
        print("the site has started", flush=True)
        yield {"clock": clock}
        print("the site has ended", flush=True)

    async def home(request: Request) -> PlainTextResponse:
        return PlainTextResponse(f"up for {request.state.clock.seconds} seconds\n")

    return Starlette(routes=[Route("/", home)], lifespan=lifespan)


def operators_page(watched: AsgiServer) -> Starlette:
    """Make the application that shows what `watched` does."""

    async def status(_: Request) -> JSONResponse:
        found = watched.http.statistics()
        return JSONResponse({"open": found.open, "requests": found.requests, "draining": watched.http.draining})

    return Starlette(routes=[Route("/", status)])


async def run(port: int) -> None:
    """Serve both until SIGTERM or Ctrl-C, and print their ports."""
    clock = Clock()
    public = AsgiServer(site(clock), port=port, timeouts=Timeouts(drain=DRAIN))
    page = AsgiServer(operators_page(public), port=port and port + 1)
    ticking = asyncio.create_task(clock.run())
    try:
        async with page, public:
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, public.shutdown)
            print(f"listening on http://127.0.0.1:{public.port}, for its operator on port {page.port}", flush=True)
            await public.wait_closed()
    finally:
        ticking.cancel()


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(description="Two servers and another task in one asyncio program.")
    parser.add_argument("--port", type=int, default=8005, help="0 lets the system choose")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.port))


if __name__ == "__main__":
    main()
