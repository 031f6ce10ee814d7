"""Where an upstream listens, and how it is connected to."""

from __future__ import annotations

import os
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final

from ..http.arguments import WHOLE, require_types
from ..net import Conn, open_tcp_stream, open_unix_stream
from ..net.sockets import join_host_port, longest_path
from ..value import Value

# what is allowed, for error messages
ALLOWED: Final = "write host:port, [address]:port or unix:/path"

_UNIX: Final = "unix:"
_LARGEST_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class Address(Value):
    """The address of an upstream: `host` and `port`, or the `path` of a unix socket, which is "" for TCP."""

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return the address that `text` names, as `str` writes it. ValueError says what is allowed."""
        if text.startswith(_UNIX):
            path = text.removeprefix(_UNIX)
            if not path:
                raise ValueError(f"{text!r} has no path; {ALLOWED}")
            most = longest_path()
            if len(os.fsencode(path)) > most:
                raise ValueError(f"the path of a unix socket may have {most} bytes here, and this one is longer")
            return cls(path=path)
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if not colon or not host or (":" in host) != bracketed or "/" in text:
            raise ValueError(f"{text!r} is not the address of an upstream; {ALLOWED}")
        if not (port.isascii() and port.isdigit() and 0 < int(port) <= _LARGEST_PORT):
            raise ValueError(f"{port!r} is not a port; {ALLOWED}, with a port from 1 to {_LARGEST_PORT}")
        address = cls(host=host[1:-1] if bracketed else host, port=int(port))
        try:
            assert address.authority
        except UnicodeError:
            raise ValueError(f"{host!r} is not a name of a host; {ALLOWED}") from None
        return address

    def __str__(self) -> str:
        if self.path:
            return f"{_UNIX}{self.path}"
        return join_host_port(self.host, self.port)

    @property
    def authority(self) -> bytes:
        """The Host field for a request that has none."""
        return b"localhost" if self.path else str(self).encode("idna" if not self.host.isascii() else "ascii")

    def connect(self, deadline: float) -> Awaitable[Conn]:
        """Return an awaitable that connects. Errors as `open_tcp_stream`."""
        if self.path:
            return open_unix_stream(self.path, deadline=deadline)
        return open_tcp_stream(self.host, self.port, deadline=deadline)


require_types(Address, {"host": (str, "a text"), "port": (WHOLE, "a whole number"), "path": (str, "a text")})
