"""A crowd of clients that leave at any moment, against an application of Starlette that does what applications do: when
they have gone nothing of them is left, and the service ends in order."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.admin import AdminClient, admin_of
from tests.support.command import Process, Starter
from tests.support.hostile import attack

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted in /proc"),
]

CLIENTS, CONNECTIONS = 30, 25

SHOP = """
import time
import anyio
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

async def hello(request):
    return PlainTextResponse("hello")

async def sleep(request):
    await anyio.sleep(0.01)
    return PlainTextResponse("slept")

async def stream(request):
    async def pieces():
        for _ in range(20):
            yield b"x" * 1000
            await anyio.sleep(0.002)
    return StreamingResponse(pieces())

async def events(request):
    async def pieces():
        while True:
            yield b"data: now\\n\\n"
            await anyio.sleep(0.01)
    return StreamingResponse(pieces(), media_type="text/event-stream")

async def upload(request):
    return PlainTextResponse(str(len(await request.body())))

async def large(request):
    return Response(bytes(300_000))

async def later(request):
    return PlainTextResponse("soon", background=BackgroundTask(anyio.sleep, 0.02))

async def limited(request):
    with anyio.move_on_after(0.01):
        await anyio.sleep(1)
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(anyio.sleep, 0.005)
    return PlainTextResponse("limited")

async def thread(request):
    await anyio.to_thread.run_sync(time.sleep, 0.005)
    return PlainTextResponse("thread")

async def waits(request):
    while not await request.is_disconnected():
        await anyio.sleep(0.005)
    return PlainTextResponse("gone")

HANDLERS = [hello, sleep, stream, events, upload, large, later, limited, thread, waits]
app = Starlette(routes=[Route("/" + one.__name__, one, methods=["GET", "POST"]) for one in HANDLERS])
"""

PATHS = [
    "/hello",
    "/hello",
    "/hello",
    "/sleep",
    "/stream",
    "/events",
    "/upload",
    "/large",
    "/later",
    "/limited",
    "/thread",
]


def descriptors(process: Process) -> int:
    return len(os.listdir(f"/proc/{process.pid}/fd"))  # noqa: PTH208, one system call less between two counts


def nobody_is_left(admin: AdminClient) -> bool:
    """Ask until no connection is open and no handler runs. The last ones may be noticed, or cancelled, a little later;
    False if they are not after many questions."""
    return any(json.loads(admin.get("/connections").body)["connections"] == [] for _ in range(10_000))


@pytest.mark.parametrize("loop", ["trio", "asyncio", "uvloop"])
@pytest.mark.parametrize(
    "paths",
    # one that waits for its client's end, and bodies that are not read, fill the kernel's buffers: it knows of no end
    [PATHS, [path for path in PATHS if path != "/upload"] + ["/waits"]],
    ids=["all but one that waits", "all but an upload"],
)
def test_nothing_of_them_is_left(start: Starter, tmp_path: Path, loop: str, paths: list[str]) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    process = start("shop:app", "--loop", loop, "--admin", "127.0.0.1:0", "--no-access-log")
    admin = admin_of(process)
    assert process.get("/hello").endswith("hello")
    before = descriptors(process)
    ended = attack(process.port, paths, CLIENTS, CONNECTIONS)
    assert ended.total() == CLIENTS * CONNECTIONS
    # most have left by themselves
    assert ended["left"] > ended.total() / 2
    assert nobody_is_left(admin)
    # a thread of a pool may keep what it has opened
    assert descriptors(process) <= before + 2
    assert process.get("/hello").endswith("hello")
    process.signal()
    code, said = process.end()
    assert (code, said) == (0, "")
    assert not [line for line in process.lines if line["level"] == "error"]
