"""A line protocol in which every line has a total deadline, which trickled bytes do not extend.

    python examples/line_total.py --port 7001 --line 5
    nc 127.0.0.1 7001                                                  # lines come back in capitals
    (while sleep 1; do printf x; done) | nc 127.0.0.1 7001             # cut after 5 seconds, not one later

The deadline is set once when a line may begin and is not moved while its bytes arrive. A server that moved it with
every byte could be held for ever by one byte at a time, as slowloris does.
"""

from __future__ import annotations

import argparse

import trio

import deadlined

# bytes; without a limit a peer could fill the memory within the deadline
LONGEST = 4096


async def talk(conn: deadlined.Conn, total: float) -> None:
    """Answer each line in capitals; each has `total` seconds from the end of the one before."""
    buffer = b""
    try:
        while True:
            conn.set_deadline(trio.current_time() + total)
            while b"\n" not in buffer:
                if len(buffer) == LONGEST:
                    return
                data = await conn.receive_some(LONGEST - len(buffer))
                if not data:
                    return
                buffer += data
            line, _, buffer = buffer.partition(b"\n")
            await conn.send_all(line.upper() + b"\n")
    except deadlined.DeadlineExceeded as error:
        print(f"{error.op} deadline passed: closing", flush=True)
    except trio.BrokenResourceError:
        print("the peer has gone", flush=True)


async def serve(port: int, total: float) -> None:
    """Serve on the loopback interface until cancelled, and print the port."""
    async with trio.open_nursery() as nursery:

        async def handler(conn: deadlined.Conn) -> None:
            await talk(conn, total)

        async def start(task_status: trio.TaskStatus[list[deadlined.Listener]]) -> None:
            await deadlined.serve_tcp(handler, port, host="127.0.0.1", task_status=task_status)

        listeners: list[deadlined.Listener] = await nursery.start(start)
        print(f"listening on 127.0.0.1:{listeners[0].socket.getsockname()[1]}", flush=True)


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(description="Line protocol with a total deadline for each line.")
    parser.add_argument("--port", type=int, default=7001, help="0 lets the system choose")
    parser.add_argument("--line", type=float, default=5.0, help="seconds for a whole line")
    arguments = parser.parse_args()
    trio.run(serve, arguments.port, arguments.line)


if __name__ == "__main__":
    try:
        main()
    except* KeyboardInterrupt:
        pass
