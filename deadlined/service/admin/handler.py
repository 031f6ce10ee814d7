"""The admin listener's handler: what each path answers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import parse_qsl

import msgspec

from ...http import Exchange, Phase, Request
from ...runtime import current_time
from ...timing import sleep
from .gate import Gate, Refusal
from .metrics import Exposition
from .pace import Pace
from .picture import MOST_SHOWN, Connection, Counters, Picture, Question, SortKey, Status, sums
from .replies import JSON, Reply, problem, text
from .service import Service, UnavailableError

_SORTS = ("id", "age", "left", "requests")

# what a client that has no token is told to send: Basic lets a browser ask for it
_CHALLENGES = ((b"www-authenticate", b'Bearer realm="deadlined"'), (b"www-authenticate", b'Basic realm="deadlined"'))


class Connections(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of /connections: all open ones, those in the phase that was asked for, and some of them."""

    status: Status
    open: int
    matching: int
    connections: list[Connection]


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


class WorkerLine(msgspec.Struct, frozen=True, kw_only=True):
    """A worker process in `Statistics`."""

    worker: int
    pid: int
    up: bool
    ready: bool
    open: int | None
    resident: int | None


class AdminHandler:
    """Answers requests about `service`. `config` is shown as JSON; `build` labels the metrics."""

    def __init__(self, service: Service, gate: Gate, config: Mapping[str, object], build: Mapping[str, str]) -> None:
        self._service = service
        self._gate = gate
        self._config = json_line(config)
        self._exposition = Exposition(build)
        self._pace = Pace(current_time)
        self._routes: dict[str, tuple[str, Callable[[Request, str], Awaitable[Reply]]]] = {
            "/": ("GET", self._index),
            "/livez": ("GET", self._livez),
            "/readyz": ("GET", self._readyz),
            "/metrics": ("GET", self._metrics),
            "/connections": ("GET", self._connections),
            "/statistics": ("GET", self._statistics),
            "/config": ("GET", self._show_config),
            "/drain": ("POST", self._drain),
            "/reload": ("POST", self._reload),
        }

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one request."""
        reply = await self.reply(exchange.request)
        exchange.start(reply.status, reply.headers())
        await exchange.send(reply.body, more=False)

    async def reply(self, request: Request) -> Reply:
        """Return the response to `request`."""
        path, _, query = request.path_and_query.decode("ascii").partition("?")
        refusal = self._gate.check(path, request.headers)
        if refusal is not None:
            return _refused(refusal)
        if path not in self._routes:
            return problem(404, f"there is nothing here; try {', '.join(self._routes)}")
        method, answer = self._routes[path]
        allowed = ("GET", "HEAD") if method == "GET" else (method,)
        if request.method not in allowed:
            sentence = f"{path} takes {' and '.join(allowed)} only"
            return problem(405, sentence, (b"allow", ", ".join(allowed).encode()))
        try:
            return await answer(request, query)
        except UnavailableError as error:
            return problem(503, str(error), (b"retry-after", b"1"))

    async def _index(self, request: Request, query: str) -> Reply:
        lines = [f"{method:4} {path}" for path, (method, _) in self._routes.items()]
        return text(200, "\n".join(["deadlined", *lines]))

    async def _livez(self, request: Request, query: str) -> Reply:
        return text(200, "alive")

    async def _readyz(self, request: Request, query: str) -> Reply:
        picture = await self._service.ask(Question(what="status"))
        if picture.ready:
            return text(200, "ready")
        if picture.status == "draining":
            return problem(503, "draining: no new connections are accepted")
        serving = sum(worker.ready for worker in picture.workers)
        return problem(503, f"starting: {serving} of {picture.wanted} processes serve", (b"retry-after", b"1"))

    async def _metrics(self, request: Request, query: str) -> Reply:
        accept = b",".join(value for name, value in request.headers if name == b"accept").decode("latin-1")
        return await self._paced(Question(what="counts"), lambda picture: self._exposed(picture, accept))

    def _exposed(self, picture: Picture, accept: str) -> Reply:
        body, kind = self._exposition.render(picture, accept)
        return Reply(200, kind.encode("latin-1"), body)

    async def _connections(self, request: Request, query: str) -> Reply:
        try:
            question = parse_query(query)
        except ValueError as error:
            return problem(400, str(error))
        return await self._paced(question, lambda picture: _json(connections_of(picture, question)))

    async def _statistics(self, request: Request, query: str) -> Reply:
        return await self._paced(Question(what="counts"), lambda picture: _json(statistics_of(picture)))

    async def _show_config(self, request: Request, query: str) -> Reply:
        return Reply(200, JSON, self._config)

    async def _drain(self, request: Request, query: str) -> Reply:
        picture = await self._service.ask(Question(what="drain"))
        return Reply(202, JSON, json_line({"status": picture.status}))

    async def _reload(self, request: Request, query: str) -> Reply:
        return problem(501, "this server cannot reload its configuration: start it anew with the new one")

    async def _paced(self, question: Question, answer: Callable[[Picture], Reply]) -> Reply:
        """Ask when it is this question's turn, and make the answer."""
        pause = self._pace.reserve()
        if pause > 0.0:
            await sleep(pause)
        begun = time.process_time()
        picture = await self._service.ask(question)
        reply = answer(picture)
        took = [worker.answer.gauges.took for worker in picture.workers if worker.answer is not None]
        self._pace.spent(max(time.process_time() - begun, *took, 0.0))
        return reply


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
    for key in SortKey.__args__:  # type: ignore[attr-defined]
        if key == value:
            return key  # type: ignore[no-any-return]
    raise ValueError(f"sort must be one of {', '.join(_SORTS)}, with - before it for the opposite order")


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


_KEYS: Mapping[str, Callable[[Connection], float]] = {
    "id": lambda one: one.id,
    "age": lambda one: one.age,
    "left": lambda one: float("inf") if one.left is None else one.left,
    "requests": lambda one: one.requests,
}


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
                open=None if worker.answer is None else sum(worker.answer.gauges.phases.values()),
                resident=None if worker.answer is None else worker.answer.gauges.resident,
            )
            for worker in picture.workers
        ],
    )


def json_line(value: object) -> bytes:
    """Return `value` as a line of JSON."""
    return msgspec.json.encode(value) + b"\n"


def _json(value: object) -> Reply:
    return Reply(200, JSON, json_line(value))


def _refused(refusal: Refusal) -> Reply:
    return problem(refusal.status, refusal.sentence, *(_CHALLENGES if refusal.status == 401 else ()))
