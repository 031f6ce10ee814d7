"""The server of the benchmark `churn` on `deadlined.Conn`: deadlines are fields of the connection."""

from __future__ import annotations

import math
from contextlib import suppress

import trio

import deadlined
from deadlined import Conn, DeadlineExceeded
from deadlined.service import tune_gc

from .churn_protocol import CLOSE, EXPIRED, INSTANT, REPLY, REQUEST, SET, UNKNOWN, announce, monotonic_offset


class Handler:
    """The server. `offset` is added to the run's clock to get the machine's."""

    def __init__(self, offset: float) -> None:
        self._offset = offset

    async def serve(self, conn: Conn) -> None:
        """Serve a connection until either side closes it."""
        with suppress(trio.BrokenResourceError):
            await self._answer(conn)

    async def _answer(self, conn: Conn) -> None:
        clock, offset = trio.current_time, self._offset
        data = b""
        number = previous_number = UNKNOWN
        due = previous_due = math.inf
        while True:
            try:
                received = await conn.receive_some(REQUEST.size - len(data))
                if not received:
                    return
                data += received
                if len(data) < REQUEST.size:
                    continue
                previous_number, previous_due = number, due
                number, kind, seconds = REQUEST.unpack(data)
                data = b""
                due = seconds - offset if kind == INSTANT else clock() + seconds
                conn.set_deadline(due)
                if kind == CLOSE:
                    return
                await conn.send_all(REPLY.pack(number, SET, due + offset, 0.0))
            except DeadlineExceeded as error:
                lateness = clock() - error.deadline
                # the error names its deadline, so the firing of one that was moved away would show
                expired = {previous_due: previous_number, due: number}.get(error.deadline, UNKNOWN)
                due = math.inf
                conn.set_deadline(due)
                await conn.send_all(REPLY.pack(expired, EXPIRED, error.deadline + offset, lateness))


async def main() -> None:
    """Serve on a free port until the process is terminated."""
    listeners = await deadlined.open_tcp_listeners(0, host="127.0.0.1")
    handler = Handler(monotonic_offset(trio.current_time))
    announce(listeners[0].socket.getsockname()[1])
    await trio.serve_listeners(handler.serve, listeners)


if __name__ == "__main__":
    tune_gc()
    trio.run(main)
