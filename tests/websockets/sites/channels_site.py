"""Consumers of Channels."""

# mypy: disable-error-code="import-untyped,misc"

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import django
from channels.exceptions import DenyConnection
from channels.generic.websocket import AsyncJsonWebsocketConsumer, AsyncWebsocketConsumer, WebsocketConsumer
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import OriginValidator
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

settings.configure(
    DEBUG=False,
    SECRET_KEY="of this test",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    CHANNEL_LAYERS={"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}},
    LOGGING_CONFIG=None,
)
# of a plain consumer, if `send` is not taken for a coroutine function
warnings.filterwarnings("error", "async_to_sync was passed a non-async-marked callable")
disconnects: list[list[Any]] = []


class Echo(WebsocketConsumer):
    """A plain consumer: Channels runs it in a thread."""

    def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        self.send(text_data=text_data, bytes_data=bytes_data)

    def disconnect(self, code: int) -> None:
        disconnects.append(["echo", code])


class Room(AsyncJsonWebsocketConsumer):
    """Tells a message to all of a room, by the channel layer."""

    async def connect(self) -> None:
        self.room = self.scope["url_route"]["kwargs"]["room"]
        await self.channel_layer.group_add(self.room, self.channel_name)
        await self.accept(subprotocol="json" if "json" in self.scope["subprotocols"] else None)

    async def receive_json(self, content: Any, **_: Any) -> None:
        if content == "leave":
            await self.close(code=4123, reason="left")
            return
        await self.channel_layer.group_send(self.room, {"type": "told", "content": content})

    async def told(self, event: dict[str, Any]) -> None:
        await self.send_json({"told": event["content"]})

    async def disconnect(self, code: int) -> None:
        await self.channel_layer.group_discard(self.room, self.channel_name)
        disconnects.append(["room", code])


class Denied(AsyncWebsocketConsumer):
    async def connect(self) -> None:
        raise DenyConnection


class Refused(AsyncWebsocketConsumer):
    async def connect(self) -> None:
        await self.close(code=4001)


class Failing(AsyncWebsocketConsumer):
    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        raise LookupError("meant to fail")


class Slow(AsyncWebsocketConsumer):
    """Answers when a page is asked for."""

    answers = asyncio.Event()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        await self.send(text_data="begun")
        await self.answers.wait()
        await self.send(text_data="done")
        await self.close()

    async def disconnect(self, code: int) -> None:
        disconnects.append(["slow", code])


async def told(_: HttpRequest) -> JsonResponse:
    return JsonResponse(disconnects, safe=False)


async def answer(_: HttpRequest) -> JsonResponse:
    Slow.answers.set()
    return JsonResponse([], safe=False)


urlpatterns = [path("told", told), path("answer", answer)]

django.setup()

app = ProtocolTypeRouter(
    {
        "http": get_asgi_application(),
        "websocket": OriginValidator(
            URLRouter(
                [
                    path("echo", Echo.as_asgi()),
                    path("rooms/<str:room>", Room.as_asgi()),
                    path("denied", Denied.as_asgi()),
                    path("refused", Refused.as_asgi()),
                    path("failing", Failing.as_asgi()),
                    path("slow", Slow.as_asgi()),
                ]
            ),
            ["http://a.example"],
        ),
    }
)
