"""The server of the benchmark `churn` on `trio.SocketStream`: a cancel scope for every operation."""

from __future__ import annotations

import math
from contextlib import suppress

import trio

from deadlined.service import tune_gc

from .churn_protocol import CLOSE, EXPIRED, INSTANT, REPLY, REQUEST, SET, UNKNOWN, announce, monotonic_offset


class Handler:
    """The server. `offset` is added to the run's clock to get the machine's."""

    def __init__(self, offset: float) -> None:
        self._offset = offset

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve a connection until either side closes it."""
        with suppress(trio.BrokenResourceError):
            await self._answer(stream)

    async def _answer(self, stream: trio.SocketStream) -> None:
        clock, offset = trio.current_time, self._offset
        data = b""
        number = previous_number = UNKNOWN
        due = previous_due = math.inf
        while True:
            try:
                with trio.fail_at(due):
                    received = await stream.receive_some(REQUEST.size - len(data))
                if not received:
                    return
                data += received
                if len(data) < REQUEST.size:
                    continue
                previous_number, previous_due = number, due
                number, kind, seconds = REQUEST.unpack(data)
                data = b""
                due = seconds - offset if kind == INSTANT else clock() + seconds
                if kind == CLOSE:
                    return
                with trio.fail_at(due):
                    await stream.send_all(REPLY.pack(number, SET, due + offset, 0.0))
            except trio.TooSlowError:
                now = clock()
                # the error does not say which deadline it was
                expired, passed = (number, due) if now >= due else (previous_number, previous_due)
                due = math.inf
                await stream.send_all(REPLY.pack(expired, EXPIRED, passed + offset, now - passed))


async def main() -> None:
    """Serve on a free port until the process is terminated."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    handler = Handler(monotonic_offset(trio.current_time))
    announce(listeners[0].socket.getsockname()[1])
    await trio.serve_listeners(handler.serve, listeners)


if __name__ == "__main__":
    tune_gc()
    trio.run(main)
