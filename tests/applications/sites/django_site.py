"""A site of Django, for asyncio: its own ASGI handler, and the same behind the router of Channels."""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

import asyncio
import logging
import threading
import warnings
from collections.abc import AsyncIterator, Iterator
from typing import Any

import django
from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.signals import request_finished
from django.db import connection
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseForbidden,
    HttpResponseRedirect,
    JsonResponse,
    StreamingHttpResponse,
)
from django.urls import path

settings.configure(
    DEBUG=False,
    SECRET_KEY="of this test",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.gzip.GZipMiddleware",
        f"{__name__}.marked",
    ],
    INSTALLED_APPS=["django.contrib.sessions"],
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    LOGGING_CONFIG=None,
)
# that a page is not found, for example
logging.getLogger("django").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", "StreamingHttpResponse must consume synchronous iterators")
log = logging.getLogger("site")
finished: list[str] = []
closed: list[str] = []


def marked(get_response: Any) -> Any:
    """A plain middleware: Django runs it in a thread around the views that are coroutines."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response: HttpResponse = get_response(request)
        response["x-mark"] = "seen"
        return response

    return middleware


def hello(_: HttpRequest, name: str) -> HttpResponse:
    return HttpResponse(f"hello {name}", content_type="text/plain")


def threaded(_: HttpRequest) -> HttpResponse:
    return JsonResponse({"main": threading.current_thread() is threading.main_thread()})


async def in_the_loop(request: HttpRequest) -> HttpResponse:
    await asyncio.sleep(0)
    main = threading.current_thread() is threading.main_thread()
    return JsonResponse({"main": main, "query": request.GET.dict(), "method": request.method})


def database(_: HttpRequest) -> HttpResponse:
    with connection.cursor() as cursor:
        cursor.execute("select 6 * 7")
        return JsonResponse({"answer": cursor.fetchone()[0]})


def form(request: HttpRequest) -> HttpResponse:
    files = {name: file.size for name, file in request.FILES.items()}
    return JsonResponse({"fields": request.POST.dict(), "files": files})


async def length(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"length": len(request.body)})


async def stream(request: HttpRequest) -> StreamingHttpResponse:
    async def lines() -> AsyncIterator[str]:
        for number in range(int(request.GET["lines"])):
            await asyncio.sleep(0)
            yield f"line {number}\n"

    return StreamingHttpResponse(lines(), content_type="text/plain")


class Pieces:
    """Many pieces of a body, all of which Django takes in a thread before it sends the first, as it warns. It closes
    them with their response."""

    def __iter__(self) -> Iterator[bytes]:
        return iter([bytes(50_000)] * 1000)

    def close(self) -> None:
        closed.append("download")


def download(_: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(Pieces(), content_type="application/octet-stream")


def visits(request: HttpRequest) -> HttpResponse:
    request.session["visits"] = request.session.get("visits", 0) + 1
    return JsonResponse({"visits": request.session["visits"]})


def url(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"url": request.build_absolute_uri(), "client": request.META["REMOTE_ADDR"]})


def old(_: HttpRequest) -> HttpResponse:
    return HttpResponseRedirect("/hello/you")


def secret(_: HttpRequest) -> HttpResponse:
    return HttpResponseForbidden("not for you")


def fail(_: HttpRequest) -> HttpResponse:
    raise LookupError("meant to fail")


async def fail_in_the_loop(_: HttpRequest) -> HttpResponse:
    raise LookupError("meant to fail")


async def slow(_: HttpRequest) -> HttpResponse:
    log.info("slow has begun")
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        log.info("slow was cancelled")
        raise
    return HttpResponse("done")


async def endless(_: HttpRequest) -> StreamingHttpResponse:
    async def lines() -> AsyncIterator[str]:
        try:
            yield "line\n"
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            log.info("endless was cancelled")
            raise

    return StreamingHttpResponse(lines(), content_type="text/plain")


async def requests_finished(_: HttpRequest) -> HttpResponse:
    return JsonResponse({"finished": len(finished), "closed": len(closed)})


urlpatterns = [
    path("hello/<str:name>", hello),
    path("threaded", threaded),
    path("in-the-loop", in_the_loop),
    path("database", database),
    path("form", form),
    path("length", length),
    path("stream", stream),
    path("download", download),
    path("visits", visits),
    path("url", url),
    path("old", old),
    path("secret", secret),
    path("fail", fail),
    path("fail/in-the-loop", fail_in_the_loop),
    path("slow", slow),
    path("endless", endless),
    path("finished", requests_finished),
]

django.setup()
request_finished.connect(lambda **_: finished.append("request"), weak=False)
app = get_asgi_application()


async def of_channels(scope: Any, _: Any, send: Any) -> None:
    """A consumer of plain ASGI, as Channels routes to it."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": scope["url_route"]["kwargs"]["room"].encode()})


channels_app = ProtocolTypeRouter(
    {"http": URLRouter([path("rooms/<str:room>", of_channels), path("", app), path("<path:rest>", app)])}
)
