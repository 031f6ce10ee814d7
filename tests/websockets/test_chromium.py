"""A real browser: Chromium, without a window, opens a page of each event loop and tells what the page has seen."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from tests.applications.daemons import found
from tests.applications.running import Output, Server
from tests.support.command import PATIENCE, kill_all

from .running import SERVERS, serving

pytestmark = pytest.mark.thorough

# as root, and where there is no network, screen, or /dev/shm of a useful size
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-extensions"),
    "--remote-debugging-port=0",
)


class Browser:
    """A client of Chromium's DevTools protocol."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._numbers = count(1)

    def call(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        """Call a method, and return its result."""
        number = next(self._numbers)
        request = {"id": number, "method": method, "params": parameters}
        self._connection.send(json.dumps(request | ({"sessionId": session} if session else {})))
        while True:
            answer = json.loads(self._connection.recv(PATIENCE))
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def evaluate(self, url: str, *expressions: str) -> list[Any]:
        """Open a page, and return what JavaScript says there: each value, awaited if it is a promise."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable", session)
        self.call("Page.navigate", session, url=url)
        values = []
        for expression in expressions:
            result = self.call(
                "Runtime.evaluate", session, expression=expression, awaitPromise=True, returnByValue=True
            )
            assert "exceptionDetails" not in result, result
            values.append(result["result"].get("value"))
        self.call("Target.closeTarget", targetId=target)
        return values


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder: Path = tmp_path_factory.mktemp("chromium")
    command = [found("chromium"), *OPTIONS, f"--user-data-dir={folder}", "about:blank"]
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
    ) as process:
        assert process.stderr is not None
        output = Output(process.stderr, "DevTools listening on")
        try:
            assert output.ready.wait(PATIENCE), "it does not start"
            url = re.search(r"ws://\S+", "".join(output.lines))
            assert url, f"it has ended: {output.lines}"
            with connect(url[0], max_size=None, proxy=None) as connection:
                yield Browser(connection)
        finally:
            kill_all(process)
            process.wait(PATIENCE)
            output.join()


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with serving(request.param, "browser:app") as server:
        yield server


def test_a_page_talks_to_the_server_that_it_came_from(browser: Browser, server: Server) -> None:
    # the page may not be there yet
    arrived = "new Promise(resolve => { const look = () => window.finished ? resolve() : setTimeout(look, 5); look() })"
    _, _, text = browser.evaluate(server.url, arrived, "window.finished", "document.getElementById('seen').textContent")
    seen = json.loads(text)
    _, protocol, extension = seen["echo"].pop(0)
    assert protocol == ""
    assert extension.startswith("permessage-deflate")
    assert seen["echo"] == [
        ["text", "κόσμε"],
        ["binary", 200_000, 600_000],
        ["text", ""],
        ["binary", 70_000, 70_000 * ord("x")],
        ["close", 4001, "ça suffit", True],
    ]
    assert seen["leave"][0][:2] == ["open", "second"]
    assert seen["leave"][1:] == [["text", "visits=3 of http://127.0.0.1"], ["close", 4002, "café fermé", True]]
    assert seen["refused"] == [["error"], ["close", 1006, "", False]]
    assert seen["many"] == [str(number) for number in range(20)]
