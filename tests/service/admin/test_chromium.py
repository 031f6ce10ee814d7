"""The live page in a real browser, beside a real service with clients that are slow."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from deadlined.service.admin.events import MOST
from tests.support.admin import AdminClient, admin_of
from tests.support.chromium import Page, chromium
from tests.support.command import Process, Starter

pytestmark = pytest.mark.thorough

# what is to be called later, which the test calls itself
PLAYED_TIMERS = """
    timers = [];
    setTimeout = call => timers.push(call);
    clearTimeout = number => { if (number !== null) timers[number - 1] = null; };
    0
"""

ROWS = "[...document.querySelectorAll('#rows tr')].map(row => row.cells[2].textContent)"


@contextmanager
def clients(process: Process, idle: int, slow: int) -> Iterator[None]:
    """Keep connections open: some that were answered, and some that have sent half a head."""
    with ExitStack() as stack:
        for number in range(idle + slow):
            client: socket.socket = stack.enter_context(process.connect())
            client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" if number < idle else b"GET / HT")
            if number < idle:
                assert client.recv(1000)
        yield


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    with chromium(tmp_path) as found:
        yield found


def served(start: Starter) -> tuple[Process, AdminClient, str]:
    process = start("apps:pid", "--admin", "127.0.0.1:0", "--read-header", "20s", "--no-access-log")
    return process, admin_of(process), process.events("admin listening")[0]["url"]


def test_the_page_shows_what_happens_and_follows_its_controls(start: Starter, page: Page) -> None:
    process, admin, url = served(start)
    with clients(process, 3, 2):
        page.open(url)
        page.wait_for("document.getElementById('status').textContent === 'ready'")
        assert page.wait_for(f"{ROWS}.length === 5 && {ROWS}") == ["header"] * 2 + ["idle"] * 3
        # the time left, of the limit that the configuration sets
        assert page.wait_for("[...document.querySelectorAll('#rows .bar')].every(bar => bar.offsetWidth > 0)")
        # its own connections are not among those
        assert admin.get("/statistics").json["totals"]["accepted"] == 5
        page.evaluate("phase.value = 'header'; phase.dispatchEvent(new Event('change', {bubbles: true}))")
        assert page.wait_for(f"{ROWS}.length === 2 && {ROWS}") == ["header"] * 2
    page.wait_for("document.getElementById('reasons').textContent.includes('client_closed')")
    assert page.evaluate("workers.rows[0].cells[2].textContent") == "serves"
    assert page.evaluate("worker({state: 'serving', ready: true, up: false}).cells[2].textContent") == "does not answer"
    assert page.complaints == []
    process.signal()
    # the stream ends with the drain, and the page says so
    page.wait_for("document.getElementById('status').className === 'bad'")
    assert process.end()[0] == 0


def test_the_time_left_has_no_bar_where_its_limit_is_off(start: Starter, page: Page, tmp_path: Path) -> None:
    (tmp_path / "shop.toml").write_text('[[route]]\npath = "/"\nhandler = "1h"\n')
    process = start("apps:endless", "--admin", "127.0.0.1:0", "--config", "shop.toml", "--drain", "0")
    url = process.events("admin listening")[0]["url"]
    bars = "[...document.querySelectorAll('#rows tr')].map(row => row.querySelectorAll('.bar').length)"
    with process.begin(), process.connect() as slow:
        slow.sendall(b"GET / HT")
        page.open(url)
        page.wait_for(f"{ROWS}.length === 2 && document.querySelectorAll('#rows .bar').length > 0")
        assert page.evaluate(f"[{ROWS}, {bars}]") == [["header", "handler"], [1, 0]]
        assert "no deadline" not in page.evaluate("document.getElementById('rows').textContent")


@pytest.mark.parametrize("then", ["asked -= RELOADED; 0", "listen()"], ids=["after a while", "by a new stream"])
def test_the_limits_are_those_of_a_configuration_that_was_read_again(
    then: str, start: Starter, page: Page, tmp_path: Path
) -> None:
    file = tmp_path / "shop.toml"
    file.write_text('read_header = "20s"\n')
    process = start("apps:pid", "--admin", "127.0.0.1:0", "--config", "shop.toml")
    page.open(process.events("admin listening")[0]["url"])
    page.wait_for("limits.read_header === 20")
    file.write_text('read_header = "30s"\n')
    process.signal(signal.SIGHUP)
    process.events("reloaded")
    page.evaluate(then)
    page.wait_for("limits.read_header === 30")


def test_the_limits_are_asked_for_again_after_a_failure_and_after_a_while(start: Starter, page: Page) -> None:
    _, _, url = served(start)
    page.open(url)
    page.wait_for("limits.read_header === 20")
    page.evaluate("limits = {}; real = fetch; failures = 0; fetch = async () => { failures++; throw Error(); }; 0")
    page.evaluate("asked -= RELOADED; 0")
    page.wait_for("failures > 1")
    page.evaluate("fetch = real; 0")
    page.wait_for("limits.read_header === 20")
    # refused, as while the server is busy
    page.evaluate("limits = {}; fetch = async () => { failures = 0; return new Response('', {status: 503}); }; 0")
    page.evaluate("asked -= RELOADED; 0")
    page.wait_for("failures === 0")
    page.evaluate("fetch = real; 0")
    page.wait_for("limits.read_header === 20")
    assert page.complaints == []


def test_a_page_that_was_refused_tries_again_unless_it_is_paused(start: Starter, page: Page) -> None:
    _, _, url = served(start)
    host, _, port = url.removeprefix("http://").rpartition(":")
    with ExitStack() as stack:
        for _ in range(MOST):
            stream = stack.enter_context(socket.create_connection((host, int(port))))
            stream.sendall(b"GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert stream.recv(12) == b"HTTP/1.1 200"
        page.open(url)
        page.wait_for("document.getElementById('status').textContent.includes('does not answer')")
        assert page.evaluate("[source.readyState, again !== null]") == [2, True]
        page.evaluate("pause()")
        page.evaluate(PLAYED_TIMERS)
        page.evaluate("pause()")
        page.wait_for("source.readyState === 2 && timers.some(each => each)")
        page.evaluate("pause()")
        assert page.evaluate("[timers.some(each => each), source.readyState]") == [False, 2]
        page.evaluate("pause()")
        page.wait_for("source.readyState === 2 && timers.some(each => each)")
    # the others have left
    page.evaluate("timers.findLast(each => each)()")
    page.wait_for("document.getElementById('status').textContent === 'ready'")


def test_a_page_that_gets_nothing_for_some_time_says_so_and_asks_anew(start: Starter, page: Page) -> None:
    process, _, url = served(start)
    page.open(url)
    page.wait_for("document.getElementById('status').textContent === 'ready'")
    page.evaluate(PLAYED_TIMERS)
    # of an event
    page.wait_for("timers.some(each => each)")
    process.signal(signal.SIGSTOP)
    page.evaluate("first = source; timers.findLast(each => each)(); 0")
    assert page.evaluate("[first.readyState, source.readyState]") == [2, 0]
    assert "does not answer" in page.evaluate("document.getElementById('status').textContent")
    process.signal(signal.SIGCONT)
    page.wait_for("document.getElementById('status').textContent === 'ready'")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_on_a_narrow_screen_nothing_but_tables_scrolls_and_text_can_be_read(
    dark: bool, start: Starter, page: Page
) -> None:
    process, _, url = served(start)
    with clients(process, 2, 1):
        page.open(url, width=360, height=700, dark=dark)
        page.wait_for(f"{ROWS}.length === 3")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        colours = page.evaluate(
            "[getComputedStyle(document.body).color, matchMedia('(prefers-color-scheme: dark)').matches]"
        )
        assert colours == ["rgb(255, 255, 255)" if dark else "rgb(0, 0, 0)", dark]


def test_it_can_be_used_by_keyboard(start: Starter, page: Page) -> None:
    process, _, url = served(start)
    page.open(url)
    page.wait_for("document.getElementById('status').textContent === 'ready'")
    reached = []
    for _ in range(6):
        page.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
        if reached[-1] == "pause":
            break
    assert reached == ["phase", "sort", "limit", "pause"]
    page.press("Space")
    page.wait_for("document.getElementById('status').textContent === 'paused'")
    assert page.evaluate("document.getElementById('pause').getAttribute('aria-pressed')") == "true"
    page.press("Space")
    page.wait_for("document.getElementById('status').textContent === 'ready'")
    process.signal()
    process.end()
