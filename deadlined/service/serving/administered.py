"""The parts of the admin listener that a service uses. They are loaded, with prometheus-client, only if there is a
listener."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ..config.rereading import Reloaded
from ..errors import WRONG_ARGUMENTS, StartupError
from ..log.logs import Log
from ..workers.overseer import Overseer

if TYPE_CHECKING:
    from ..admin.address import AdminSockets
    from ..admin.hosting import Admin
    from ..admin.local import LocalService


def bind_admin(address: str | None, token_file: str | None) -> AdminSockets | None:
    """Bind the admin listener, before a process or an event loop is started. Return None without an address."""
    if address is None:
        if token_file is not None:
            raise StartupError("--admin-token-file needs --admin", WRONG_ARGUMENTS)
        return None
    from ..admin.address import open_admin

    return open_admin(address, token_file)


def admin_on(sockets: AdminSockets | None, config: object, log: Log) -> Admin | None:
    """Return the admin listener on bound sockets, which shows `config`; None without sockets."""
    if sockets is None:
        return None
    from ..admin.hosting import Admin

    return Admin(sockets, config, log)


def overseer_for(admin: Admin | None, log: Log) -> Overseer | None:
    """Return the overseer that keeps an admin process beside a supervisor; None without an admin listener."""
    if admin is None:
        return None
    from ..admin.oversight import AdminProcess

    return AdminProcess(admin.sockets, admin.serve_alone, log)


def local_service(
    address: str | None, log: Log, drain: Callable[[str], object] | None, reload: Callable[[str], Reloaded]
) -> LocalService | None:
    """Return what the admin listener at `address`, or the supervisor, needs to ask about this process; None without a
    listener. `drain(by)`, None if this process cannot be drained alone, and `reload(by)` are told what has asked."""
    if address is None:
        return None
    from ..admin.local import LocalService

    def drain_for_post(begin: Callable[[str], object]) -> None:
        log("drain requested", by="POST /drain")
        begin("POST /drain")

    return LocalService(None if drain is None else partial(drain_for_post, drain), lambda: reload("POST /reload"))
