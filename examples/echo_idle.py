"""An echo server that closes silent connections.

    python examples/echo_idle.py --port 7000 --idle 5
    nc 127.0.0.1 7000        # each line comes back; after 5 silent seconds the server closes

The idle timeout is one read deadline that is moved after every read: a store, not an object per operation. The write
deadline bounds a peer that sends and never reads.
"""

from __future__ import annotations

import argparse

import trio

import deadlined


async def echo(conn: deadlined.Conn, idle: float) -> None:
    """Echo until the peer closes or resets the connection, or is silent for `idle` seconds."""
    try:
        while True:
            conn.set_read_deadline(trio.current_time() + idle)
            data = await conn.receive_some()
            if not data:
                return
            conn.set_write_deadline(trio.current_time() + idle)
            await conn.send_all(data)
    except deadlined.DeadlineExceeded as error:
        print(f"{error.op} deadline passed: closing", flush=True)
    except trio.BrokenResourceError:
        print("the peer has gone", flush=True)


async def serve(port: int, idle: float) -> None:
    """Serve on the loopback interface until cancelled, and print the port."""
    async with trio.open_nursery() as nursery:

        async def handler(conn: deadlined.Conn) -> None:
            await echo(conn, idle)

        async def start(task_status: trio.TaskStatus[list[deadlined.Listener]]) -> None:
            await deadlined.serve_tcp(handler, port, host="127.0.0.1", task_status=task_status)

        listeners: list[deadlined.Listener] = await nursery.start(start)
        print(f"listening on 127.0.0.1:{listeners[0].socket.getsockname()[1]}", flush=True)


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(description="Echo server with an idle deadline.")
    parser.add_argument("--port", type=int, default=7000, help="0 lets the system choose")
    parser.add_argument("--idle", type=float, default=5.0, help="seconds")
    arguments = parser.parse_args()
    trio.run(serve, arguments.port, arguments.idle)


if __name__ == "__main__":
    try:
        main()
    except* KeyboardInterrupt:
        pass
