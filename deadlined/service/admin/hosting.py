"""The admin listener in the process that serves, and in an admin process of its own."""

from __future__ import annotations

import platform
import socket as stdlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ... import __version__
from ...net.inheritance import closed_in_children
from ...runtime import open_group, run
from ...timers import COMPILED
from ..log.greeting import parser_in_use
from ..log.logs import Log
from .address import AdminSockets
from .listener import AdminListener
from .remote import RemoteService
from .service import Service
from .showing import shown


@dataclass(frozen=True)
class Admin:
    """What an admin listener needs beside a service to describe: its sockets, the options of the command, the log."""

    sockets: AdminSockets
    config: object
    log: Log

    def listener(self, service: Service) -> AdminListener:
        """Make the listener, in a running event loop."""
        return AdminListener(self.sockets, service, shown(self.config), build_of(self.config), self.log)

    async def beside(self, service: Service, serve: Callable[[], Awaitable[None]]) -> None:
        """Answer questions about `service` while `serve()` runs. Its end is the listener's."""
        listener = self.listener(service)
        try:
            # here, because what is served may begin, and fork, before the listener
            with closed_in_children(lambda: self.sockets.sockets):
                await self._beside(listener, serve)
        finally:
            self.sockets.close()

    async def _beside(self, listener: AdminListener, serve: Callable[[], Awaitable[None]]) -> None:
        async with open_group() as group:
            group.start_soon(listener.serve_contained)
            try:
                await serve()
            finally:
                listener.shutdown()

    def serve_alone(self, supervisor: stdlib.socket) -> None:
        """Answer questions about the service of a supervisor, in a process of its own, until the supervisor is gone."""
        run("trio", self._follow, supervisor)

    async def _follow(self, supervisor: stdlib.socket) -> None:
        service = RemoteService(supervisor)
        listener = self.listener(service)
        async with open_group() as group:
            group.start_soon(listener.serve)
            await service.follow()
            listener.shutdown()


def build_of(config: Any) -> dict[str, str]:
    """Return the labels of `deadlined_build_info`."""
    return {
        "version": __version__,
        "python": platform.python_version(),
        "compiled": str(COMPILED).lower(),
        "loop": config.loop,
        "http": "" if config.tcp else parser_in_use(config.http),
        "queue": config.queue,
    }
