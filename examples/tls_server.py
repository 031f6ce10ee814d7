"""A TLS echo server whose handshake and reads have deadlines.

    python examples/tls_server.py --port 7443                              # makes a certificate for itself
    python examples/tls_server.py --port 7443 --certfile c.pem --keyfile k.pem
    openssl s_client -quiet -connect 127.0.0.1:7443                        # each line comes back
    nc 127.0.0.1 7443                                                      # no handshake: closed after 5 seconds

`TlsConn` is TLS over a connection, under the same deadlines and without a task. A deadline that has passed can be moved
and the stream continues, also in the handshake and in the middle of a send.
"""

from __future__ import annotations

import argparse
import ssl
import subprocess
import tempfile
from pathlib import Path

import trio

import deadlined

# seconds
HANDSHAKE = 5.0
IDLE = 30.0


async def echo(conn: deadlined.Conn, context: ssl.SSLContext) -> None:
    """Complete the handshake within HANDSHAKE seconds, then echo."""
    stream = deadlined.TlsConn(conn, context, server_side=True)
    try:
        stream.set_timeout(HANDSHAKE)
        await stream.do_handshake()
        while True:
            stream.set_timeout(IDLE)
            data = await stream.receive_some()
            if not data:
                return
            await stream.send_all(data)
    except deadlined.DeadlineExceeded as error:
        print(f"{error.op} deadline passed: closing", flush=True)
    except trio.BrokenResourceError as error:
        print(f"the connection is broken: {error.__cause__ or error}", flush=True)
    finally:
        stream.close()


async def serve(port: int, context: ssl.SSLContext) -> None:
    """Serve on the loopback interface until cancelled, and print the port."""
    async with trio.open_nursery() as nursery:

        async def handler(conn: deadlined.Conn) -> None:
            await echo(conn, context)

        async def start(task_status: trio.TaskStatus[list[deadlined.Listener]]) -> None:
            await deadlined.serve_tcp(handler, port, host="127.0.0.1", task_status=task_status)

        listeners: list[deadlined.Listener] = await nursery.start(start)
        print(f"listening on 127.0.0.1:{listeners[0].socket.getsockname()[1]}", flush=True)


def self_signed(directory: Path) -> tuple[Path, Path]:
    """Make a certificate for localhost that is valid for a day, and its key, by the `openssl` command."""
    certificate, key = directory / "cert.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-out", str(certificate), "-keyout", str(key)]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)
    return certificate, key


def load(certfile: Path | None, keyfile: Path | None) -> ssl.SSLContext:
    """Make the server's context, with a self-signed certificate if none is given."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    if certfile is not None:
        context.load_cert_chain(certfile, keyfile)
        return context
    with tempfile.TemporaryDirectory() as directory:
        context.load_cert_chain(*self_signed(Path(directory)))
    return context


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(description="TLS echo server with deadlines.")
    parser.add_argument("--port", type=int, default=7443, help="0 lets the system choose")
    parser.add_argument("--certfile", type=Path, help="PEM; without it a self-signed one is made")
    parser.add_argument("--keyfile", type=Path, help="PEM, if the key is not in the certificate's file")
    arguments = parser.parse_args()
    if arguments.keyfile is not None and arguments.certfile is None:
        parser.error("--keyfile needs --certfile")
    trio.run(serve, arguments.port, load(arguments.certfile, arguments.keyfile))


if __name__ == "__main__":
    try:
        main()
    except* KeyboardInterrupt:
        pass
