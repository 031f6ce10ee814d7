"""Where to listen, as people write it: `host:port`, `[address]:port`, `unix:path` and `fd://number`."""

from __future__ import annotations

import ipaddress
import os
import re
from typing import Final, NamedTuple

from ...net.sockets import join_host_port, longest_path

# what is allowed, for error messages
ALLOWED: Final = "write 127.0.0.1:8000, [::1]:8000, unix:/run/x.sock or fd://3"

_TCP: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\[\]:/\s]*)):(?P<port>[0-9]{1,5})")
_NAME: Final = re.compile(r"[^\[\]:/\s]*")
_FD: Final = re.compile(r"fd://([0-9]{1,9})")
_LARGEST_PORT: Final = 65535
# of a user or a group: the number above it means to chown(2) that the owner stays
_LARGEST_ID: Final = 2**32 - 2


class TcpBind(NamedTuple):
    """A TCP port, 0 for one that the kernel chooses. An empty host is all interfaces."""

    host: str
    port: int

    def __str__(self) -> str:
        return join_host_port(self.host, self.port)


class UnixBind(NamedTuple):
    """A unix socket."""

    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"


class InheritedBind(NamedTuple):
    """A listening socket that the process has inherited as a descriptor."""

    fd: int

    def __str__(self) -> str:
        return f"fd://{self.fd}"


Bind = TcpBind | UnixBind | InheritedBind


def check_host(text: str) -> str:
    """Return `text` if it may be an address or a name, or "" for all interfaces. ValueError for others, which a look-up
    would call unknown."""
    if not _NAME.fullmatch(text):
        try:
            ipaddress.IPv6Address(text)
        except ValueError:
            raise ValueError(
                f"{text!r} is not a host: write an address or a name, without brackets; the port goes to --port"
            ) from None
    return text


def parse_bind(text: str) -> Bind:
    """Return where to listen. ValueError for other text."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        # as a URL
        path = path.removeprefix("//") if path.startswith("///") else path
        if path:
            return UnixBind(path)
    if match := _FD.fullmatch(text):
        return InheritedBind(int(match[1]))
    match = _TCP.fullmatch(text)
    # fd:3 is most likely not port 3 of a machine called fd
    if match is None or match["host"] == "fd" or int(match["port"]) > _LARGEST_PORT:
        raise ValueError(f"{text!r} is not a place to listen: {ALLOWED}")
    return TcpBind(match["v6"] or match["host"] or "", int(match["port"]))


def parse_admin(text: str) -> TcpBind | UnixBind:
    """Return where the admin listener listens. ValueError for other text."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        most = longest_path()
        if not 0 < len(os.fsencode(path)) <= most:
            raise ValueError(f"unix: needs a path of 1 to {most} bytes")
        return UnixBind(path)
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    right = re.fullmatch(r"[0-9]{1,5}", port) is not None and int(port) <= _LARGEST_PORT
    if not (colon and right) or (":" in host and not bracketed):
        raise ValueError(f"{text!r} is not an address: write HOST:PORT, [IPV6]:PORT or unix:PATH")
    return TcpBind(host[1:-1] if bracketed else host, int(port))


def check_admin(text: str) -> str:
    """Return `text` if the admin listener can listen there. ValueError for others."""
    parse_admin(text)
    return text


def needs_token(address: str) -> str:
    """Return why an admin listener at `address` needs a token; "" if it needs none, or if `address` is a name. An empty
    address is all addresses of the machine. A loopback address that is mapped to IPv4 counts as public: Python before
    3.13 does not recognise it."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0] or "0.0.0.0")
    except ValueError:
        return ""
    if parsed.is_loopback and getattr(parsed, "ipv4_mapped", None) is None:
        return ""
    return (
        f"--admin: {parsed} is not a loopback address, so other machines could ask: add --admin-token-file, or listen "
        "on 127.0.0.1 or unix:PATH"
    )


def check_owner(text: str) -> str:
    """Return `text` if it may be `user`, `user:group` or `:group`. ValueError for others."""
    numbers = [int(part) for part in text.split(":") if re.fullmatch("[0-9]+", part)]
    if not re.fullmatch(r"[^\s:]+(:[^\s:]+)?|:[^\s:]+", text) or any(number > _LARGEST_ID for number in numbers):
        raise ValueError(f"{text!r} is not an owner: write user, user:group or :group, as names or numbers")
    return text
