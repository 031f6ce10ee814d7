"""The listening sockets of `deadlined serve`, and the errors if one cannot be opened."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import socket
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from ...net import Listener
from ...net.listen import bound_sockets, start_listening
from ...net.listen_unix import BoundUnixSocket
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


class Place:
    """One of the places where a service listens. It is taken at once, so that a place that cannot be had is told before
    an application starts; but connections are refused until `listen`, so that an open port says that the service is
    ready. A socket that another process hands over listens already. StartupError if the place cannot be had."""

    def __init__(self, bind: Bind, config: ServeConfig) -> None:
        self.bind: Final = bind
        self._config: Final = config
        self._file: BoundUnixSocket | None = None
        try:
            self.sockets: Final = self._bound()
        except OSError as error:
            raise cannot_listen_at(bind, config, error) from None

    def _bound(self) -> list[socket.socket]:
        bind, config = self.bind, self._config
        if isinstance(bind, UnixBind):
            self._file = BoundUnixSocket(bind.path, mode=config.uds_mode, owner=_owner(config.uds_owner))
            return [self._file.socket]
        return [_inherited(bind)] if isinstance(bind, InheritedBind) else bound_sockets(bind.port, bind.host or None)

    def listen(self) -> list[socket.socket]:
        """Listen, and return the sockets. StartupError if another process listens there by now."""
        try:
            if self._file is not None:
                self._file.start_listening()
            elif isinstance(self.bind, TcpBind):
                for each in self.sockets:
                    start_listening(each)
        except OSError as error:
            raise cannot_listen_at(self.bind, self._config, error) from None
        return self.sockets

    def unlink(self) -> None:
        """Remove the file of a unix socket, unless it was replaced."""
        if self._file is not None and self._file.socket.fileno() >= 0:
            self._file.unlink()

    def close(self) -> None:
        """Remove the file of a unix socket, and close all. Idempotent."""
        self.unlink()
        self.release()

    def release(self) -> None:
        """Close all, but leave the file of a unix socket, which is another process's."""
        for each in self.sockets:
            each.close()


def take_places(config: ServeConfig) -> list[Place]:
    """Take all places. StartupError if one cannot be had; none is taken then."""
    places: list[Place] = []
    try:
        # one by one: what was taken before an error must be given up
        for bind in binds(config):
            places += [Place(bind, config)]
    except BaseException:
        close_all(places)
        raise
    return places


def listen(places: Iterable[Place]) -> list[Listener]:
    """Listen in all places, in this process's event loop. StartupError if another process listens in one by now; no
    listener is left then."""
    listeners: list[Listener] = []
    try:
        for place in places:
            options = isinstance(place.bind, TcpBind)
            # one by one: those that were made before an error must be closed
            for each in place.listen():
                listeners += [Listener(each, place.unlink, has_options=options)]
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def close_all(places: Iterable[Place]) -> None:
    """Close these places."""
    for place in places:
        place.close()


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
