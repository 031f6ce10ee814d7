"""What the admin listener shows of a picture of a service, and how it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl

import msgspec

from ...http import Phase
from .picture import MOST_SHOWN, Connection, Counters, Picture, Question, SortKey, State, Status, sums

# by what connections can be sorted
_KEYS: Mapping[SortKey, Callable[[Connection], float]] = {
    "id": lambda one: one.id,
    "age": lambda one: one.age,
    "left": lambda one: float("inf") if one.left is None else one.left,
    "requests": lambda one: one.requests,
}


class Connections(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of /connections: all open ones, those in the phase that was asked for, and some of them."""

    status: Status
    open: int
    matching: int
    connections: list[Connection]


class WorkerLine(msgspec.Struct, frozen=True, kw_only=True):
    """A process in `Statistics`; see `Worker`."""

    worker: int
    pid: int
    up: bool
    ready: bool
    state: State
    open: int | None
    resident: int | None


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of /statistics."""

    status: Status
    ready: bool
    wanted: int
    restarts: int
    phases: dict[str, int]
    background: int
    timers: dict[str, int]
    wakes_in: float | None
    totals: Counters | None
    workers: list[WorkerLine]


class Both(msgspec.Struct, frozen=True, kw_only=True):
    """An event of the live page."""

    statistics: Statistics
    connections: Connections


def parse_query(query: str) -> Question:
    """Return the question of `phase=idle&sort=-age&limit=20`. ValueError, with a sentence, for anything else."""
    found: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True, max_num_fields=10):
        if name not in ("phase", "sort", "limit"):
            raise ValueError(f"unknown parameter {name!r}: use phase, sort and limit")
        if name in found:
            raise ValueError(f"{name} is given twice")
        found[name] = value
    return Question(
        what="connections",
        phase=_phase(found.get("phase")),
        sort=_sort(found.get("sort", "id").removeprefix("-")),
        descending=found.get("sort", "").startswith("-"),
        limit=_limit(found.get("limit", "100")),
    )


def _phase(value: str | None) -> str | None:
    phases = [phase.value for phase in Phase]
    if value is not None and value not in phases:
        raise ValueError(f"phase must be one of {', '.join(phases)}, not {value!r}")
    return value


def _sort(value: str) -> SortKey:
    for key in _KEYS:
        if key == value:
            return key
    raise ValueError(f"sort must be one of {', '.join(_KEYS)}, with - before it for the opposite order")


def _limit(value: str) -> int:
    if not (value.isascii() and value.isdigit()) or len(value) > 4 or not 0 <= int(value) <= MOST_SHOWN:
        raise ValueError(f"limit must be a number from 0 to {MOST_SHOWN}, not {value!r}")
    return int(value)


def connections_of(picture: Picture, question: Question) -> Connections:
    """Merge what the processes have answered: each has sent as many connections as are wanted in all."""
    answers = [worker.answer for worker in picture.workers if worker.up and worker.answer is not None]
    found = [connection for answer in answers for connection in answer.connections]
    found.sort(key=_KEYS[question.sort], reverse=question.descending)
    return Connections(
        status=picture.status,
        open=sum(sum(answer.gauges.phases.values()) for answer in answers),
        matching=sum(answer.matching for answer in answers),
        connections=found[: question.limit],
    )


def statistics_of(picture: Picture) -> Statistics:
    """Sum what the processes have answered."""
    gauges = [worker.answer.gauges for worker in picture.workers if worker.up and worker.answer is not None]
    wakes = [one.wakes_in for one in gauges if one.wakes_in is not None]
    return Statistics(
        status=picture.status,
        ready=picture.ready,
        wanted=picture.wanted,
        restarts=picture.restarts,
        phases=sums(one.phases for one in gauges),
        background=sum(one.background for one in gauges),
        timers={"armed": sum(one.armed for one in gauges), "zombie": sum(one.zombies for one in gauges)},
        wakes_in=min(wakes, default=None),
        totals=picture.totals(),
        workers=[
            WorkerLine(
                worker=worker.worker,
                pid=worker.pid,
                up=worker.up,
                ready=worker.ready,
                state=worker.state,
                open=None if worker.answer is None else sum(worker.answer.gauges.phases.values()),
                resident=None if worker.answer is None else worker.answer.gauges.resident,
            )
            for worker in picture.workers
        ],
    )


def json_line(value: object) -> bytes:
    """Return `value` as a line of JSON."""
    return msgspec.json.encode(value) + b"\n"
