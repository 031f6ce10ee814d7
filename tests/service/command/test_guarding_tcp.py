"""`deadlined proxy --tcp` as a process: in front of redis and PostgreSQL, and of a server that the test plays."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme

from deadlined.runtime import LOOPS
from tests.applications.daemons import postgresql, redis_server
from tests.service.command.guards import Guard, guards
from tests.support.admin import admin_of, samples
from tests.support.command import PATIENCE, Process

WORKERS = pytest.mark.parametrize("workers", ["1", "2"])


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[Guard]:
    with guards(tmp_path) as start:
        yield start


@pytest.fixture(scope="module")
def cache() -> Iterator[str]:
    with redis_server() as url:
        yield urlsplit(url).netloc


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgresql() as url:
        yield urlsplit(url).netloc.rpartition("@")[2]


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE)
        yield listening


def before(guard: Guard, listening: socket.socket, *arguments: str) -> Process:
    """Start a guard in front of a server that the test plays."""
    return guard("proxy", "--tcp", "--upstream", f"127.0.0.1:{listening.getsockname()[1]}", *arguments)


def joined(process: Process, listening: socket.socket) -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection through the guard."""
    client = process.connect()
    peer, _ = listening.accept()
    peer.settimeout(PATIENCE)
    peer.sendall(b"hello")
    assert client.recv(5) == b"hello"
    return client, peer


# real servers


@WORKERS
@pytest.mark.parametrize("loop", LOOPS)
def test_redis(guard: Guard, cache: str, loop: str, workers: str) -> None:
    redis = pytest.importorskip("redis")
    process = guard("proxy", "--tcp", "--upstream", cache, "--loop", loop, "--workers", workers)
    with redis.Redis(port=process.port, db=1) as client:
        value = bytes(range(256)) * 40_000
        client.set("big", value)
        assert client.get("big") == value
        with client.pubsub() as listener, client.pipeline() as pipeline:
            listener.subscribe("news")
            assert listener.get_message(timeout=PATIENCE)["type"] == "subscribe"
            for number in range(1000):
                pipeline.rpush("list", number)
            pipeline.publish("news", "done")
            assert pipeline.execute()[-2:] == [1000, 1]
            assert listener.get_message(timeout=PATIENCE)["data"] == b"done"
        client.flushdb()
    process.signal()
    assert process.end() == (0, "")


@WORKERS
@pytest.mark.parametrize("loop", LOOPS)
def test_postgresql(guard: Guard, database: str, loop: str, workers: str) -> None:
    asyncpg = pytest.importorskip("asyncpg")
    process = guard("proxy", "--tcp", "--upstream", database, "--loop", loop, "--workers", workers)

    async def ask(number: int) -> int:
        connection = await asyncpg.connect(host="127.0.0.1", port=process.port, user="shop", database="postgres")
        try:
            rows = await connection.fetch("SELECT i, repeat('x', 100) FROM generate_series(1, $1::int) i", number)
            assert await connection.fetchval("SELECT length($1::bytea)", bytes(5_000_000)) == 5_000_000
            return len(rows)
        finally:
            await connection.close()

    async def ask_often() -> list[int]:
        return await asyncio.gather(*(ask(1000 * number) for number in range(1, 11)))

    assert asyncio.run(ask_often()) == [1000 * number for number in range(1, 11)]
    process.signal()
    assert process.end() == (0, "")
    assert [line["phase"] for line in process.events("connection")] == ["tunnel"] * 10


def test_tls_in_front_of_redis(guard: Guard, cache: str, tmp_path: Path) -> None:
    redis = pytest.importorskip("redis")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "cert.pem"))
    process = guard("proxy", "--tcp", "--upstream", cache, "--certfile", "cert.pem")
    assert process.url.startswith("tls://127.0.0.1:")
    with redis.Redis("127.0.0.1", process.port, ssl=True, ssl_ca_certs=str(tmp_path / "ca.pem")) as client:
        assert client.ping()
        client.set("x", b"y" * 1_000_000)
        assert client.get("x") == b"y" * 1_000_000
    process.signal()
    assert process.end() == (0, "")


# what the service does


def test_it_says_where_it_listens_and_how_a_connection_ended(guard: Guard, listening: socket.socket) -> None:
    process = before(guard, listening)
    assert process.url.startswith("tcp://127.0.0.1:")
    assert "http" not in process.lines[-1]
    client, peer = joined(process, listening)
    with client, peer:
        client.sendall(b"bye")
        client.shutdown(socket.SHUT_WR)
        assert peer.recv(10) == b"bye"
        assert peer.recv(10) == b""
        peer.close()
        assert client.recv(10) == b""
    line = process.wait_for("connection")
    assert (line["reason"], line["phase"], line["requests"]) == ("done", "tunnel", 0)
    assert (line["received"], line["sent"]) == (3, 5)
    process.signal()
    assert process.end() == (0, "")
    assert process.events("request") == []
    assert (process.lines[-1]["requests"], process.lines[-1]["reasons"]) == (0, {"done": 1})


@WORKERS
def test_a_drain_waits_for_connections(guard: Guard, listening: socket.socket, workers: str) -> None:
    process = before(guard, listening, "--workers", workers, "--drain", "1h")
    client, peer = joined(process, listening)
    with client, peer:
        process.signal()
        process.wait_for("draining")
        peer.sendall(b"still here")
        assert client.recv(10) == b"still here"
        client.close()
        assert peer.recv(10) == b""
    assert process.end() == (0, "")


@WORKERS
def test_a_drain_cuts_at_its_deadline_and_says_so(guard: Guard, listening: socket.socket, workers: str) -> None:
    process = before(guard, listening, "--workers", workers, "--drain", "500ms")
    client, peer = joined(process, listening)
    with client, peer:
        process.signal()
        with pytest.raises(ConnectionResetError):
            assert client.recv(10) == b"no byte"
        with pytest.raises(ConnectionResetError):
            peer.recv(10)
    assert process.end()[0] == 4
    assert [line["reason"] for line in process.events("connection")] == ["drain_timeout"]


def test_a_second_signal_cuts_at_once(guard: Guard, listening: socket.socket) -> None:
    process = before(guard, listening, "--drain", "1h")
    client, peer = joined(process, listening)
    with client, peer:
        process.signal()
        process.wait_for("draining")
        process.signal_later()
        with pytest.raises(ConnectionResetError):
            client.recv(10)
    assert process.end() == (4, "")


@WORKERS
def test_the_admin_listener_knows_its_connections(guard: Guard, listening: socket.socket, workers: str) -> None:
    process = before(guard, listening, "--admin", "127.0.0.1:0", "--workers", workers)
    admin = admin_of(process)
    for _ in range(int(workers) - 1):
        process.wait_for("listening")
    client, peer = joined(process, listening)
    with client, peer:
        (found,) = admin.get("/connections?phase=tunnel").json["connections"]
        assert (found["phase"], found["requests"]) == ("tunnel", 0)
        assert 60 < found["left"] <= 75
        assert admin.get("/readyz").status == 200
        metrics = samples(admin.get("/metrics").body)
        assert sum(value for name, value in metrics.items() if "connections_open{" in name and "tunnel" in name) == 1
        assert sum(value for name, value in metrics.items() if name.startswith("deadlined_requests_total")) == 0
        assert sum(value for name, value in metrics.items() if name.startswith("deadlined_upstream_active{")) == 1
    process.signal()
    assert process.end() == (0, "")


@WORKERS
def test_a_hangup_changes_the_deadlines_of_open_connections(
    guard: Guard, listening: socket.socket, tmp_path: Path, workers: str
) -> None:
    upstream = f"upstream = '127.0.0.1:{listening.getsockname()[1]}'\ntcp = true\nworkers = {workers}\n"
    file = tmp_path / "guard.toml"
    file.write_text(f"{upstream}idle = '1h'\n")
    process = guard("proxy", "--config", str(file))
    client, peer = joined(process, listening)
    with client, peer:
        file.write_text(f"{upstream}idle = '100ms'\n".replace("true", "false"))
        process.signal(signal.SIGHUP)
        told = process.wait_for("reloaded")
        assert (told["changed"], told["needs_restart"]) == ({"idle": ["3600s", "100ms"]}, ["tcp"])
        assert client.recv(10) == b""
    assert process.wait_for("connection")["reason"] == "idle_timeout"
    client, peer = joined(process, listening)
    with client, peer:
        process.signal()
    assert process.end()[0] == 0


def test_an_upstream_that_is_not_there_resets_the_client(guard: Guard, listening: socket.socket) -> None:
    process = before(guard, listening)
    listening.close()
    with process.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            assert client.recv(10) == b"no byte"
    process.wait_for_all("connection")
    line, access = [line for line in process.lines if line["level"] == "warning"]
    assert line["event"].endswith("(upstream_connect_failed): the client was reset")
    assert access["event"] == "connection"
    assert process.events("connection")[0]["reason"] == "upstream_failed"
    process.signal()
    assert process.end() == (0, "")


def test_a_variable_and_a_file_ask_for_it_too(guard: Guard, listening: socket.socket) -> None:
    # that of HTTP is meant for another service
    variables = {"DEADLINED_TCP": "true", "DEADLINED_READ_HEADER": "3s"}
    process = guard("proxy", "--upstream", f"127.0.0.1:{listening.getsockname()[1]}", **variables)
    assert process.url.startswith("tcp://")
    client, peer = joined(process, listening)
    with client, peer:
        process.signal()
    assert process.end()[0] == 0
