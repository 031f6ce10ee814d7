"""An echo server on asyncio that closes silent connections, and a client whose whole request has one deadline.

    python examples/echo_asyncio.py --port 7002 --idle 5
    python examples/echo_asyncio.py --port 7002 --say hello --within 2

The connections are those of the trio examples, in a program that only knows asyncio: tasks are asyncio's, and an error
of the network is a ConnectionError. On uvloop nothing changes but `uvloop.run(main())` in the end.

The client's deadline is one absolute time. It bounds the look-up of the name, the connection, the request and the
answer together, whichever of them is slow.
"""

from __future__ import annotations

import argparse
import asyncio
from types import SimpleNamespace

import deadlined


async def echo(conn: deadlined.Conn, idle: float) -> None:
    """Echo until the peer closes or resets the connection, or is silent for `idle` seconds."""
    try:
        conn.set_timeout(idle)  # both directions: a peer that never reads is as bad as one that never sends
        async for data in conn:
            conn.set_timeout(idle)
            await conn.send_all(data)
    except deadlined.DeadlineExceeded as error:
        print(f"{error.op} deadline passed: closing", flush=True)
    except ConnectionError:
        print("the peer has gone", flush=True)


async def serve(port: int, idle: float) -> None:
    """Serve on the loopback interface until cancelled, and print the port."""

    async def handler(conn: deadlined.Conn) -> None:
        await echo(conn, idle)

    listening = asyncio.get_running_loop().create_future()
    # what trio's `nursery.start` passes by itself: an object with a method `started`
    status = SimpleNamespace(started=listening.set_result)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(deadlined.serve_tcp(handler, port, host="127.0.0.1", task_status=status))
        listeners: list[deadlined.Listener] = await listening
        print(f"listening on 127.0.0.1:{listeners[0].socket.getsockname()[1]}", flush=True)


async def ask(port: int, message: bytes, within: float) -> bytes:
    """Send `message` and return its echo. DeadlineExceeded if that takes more than `within` seconds in sum."""
    deadline = deadlined.current_time() + within
    async with await deadlined.open_tcp_stream("localhost", port, deadline=deadline) as conn:
        conn.set_deadline(deadline)  # the same time: what connecting has used up is gone
        await conn.send_all(message)
        await conn.send_eof()
        return b"".join([data async for data in conn])


async def main() -> None:
    """Read the arguments, and serve or ask."""
    parser = argparse.ArgumentParser(description="Echo server on asyncio with an idle deadline, and its client.")
    parser.add_argument("--port", type=int, default=7002, help="0 lets the system choose")
    parser.add_argument("--idle", type=float, default=5.0, help="the server's idle timeout, in seconds")
    parser.add_argument("--say", metavar="TEXT", help="be a client that sends this")
    parser.add_argument("--within", type=float, default=2.0, help="the client's seconds for everything")
    arguments = parser.parse_args()
    if arguments.say is None:
        await serve(arguments.port, arguments.idle)
        return
    try:
        answer = await ask(arguments.port, arguments.say.encode(), arguments.within)
    except deadlined.DeadlineExceeded as error:
        raise SystemExit(f"no answer within {arguments.within:g} s: it was still to {error.op}") from None
    except OSError as error:
        raise SystemExit(str(error)) from None
    print(answer.decode())


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except* KeyboardInterrupt:
        pass
