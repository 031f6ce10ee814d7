"""The live page beside fifteen thousand open connections, in a real browser. Counts, not times."""

from __future__ import annotations

import json
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.admin import admin_of
from tests.support.chromium import chromium
from tests.support.command import PATIENCE, Process, Starter

# opening and closing so many takes a while
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(240)]

WANTED = 15_000
# descriptors that each process needs beside those of the connections, with the reserve of the server
OTHERS = 600

REQUEST = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"

# one in so many connections has asked once: the others were accepted before it
BATCH = 100

# of the page: rows, all elements, and how often it was updated
ROWS = "document.querySelectorAll('#rows tr').length"
ELEMENTS = "document.querySelectorAll('*').length"
COUNT_UPDATES = """
    window.updates = 0;
    new MutationObserver(() => window.updates++).observe(document.getElementById('shown'), {childList: true});
"""

# an event of 25 connections, and bytes of each further one
EVENT, LINE = 8_000, 200


@contextmanager
def connections(process: Process, number: int) -> Iterator[None]:
    """Keep so many connections open, each hundred from an address of its own. One in BATCH is idle after a request, the
    others have sent nothing."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    try:
        with ExitStack() as stack:
            for one in range(number):
                client = stack.enter_context(socket.socket())
                client.settimeout(PATIENCE)
                client.bind((f"127.0.1.{1 + one // BATCH % 200}", 0))
                client.connect(("127.0.0.1", process.port))
                if one % BATCH == BATCH - 1:
                    client.sendall(REQUEST)
                    assert client.recv(1000).startswith(b"HTTP/1.1 200")
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def event(url: str, limit: int) -> bytes:
    """Return an event of the stream."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE) as client, client.makefile("rb") as lines:
        client.sendall(f"GET /events?limit={limit} HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
        return next(line for line in lines if line.startswith(b"data: ")).removeprefix(b"data: ")


def test_the_page_stays_small_and_usable(start: Starter, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    number = min(WANTED, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - OTHERS)
    if number < WANTED:
        with capsys.disabled():
            print(f"the limit of open files allows {number} connections here, not {WANTED}")
    process = start("apps:pid", "--admin", "127.0.0.1:0", "--read-header", "1h", "--idle", "1h", "--no-access-log")
    admin, url = admin_of(process), process.events("admin listening")[0]["url"]
    with chromium(tmp_path) as page, connections(process, number):
        page.open(url, width=360, height=700)
        page.wait_for(f"{ROWS} === 25")
        page.evaluate(COUNT_UPDATES)
        page.wait_for("window.updates >= 5")
        assert page.evaluate("document.getElementById('shown').textContent") == f"25 of {number:,} shown"
        assert page.evaluate(f"{ROWS} === 25 && {ELEMENTS} < 800")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        # the controls work, and the largest table is bounded, too
        page.evaluate("limit.value = '500'; limit.dispatchEvent(new Event('change', {bubbles: true}))")
        page.wait_for(f"{ROWS} === 500")
        page.evaluate("window.updates = 0")
        page.wait_for("window.updates >= 3")
        assert page.evaluate(f"{ROWS} === 500 && {ELEMENTS} < 6000")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.evaluate("phase.value = 'idle'; phase.dispatchEvent(new Event('change', {bubbles: true}))")
        page.wait_for(f"{ROWS} === {number // BATCH}")
        assert page.complaints == []
        # the service serves meanwhile, and none of its connections was ended
        assert process.get().startswith("HTTP/1.1 200")
        told = admin.get("/statistics")
        assert told.status == 200, told.body
        found = told.json
        assert sum(found["phases"].values()) == number
        assert sum(found["totals"]["closed"].values()) == 1
        for limit in (0, 25, 500, 1000):
            text = event(url, limit)
            assert len(json.loads(text)["connections"]["connections"]) == limit
            assert len(text) <= EVENT + limit * LINE
    process.signal()
    assert process.end()[0] == 0
