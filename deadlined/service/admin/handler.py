"""The admin listener's handler: what each path answers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

import msgspec

from ...http import Exchange, Request
from ...runtime import current_time
from ...timing import sleep
from .events import Streams
from .gate import Gate, Refusal
from .metrics import Exposition
from .pace import PAGE_PATIENCE, PATIENCE, Pace
from .picture import Picture, Question
from .replies import JSON, Reply, page, problem, text
from .service import RefusedError, Service, UnavailableError
from .views import Both, connections_of, json_line, parse_query, statistics_of

# what a client without a token must send: Basic lets a browser ask for it
_CHALLENGES = ((b"www-authenticate", b'Bearer realm="deadlined"'), (b"www-authenticate", b'Basic realm="deadlined"'))


AnswerT = TypeVar("AnswerT")

# the files of the live page, and what they are
_PAGES = {
    "/": ("index.html", b"text/html; charset=utf-8"),
    "/page.css": ("page.css", b"text/css; charset=utf-8"),
    "/page.js": ("page.js", b"text/javascript; charset=utf-8"),
}


class AdminHandler:
    """Answers requests about `service`. `config` is shown as JSON; `build` labels the metrics."""

    def __init__(self, service: Service, gate: Gate, config: Mapping[str, object], build: Mapping[str, str]) -> None:
        self._service = service
        self._gate = gate
        self._config = json_line(config)
        self._exposition = Exposition(build)
        self._pace = Pace(current_time)
        self._streams = Streams(self._event)
        self._routes: dict[str, tuple[str, Callable[[Request, str], Awaitable[Reply]]]] = {
            **{path: ("GET", partial(self._page, path)) for path in _PAGES},
            "/events": ("GET", self._events),
            "/livez": ("GET", self._livez),
            "/readyz": ("GET", self._readyz),
            "/metrics": ("GET", self._metrics),
            "/connections": ("GET", self._connections),
            "/statistics": ("GET", self._statistics),
            "/config": ("GET", self._show_config),
            "/drain": ("POST", self._drain),
            "/reload": ("POST", self._reload),
        }

    def end_streams(self) -> None:
        """End the streams of events soon."""
        self._streams.end()

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one request."""
        reply = await self.reply(exchange.request)
        exchange.start(reply.status, reply.headers())
        if reply.stream is None or exchange.request.method == "HEAD":
            await exchange.send(reply.body, more=False)
        else:
            await reply.stream(exchange)

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
        except RefusedError as error:
            return problem(409, str(error))
        except UnavailableError as error:
            return problem(503, str(error), (b"retry-after", b"1"))

    async def _page(self, path: str, request: Request, query: str) -> Reply:
        return page(*_PAGES[path])

    async def _events(self, request: Request, query: str) -> Reply:
        if self._streams.full:
            return problem(503, "too many live pages are open already", (b"retry-after", b"5"))
        try:
            question = parse_query(query)
        except ValueError as error:
            return problem(400, str(error))
        return Reply(200, b"text/event-stream", b"", stream=partial(self._streams.run, question=question))

    async def _event(self, question: Question) -> bytes:
        return await self._paced(question, partial(_both, question), PAGE_PATIENCE)

    async def _livez(self, request: Request, query: str) -> Reply:
        return text(200, "alive")

    async def _readyz(self, request: Request, query: str) -> Reply:
        picture = await self._service.ask(Question(what="status"))
        number = f"{picture.serving} of {picture.wanted} processes serve"
        if picture.ready:
            return text(200, "ready" if picture.serving >= picture.wanted else f"ready: {number}")
        if picture.status == "draining":
            return problem(503, "draining: no new connections are accepted")
        if picture.all_silent:
            return problem(503, "no worker process answers: each is blocked or stopped", (b"retry-after", b"1"))
        return problem(503, f"starting: {number}", (b"retry-after", b"1"))

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
        config = self._service.config
        return Reply(200, JSON, self._config if config is None else json_line(config))

    async def _drain(self, request: Request, query: str) -> Reply:
        picture = await self._service.ask(Question(what="drain"))
        return Reply(202, JSON, json_line({"status": picture.status}))

    async def _reload(self, request: Request, query: str) -> Reply:
        picture = await self._service.ask(Question(what="reload"))
        done = picture.reloaded
        if done is None:
            raise UnavailableError("the service does not answer")
        if done.status == "starting":
            raise UnavailableError("the service is starting; it can be reloaded once it is ready")
        if done.status == "draining":
            return problem(409, "the service is draining, and is not reloaded")
        if done.status == "restarting":
            return problem(409, "--reload restarts the service with the configuration of its start: start it again")
        if done.status == "refused":
            return problem(422, "; ".join(done.problems))
        answer = msgspec.to_builtins(done)
        del answer["problems"]
        return Reply(200, JSON, json_line(answer))

    async def _paced(
        self, question: Question, answer: Callable[[Picture], AnswerT], patience: float = PATIENCE
    ) -> AnswerT:
        """Wait for a time slot, ask, and make the answer."""
        pause = self._pace.reserve(patience)
        if pause > 0.0:
            await sleep(pause)
        picture = await self._service.ask(question)
        begun = time.thread_time()
        reply = answer(picture)
        took = [worker.answer.gauges.took for worker in picture.workers if worker.answer is not None]
        self._pace.spent(max(took, default=0.0) + time.thread_time() - begun)
        return reply


def _json(value: object) -> Reply:
    return Reply(200, JSON, json_line(value))


def _refused(refusal: Refusal) -> Reply:
    return problem(refusal.status, refusal.sentence, *(_CHALLENGES if refusal.status == 401 else ()))


def _both(question: Question, picture: Picture) -> bytes:
    return json_line(Both(statistics=statistics_of(picture), connections=connections_of(picture, question)))
