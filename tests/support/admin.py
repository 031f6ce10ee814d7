"""An admin listener in the test's own run, beside a server that it describes; and metrics as a client reads them."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from deadlined.http import HttpServer
from deadlined.runtime import current_host
from deadlined.service.admin.address import AdminSockets, open_admin
from deadlined.service.admin.gather import Serving
from deadlined.service.admin.listener import AdminListener
from deadlined.service.admin.local import LocalService
from deadlined.service.admin.picture import (
    Answer,
    Counters,
    Gauges,
    Histogram,
    Picture,
    UpstreamCounters,
    UpstreamGauges,
    Worker,
)
from deadlined.service.admin.service import Service
from deadlined.service.admin.showing import shown
from deadlined.service.config.rereading import Reloaded
from tests.applications.daemons import found
from tests.support.command import PATIENCE, Process

BUILD = {"version": "1", "loop": "trio"}


def checked_by_promtool(metrics: bytes) -> str:
    """Return the complaints of `promtool check metrics`, "" if there are none."""
    done = subprocess.run([found("promtool"), "check", "metrics"], input=metrics, capture_output=True, check=False)
    return (done.stdout + done.stderr).decode()


def samples(metrics: bytes) -> dict[str, float]:
    """Return the samples by their name and sorted labels: `up{worker="0"}`."""
    read = {}
    for family in text_string_to_metric_families(metrics.decode()):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            read[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return read


@dataclass(frozen=True)
class Response:
    """What the admin listener has answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body, parse_constant=pytest.fail)

    @property
    def detail(self) -> str:
        """The sentence of an error."""
        assert self.headers["content-type"] == "application/problem+json"
        assert self.json["status"] == self.status
        return str(self.json["detail"])


class Asker:
    """A client of the admin listener that makes a connection per request. `logged`: what the listener has logged."""

    def __init__(self, port: int, listener: AdminListener, logged: list[str]) -> None:
        self.port = port
        self.listener = listener
        self.logged = logged

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self.port)

    async def get(self, path: str, method: str = "GET", headers: Mapping[str, str] | None = None) -> Response:
        lines = [f"{method} {path} HTTP/1.1", "connection: close"]
        lines += [
            f"{name}: {value}" for name, value in ({"host": f"127.0.0.1:{self.port}"} | dict(headers or {})).items()
        ]
        async with await self.connect() as stream:
            await stream.send_all("\r\n".join([*lines, "", ""]).encode())
            return parsed(await everything(stream))


async def everything(stream: trio.SocketStream) -> bytes:
    """Return what comes until the end."""
    received = b""
    async for data in stream:
        received += data
    return received


def parsed(data: bytes) -> Response:
    """Return a response that ended with its connection."""
    head, _, body = data.partition(b"\r\n\r\n")
    status, *fields = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    return Response(int(status.split()[1]), headers, body)


@asynccontextmanager
async def asking(service: Service, sockets: AdminSockets | None = None, **config: object) -> AsyncIterator[Asker]:
    """Run an admin listener on the loopback interface until the block ends."""
    sockets = sockets or open_admin("127.0.0.1:0", None)
    logged: list[str] = []
    listener = AdminListener(sockets, service, shown(config), BUILD, lambda event, **fields: logged.append(event))
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listener.serve)
            yield Asker(sockets.sockets[0].getsockname()[1], listener, logged)
            listener.shutdown()
    finally:
        sockets.close()


def local(server: HttpServer) -> LocalService:
    """Return `server` as a service that serves."""
    service = LocalService(server.shutdown, lambda: Reloaded("reloaded"))
    service.serving = Serving(server, current_host().poller, lambda: 0)
    return service


class Still(Service):
    """A service that never changes."""

    def __init__(self, picture: Picture) -> None:
        self.picture = picture

    async def ask(self, question: object) -> Picture:
        return self.picture


def counters(number: int = 0, **changes: Any) -> Counters:
    """Return counters in which everything was counted `number` times."""
    histogram = Histogram((0.1, 1.0), (number, 0, 0), float(number))
    table = {"idle": number}
    fields: dict[str, Any] = dict.fromkeys(("accepted", "received", "sent", "fired", "resets", "stalls"), number)
    fields |= {"closed": table, "expired": table, "requests": {"GET": {"200": number}}, "cpu": float(number)}
    fields |= {"retries": number, "overloaded": number, "refused": {"queue_full": number}}
    fields["upstreams"] = {"unix:/a": UpstreamCounters(tries=number, connects=number, failures={"reset": number})}
    return Counters(**fields | {"durations": histogram, "lateness": histogram} | changes)


def gauges(open_: int = 0) -> Gauges:
    """Return the gauges of a process with so many idle connections."""
    return Gauges(
        phases={"idle": open_},
        in_flight=0,
        background=0,
        armed=open_,
        zombies=0,
        wakes_in=None,
        resident=1,
        open_files=1,
        took=0.0,
        upstreams={"unix:/a": UpstreamGauges(active=open_, idle=open_, up=True)},
        waiting=open_,
        running=open_,
        queued=open_,
        max_connections=100,
    )


def answer(number: int = 0, question: int = 0, open_: int = 0) -> Answer:
    """Return what a process has to say that has counted everything `number` times."""
    return Answer(id=question, counters=counters(number), gauges=gauges(open_))


def picture(*answers: Answer | None, retired: Counters | None = None) -> Picture:
    """Return a service of worker processes with these answers; None is one that did not answer."""
    workers = [
        Worker(worker=number, pid=100 + number, up=one is not None, state="serving", answer=one)
        for number, one in enumerate(answers)
    ]
    return Picture(id=1, status="ready", wanted=len(workers), restarts=0, workers=workers, retired=retired)


class AdminClient:
    """A client of the admin listener of another process. `url` is as its log has it."""

    def __init__(self, url: str) -> None:
        self._url = url

    def get(self, path: str, method: str = "GET", headers: Mapping[str, str] | None = None) -> Response:
        """Ask on a connection of its own."""
        connection = http.client.HTTPConnection("localhost", timeout=PATIENCE)
        if self._url.startswith("unix:"):
            connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.sock.settimeout(PATIENCE)
            connection.sock.connect(self._url.removeprefix("unix:"))
        else:
            host, _, port = self._url.removeprefix("http://").rpartition(":")
            connection.sock = socket.create_connection((host.strip("[]"), int(port)), PATIENCE)
        with closing(connection):
            connection.request(method, path, headers=dict(headers or {}))
            answer = connection.getresponse()
            fields = {name.lower(): value for name, value in answer.getheaders()}
            return Response(answer.status, fields, answer.read())

    def metrics(self) -> dict[str, float]:
        """Return all samples."""
        answer = self.get("/metrics")
        assert answer.status == 200, answer.body
        return samples(answer.body)


def admin_of(process: Process) -> AdminClient:
    """Return a client for a process that logs where its admin listener is."""
    # with worker processes it is a process of its own, which may tell later than they do
    told = process.events("admin listening") or [process.wait_for("admin listening")]
    return AdminClient(told[-1]["url"])
