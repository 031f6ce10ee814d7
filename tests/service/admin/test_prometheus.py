"""A real Prometheus that scrapes a real service, and every query of the dashboard."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.applications.daemons import found, free_port, tied
from tests.support.admin import admin_of
from tests.support.command import PATIENCE, Process, Starter

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "examples" / "prometheus.yml"
DASHBOARD = json.loads((ROOT / "examples" / "grafana" / "deadlined.json").read_text())

APP = """
import sys
from apps import answer

async def app(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    if scope["path"] == "/fails":
        raise LookupError("lost")
    await answer(send, b"hello")
"""


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DASHBOARD["panels"]
    return found


def expressions(kind: str = "") -> list[str]:
    """Return every query, or those of this kind of panels, for all jobs and instances. A rate is over some scrapes, as
    Grafana's own interval is."""
    texts = [target["expr"] for panel in panels() if kind in panel["type"] for target in panel["targets"]]
    return [text.replace("$__rate_interval", "5s").replace("$job", ".+").replace("$instance", ".+") for text in texts]


def good_traffic(process: Process) -> None:
    for _ in range(5):
        process.get()


def traffic(process: Process) -> None:
    """Make requests of every kind that a panel shows: good ones, one that fails, and one that is too slow."""
    good_traffic(process)
    process.get("/fails")
    with process.connect() as slow:
        slow.sendall(b"GET / HT")
        assert slow.recv(1000).startswith(b"HTTP/1.1 408 ")


class Prometheus:
    """A Prometheus that runs."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def get(self, path: str, **parameters: str) -> Any:
        """Return the answer as JSON; text if it is none."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self._url}{path}?{query}", timeout=PATIENCE) as answer:
            text = answer.read().decode()
        return json.loads(text) if text.startswith("{") else text

    def is_ready(self) -> bool:
        try:
            return "ready" in self.get("/-/ready").lower()
        except (urllib.error.URLError, ConnectionError):
            return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series that an instant query finds, without those that are not a number."""
        found: list[dict[str, Any]] = self.get("/api/v1/query", query=expression)["data"]["result"]
        return [series for series in found if series["value"][1] != "NaN"]

    def targets(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/api/v1/targets")["data"]["activeTargets"]
        return found


@contextmanager
def prometheus(directory: Path, target: str) -> Iterator[Prometheus]:
    """Run Prometheus with the example's configuration, which scrapes `target` here, and often."""
    config = CONFIG.read_text().replace("127.0.0.1:9000", target).replace("15s", "200ms")
    assert target in config
    (directory / "prometheus.yml").write_text(config)
    port = free_port()
    command = [
        *tied(),
        found("prometheus"),
        f"--config.file={directory}/prometheus.yml",
        f"--storage.tsdb.path={directory}/data",
    ]
    with (directory / "log").open("w") as log:
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stderr=log, stdout=log)
    try:
        database = Prometheus(port)
        wait(database.is_ready, (directory / "log").read_text)
        yield database
    finally:
        process.terminate()
        process.wait(PATIENCE)


def wait(holds: Any, otherwise: Any) -> None:
    """Wait until `holds()`; fail with `otherwise()`."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, otherwise()
        time.sleep(0.1)


def wait_until_found(database: Prometheus, missing: list[str], ask: Callable[[], None]) -> None:
    """Make requests until each of these queries has found something."""

    def all_found() -> bool:
        ask()
        missing[:] = [expression for expression in missing if not database.query(expression)]
        return not missing

    wait(all_found, lambda: missing)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_prometheus_scrapes_it_and_each_query_of_the_dashboard_finds_something(
    workers: str, start: Starter, tmp_path: Path
) -> None:
    (tmp_path / "shown.py").write_text(APP)
    process = start(
        "shown:app", "--workers", workers, "--admin", "127.0.0.1:0", "--read-header", "50ms", "--no-access-log"
    )
    admin = admin_of(process)
    target = process.events("admin listening")[0]["url"].removeprefix("http://")
    with prometheus(tmp_path, target) as database:
        # a figure of what has not happened is 0, and not "No data"
        wait_until_found(database, expressions("stat"), partial(good_traffic, process))
        wait_until_found(database, expressions(), partial(traffic, process))
        (scraped,) = database.targets()
        assert (scraped["health"], scraped["lastError"]) == ("up", "")
        assert database.query("deadlined_ready")[0]["value"][1] == "1"
        # what Prometheus keeps is what the service has counted
        wait(
            lambda: database.query("sum(deadlined_requests_total)")[0]["value"][1] == str(counted(admin.metrics())),
            lambda: "the totals do not agree",
        )
    process.signal()
    assert process.end()[0] == 0


def counted(metrics: dict[str, float]) -> int:
    return int(sum(value for name, value in metrics.items() if name.startswith("deadlined_requests_total{")))


def test_the_examples_configuration_is_valid() -> None:
    done = subprocess.run(
        [found("promtool"), "check", "config", str(CONFIG)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_dashboard_shows_what_it_promises_and_panels_do_not_overlap() -> None:
    used = {name for expression in expressions() for name in re.findall(r"deadlined_\w+", expression)}
    assert {
        "deadlined_connections_open",
        "deadlined_connections_closed_total",
        "deadlined_deadline_expired_total",
        "deadlined_deadline_lateness_seconds_bucket",
        "deadlined_request_duration_seconds_bucket",
        "deadlined_requests_total",
        "deadlined_worker_up",
    } <= used
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels())
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels()}) == len(panels())
