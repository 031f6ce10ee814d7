"""The listening sockets of `deadlined serve`, and the errors if one cannot be opened."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import socket
from collections.abc import Callable
from typing import Final

import msgspec

from ...net import Listener, open_tcp_listeners, open_unix_listener
from ...net.listen import listening_sockets
from ...net.listen_unix import listening_unix_socket
from ...net.sockets import listens
from ..config import ServeConfig
from ..config.binds import Bind, InheritedBind, TcpBind, UnixBind, parse_bind
from ..errors import CANNOT_BIND, WRONG_ARGUMENTS, StartupError
from .binding import cannot_listen

# of descriptors
_ALLOWED: Final = "give a listening socket that another program hands over, as systemd does: its first is fd://3"


def binds(config: ServeConfig) -> list[Bind]:
    """Return where to listen."""
    if config.bind:
        return [parse_bind(text) for text in config.bind]
    return [TcpBind(config.host, config.port) if config.uds is None else UnixBind(config.uds)]


async def listen(config: ServeConfig) -> list[Listener]:
    """Listen everywhere. StartupError if that fails somewhere; nothing is open then."""
    listeners: list[Listener] = []
    try:
        for bind in binds(config):
            try:
                listeners += await _listen(bind, config)
            except OSError as error:
                raise cannot_listen_at(bind, config, error) from None
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def open_sockets(config: ServeConfig) -> tuple[list[socket.socket], list[Callable[[], None]]]:
    """Listen everywhere as `listen` does, in a process without an event loop. Return the sockets, and functions that
    remove the files of unix sockets, which must be called before those are closed."""
    sockets: list[socket.socket] = []
    unlinks: list[Callable[[], None]] = []
    for bind in binds(config):
        try:
            found, unlink = open_place(bind, config)
        except BaseException:
            for undo in (*unlinks, *(opened.close for opened in sockets)):
                undo()
            raise
        sockets += found
        unlinks += unlink
    return sockets, unlinks


def open_place(
    bind: Bind, config: ServeConfig, *, reuse_port: bool = False
) -> tuple[list[socket.socket], list[Callable[[], None]]]:
    """Listen in one place, as `open_sockets` does. `reuse_port`: others may listen on a TCP port, too."""
    try:
        if isinstance(bind, UnixBind):
            found, unlink = listening_unix_socket(bind.path, mode=config.uds_mode, owner=_owner(config.uds_owner))
            return [found], [unlink]
        if isinstance(bind, InheritedBind):
            return [_inherited(bind)], []
        return listening_sockets(bind.port, bind.host or None, reuse_port=reuse_port), []
    except OSError as error:
        raise cannot_listen_at(bind, config, error) from None


def with_chosen_ports(config: ServeConfig, choose: Callable[[str, int], int]) -> ServeConfig:
    """Return the configuration for processes that share their ports. `choose(host, port)` returns a free port for port
    0, and raises OSError if another process listens on it. StartupError if one does."""
    places, found = binds(config), list[Bind]()
    for bind in places:
        try:
            found.append(TcpBind(bind.host, choose(bind.host, bind.port)) if isinstance(bind, TcpBind) else bind)
        except OSError as error:
            raise cannot_listen_at(bind, config, error) from None
    # if nothing was chosen, errors name the options that were given
    return config if found == places else msgspec.structs.replace(config, bind=tuple(map(str, found)))


def url_of(config: ServeConfig, found: socket.socket) -> str:
    """Return where a socket listens, for the log."""
    address = found.getsockname()
    if not isinstance(address, tuple):
        return f"unix:{os.fsdecode(address)}"
    schemes = ("tcp", "tls") if config.tcp else ("http", "https")
    return f"{schemes[config.certfile is not None]}://{TcpBind(address[0], address[1])}"


async def _listen(bind: Bind, config: ServeConfig) -> list[Listener]:
    if isinstance(bind, UnixBind):
        return [await open_unix_listener(bind.path, mode=config.uds_mode, owner=_owner(config.uds_owner))]
    if isinstance(bind, InheritedBind):
        return [Listener.from_socket(_inherited(bind))]
    return await open_tcp_listeners(bind.port, host=bind.host or None)


def _inherited(bind: InheritedBind) -> socket.socket:
    """Take over a descriptor. OSError if it is not open or not a socket; StartupError if it does not listen, and it is
    left as it was then: a wrong number may be a socket of the event loop."""
    found = socket.socket(fileno=bind.fd)
    if not listens(found):
        found.detach()
        raise StartupError(f"cannot listen on {bind}: it is not a listening stream socket; {_ALLOWED}", CANNOT_BIND)
    # programs that the application starts must not have it
    found.set_inheritable(False)
    found.setblocking(False)
    return found


def _owner(text: str | None) -> tuple[int, int] | None:
    """Return the numbers of user and group, -1 for one that is not given; None without an owner."""
    if text is None:
        return None
    user, _, group = text.partition(":")
    return (
        _number("user", user, lambda name: pwd.getpwnam(name).pw_uid),
        _number("group", group, lambda name: grp.getgrnam(name).gr_gid),
    )


def _number(what: str, name: str, look_up: Callable[[str], int]) -> int:
    if not name:
        return -1
    try:
        return int(name) if name.isascii() and name.isdigit() else look_up(name)
    except KeyError:
        raise StartupError(f"--uds-owner: this machine has no {what} {name!r}", WRONG_ARGUMENTS) from None


def cannot_listen_at(bind: Bind, config: ServeConfig, error: OSError) -> StartupError:
    """Make the error of a service that cannot listen in one of its places."""
    option = "--bind" if config.bind else None
    if isinstance(bind, TcpBind):
        return cannot_listen(error, uds=None, host=bind.host, port=bind.port, option=option)
    if isinstance(bind, UnixBind) and (error.errno != errno.EPERM or config.uds_owner is None):
        return cannot_listen(error, uds=bind.path, host="", port=0, option=option)
    # chown(2) is only for root, and a number need not be a descriptor
    hint = "; this user may not give the socket to that owner, see --uds-owner"
    if isinstance(bind, InheritedBind):
        hint = "; the process has not inherited it" if error.errno == errno.EBADF else f"; {_ALLOWED}"
    where = bind.path if isinstance(bind, UnixBind) else str(bind)
    return StartupError(f"cannot listen on {where}: {error.strerror or error}{hint}", CANNOT_BIND)
