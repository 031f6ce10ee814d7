"""What a server of this package says of itself: its admin listener's metrics and connections (docs/metrics.md)."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from ..target import Target, UnusableTargetError

# seconds for an answer: a scrape of many worker processes may wait for one
_PATIENCE = 5.0

# a metric's name and the value of its only label of interest, "" without any
Metrics = dict[tuple[str, str], float]


@dataclass(frozen=True)
class Admin:
    """An admin listener. UnusableTargetError of each method says what is wrong with it."""

    target: Target
    token: str = ""

    def metrics(self) -> Metrics:
        """Return every sample by its name and its label; of several labels the code counts, or the first."""
        found: Metrics = {}
        with suppress(ValueError):  # no metrics at all
            for family in text_string_to_metric_families(self._get("/metrics").decode()):
                for sample in family.samples:
                    label = sample.labels.get("code") or next(iter(sample.labels.values()), "")
                    found[sample.name, label] = found.get((sample.name, label), 0.0) + sample.value
        if ("deadlined_connections_accepted_total", "") not in found:
            raise UnusableTargetError(f"{self.target.url} has no metrics of deadlined: is it the address of --admin?")
        return found

    def idle(self) -> tuple[list[dict[str, Any]], int]:
        """Return the idle connections with the least time left, and how many are idle in all."""
        try:
            answer = json.loads(self._get("/connections?phase=idle&sort=left&limit=1000"))
            return list(answer["connections"]), int(answer["matching"])
        except (ValueError, KeyError, TypeError) as error:
            raise UnusableTargetError(f"{self.target.url} shows no connections: {error!r}") from error

    def _get(self, path: str) -> bytes:
        connection = HTTPConnection(*self.target.address, timeout=_PATIENCE)
        fields = {"Host": self.target.authority} | ({"Authorization": f"Bearer {self.token}"} if self.token else {})
        try:
            connection.request("GET", path, headers=fields)
            response = connection.getresponse()
            body = response.read()
        except (OSError, HTTPException) as error:
            raise UnusableTargetError(f"{self.target.url} does not answer {path}: {error}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise UnusableTargetError(f"{self.target.url} answers {path} with {response.status}: {body[:200]!r}")
        return body


def opened(metrics: Metrics) -> float:
    """Return how many connections are open."""
    return sum(value for (name, _), value in metrics.items() if name == "deadlined_connections_open")


def change(before: Metrics, after: Metrics, name: str) -> dict[str, float]:
    """Return by how much each sample of this name has grown, by its label; none that has not."""
    grown = {label: value - before.get((of, label), 0.0) for (of, label), value in after.items() if of == name}
    return {label: value for label, value in grown.items() if value}
