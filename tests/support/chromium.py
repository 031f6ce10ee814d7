"""A headless Chromium that is driven over its debugging pipe: no driver and no library is needed."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.applications.daemons import found, tied
from tests.support.command import PATIENCE

_OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")


class Page:
    """One tab."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = answers
        self._buffer = b""
        self._sent = 0
        self._session: str | None = None
        # what the page has complained of: exceptions, failed loads and what its policy forbids
        self.complaints: list[str] = []

    def open(self, url: str, width: int = 1100, height: int = 1400, *, dark: bool = False) -> None:
        """Open a page in a window of this size."""
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.command("Emulation.setEmulatedMedia", features=scheme)
        self.command("Page.navigate", url=url)
        self.wait_for("location.href !== 'about:blank' && document.readyState === 'complete'")

    def command(self, method: str, **parameters: Any) -> Any:
        """Send a command and return its result."""
        self._sent += 1
        message: dict[str, Any] = {"id": self._sent, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._sent:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript."""
        result = self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """Wait until an expression is true, and return its value."""
        end = time.monotonic() + PATIENCE
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < end, (expression, self.complaints, self.evaluate("document.body.innerText"))
            time.sleep(0.05)
        return value

    def press(self, key: str) -> None:
        """Press and release a key."""
        for kind in ("rawKeyDown", "keyUp"):
            code = {"Tab": 9, "Enter": 13, "Space": 32}[key]
            name = " " if key == "Space" else key
            self.command("Input.dispatchKeyEvent", type=kind, key=name, code=key, windowsVirtualKeyCode=code)

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            assert select.select([self._answers], [], [], max(end - time.monotonic(), 0))[0], "Chromium does not answer"
            data = os.read(self._answers, 1 << 20)
            assert data, "Chromium has ended"
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        method = event.get("method", "")
        failed = method == "Network.loadingFailed" and not event["params"].get("canceled")
        if failed or method in ("Runtime.exceptionThrown", "Log.entryAdded"):
            self.complaints.append(json.dumps(event["params"]))


@contextmanager
def chromium(directory: Path) -> Iterator[Page]:
    """Run Chromium with a profile in `directory`."""
    their_commands, commands = os.pipe()
    answers, their_answers = os.pipe()
    # Chromium reads from descriptor 3 and writes to 4
    script = f'exec 3<&{their_commands} 4>&{their_answers}; exec "$@"'
    command = [found("chromium"), *_OPTIONS, f"--user-data-dir={directory}", "--remote-debugging-pipe"]
    with (directory / "chromium.log").open("w") as log:
        process = subprocess.Popen(
            ["bash", "-c", script, "bash", *tied(), *command],
            pass_fds=(their_commands, their_answers),
            stdout=log,
            stderr=log,
        )
    os.close(their_commands)
    os.close(their_answers)
    page = Page(commands, answers)
    try:
        yield page
        page.command("Browser.getVersion")
    finally:
        os.close(commands)
        os.close(answers)
        process.terminate()
        process.wait(PATIENCE)
