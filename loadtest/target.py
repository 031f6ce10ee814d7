"""The target of a load test: its URL, its address, and whether it may be attacked at all.

Facts      A name can resolve to another address each time it is asked for. A load test against a stranger is an attack.
Hazard     A check of the name, and a second resolution when connecting, would attack whatever the name says then.
Answer     The name is resolved once. Every connection goes to the address that was checked, and only the TLS server
           name and the Host field keep the name. Addresses that are not loopback need the owner's word: for a private
           address the name or the address, for a public one the address itself, so that no name decides it.
Cost       A target that moves during the run is lost.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import ssl
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.parse import SplitResult, urlsplit

import httptools

from .wire import Answers

# what is said when no connection can be opened for a reason of this machine
NO_PORTS = "no free port is left on this machine: wait a minute, or give fewer --connections"

# seconds for the first, honest request, all of its answer included
PATIENCE = 10.0
# bytes of the first response that are read at most
MOST = 64 * 1024 * 1024
# bytes of a refusal that are read at most, and the seconds that it may take
_REFUSAL = 4096
_REFUSING = 1.0
# Requests that are sent at once, and not before those that were sent are answered: so few that the kernel takes them
# while the server writes, and that a server which ends the connection has read them, so that it ends it without an RST
_BATCH = 50


class UnusableTargetError(Exception):
    """The target cannot be measured: it does not resolve, refuses, speaks no HTTP, fails honest requests."""


class ForbiddenTargetError(Exception):
    """The target may not be attacked."""


def lacks_ports(troubles: Iterable[str]) -> bool:
    """Tell if one of these failures says that there are no ports."""
    return any(os.strerror(errno.EADDRNOTAVAIL) in trouble for trouble in troubles)


def need_ports(troubles: Iterable[str]) -> None:
    """ForbiddenTargetError if one of these failures says that there are no ports."""
    if lacks_ports(troubles):
        raise ForbiddenTargetError(NO_PORTS)


@dataclass(frozen=True)
class Target:
    """A server's address and how its requests are written. `address` is what `socket.connect` takes."""

    url: str
    family: int
    address: tuple[Any, ...]
    host: str
    authority: str
    path: str
    tls: bool

    def head(self, method: str = "GET", *fields: str) -> bytes:
        """Return a request's head without the blank line that ends it."""
        lines = [f"{method} {self.path} HTTP/1.1", f"Host: {self.authority}", "User-Agent: deadlined-loadtest", *fields]
        return "".join(f"{line}\r\n" for line in lines).encode("latin-1")

    def get(self, *fields: str) -> bytes:
        """Return a whole GET."""
        return self.head("GET", *fields) + b"\r\n"

    def context(self) -> ssl.SSLContext | None:
        """Return a client's context; None for plain HTTP. The certificate is not verified: the address was chosen."""
        if not self.tls:
            return None
        context = unverified()
        context.set_alpn_protocols(["http/1.1"])
        return context

    def connect(self, timeout: float = PATIENCE) -> socket.socket:
        """Return a connection that blocks for `timeout` seconds at most, with TLS if the URL says so."""
        endpoint = socket.socket(self.family, socket.SOCK_STREAM)
        try:
            endpoint.settimeout(timeout)
            endpoint.connect(self.address)
            context = self.context()
            return endpoint if context is None else context.wrap_socket(endpoint, server_hostname=self.host)
        except BaseException:
            endpoint.close()
            raise


def unverified() -> ssl.SSLContext:
    """Return the context of a client that believes every server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def parse(url: str) -> SplitResult:
    """Split a URL of HTTP. ForbiddenTargetError if it is none."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018, raises for what is no port
    except ValueError as error:
        raise ForbiddenTargetError(f"{url!r} is no URL: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ForbiddenTargetError(f"{url!r} is no URL of HTTP; give http://HOST:PORT/PATH or https://HOST:PORT/PATH")
    if parts.username is not None:
        raise ForbiddenTargetError("a URL with a user name is not supported")
    if not url.isascii() or any(letter <= " " for letter in url):
        raise ForbiddenTargetError(f"{url!r} has spaces or letters that a URL must escape")
    return parts


def resolve(url: str, owned: Sequence[str] = ()) -> Target:
    """Return the target of `url`, resolved once.

    `owned`: names and addresses that the user owns, in addition to the loopback interface. ForbiddenTargetError if an
    address of the name is neither, UnusableTargetError if it does not resolve.
    """
    parts = parse(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UnusableTargetError(f"{host} does not resolve: {error}") from error
    for _, _, _, _, address in found:
        _permit(host, str(address[0]), {name.lower() for name in owned})
    family, address = _first_that_listens([(entry[0], entry[4]) for entry in found])
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(url, family, address, host, parts.netloc.rpartition("@")[2], path, parts.scheme == "https")


def _permit(host: str, address: str, owned: set[str]) -> None:
    """Return if the address may be attacked. ForbiddenTargetError otherwise."""
    numeric = ipaddress.ip_address(address.partition("%")[0])
    # 6to4 goes through relays of the internet, whatever address is in it
    relayed = isinstance(numeric, ipaddress.IPv6Address) and numeric.sixtofour
    if isinstance(numeric, ipaddress.IPv6Address):
        numeric = numeric.ipv4_mapped or numeric
    if numeric.is_loopback or str(numeric) in owned:
        return
    shown = host if host == address else f"{host} resolves to {address}, which"
    if numeric.is_global or numeric.is_multicast or relayed:
        text = f"{shown} is a public address. If the machine is yours, say so by its address"
        raise ForbiddenTargetError(f"{text}: --i-own-this-target {numeric}")
    if host.lower() not in owned:
        raise ForbiddenTargetError(f"{shown} is not loopback. If it is yours: --i-own-this-target {host}")


def _first_that_listens(addresses: list[tuple[int, tuple[Any, ...]]]) -> tuple[int, tuple[Any, ...]]:
    """Return the first address that accepts a connection. UnusableTargetError if none does, ForbiddenTargetError if
    this machine has no port to try it from."""
    reasons: list[OSError] = []
    for family, address in addresses:
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.settimeout(PATIENCE)
                probe.connect(address)
            return family, address
        except OSError as error:  # of the socket, too: a kernel may have no IPv6
            reasons.append(error)
    # where IPv6 is off it looks as if its addresses had no port
    reason = next((reason for reason in reversed(reasons) if not lacks_ports([str(reason)])), reasons[-1])
    need_ports([str(reason)])
    text = "does not answer" if isinstance(reason, TimeoutError) else os.strerror(reason.errno or 0)
    where = ", ".join(f"{address[0]} port {address[1]}" for _, address in addresses)
    raise UnusableTargetError(f"{where}: {text}")


def ask(target: Target, patience: float = PATIENCE, *, proper: bool = False) -> Answers:
    """Make one request, and return its answer. UnusableTargetError, in one line, if no proper response comes;
    ForbiddenTargetError if this machine has no port left.

    `patience`: seconds to wait for the whole of it.

    Redirections, 400, and responses of 500 and above are no target either: nothing could be said of a server that
    fails honest requests, and another URL must be named by the user, not by the server. `proper`: nor are any others of
    400 and above.
    """
    answers = Answers()
    try:
        _exchange(target, target.get(), patience, answers)
    except TimeoutError:
        wrong = f" {'does not end its answer' if answers.size else 'accepts and does not answer'} within {patience:g} s"
    except ssl.SSLError as error:
        wrong = f": {_tls_trouble(error)}"
    except httptools.HttpParserError as error:
        wrong = f" speaks no HTTP/1.1: {error}"
    except OSError as error:
        need_ports([str(error)])
        # TLS 1.3 refuses after the handshake, and the alert may be lost with the reset
        hint = "; perhaps it wants a client certificate" if target.tls else ""
        wrong = f" gives no answer: {error}{hint}"
    else:
        wrong = _wrong(target, answers, proper=proper)
    if wrong:
        raise UnusableTargetError(target.url + wrong)
    return answers


def _wrong(target: Target, answers: Answers, *, proper: bool) -> str:
    """Say what is wrong with an answer; "" if nothing is."""
    status = answers.status
    if not answers.complete:
        if answers.size >= MOST:
            return f": the response is larger than {MOST >> 20} MiB: give a URL with a smaller one"
        guess = "perhaps it wants a client certificate" if target.tls else "is it https?"
        return " closes the connection without a complete answer" + ("" if answers.size else f"; {guess}")
    if 300 <= status < 400:
        return f" redirects ({status}) to {answers.fields.get('location', 'elsewhere')}: give the URL that answers"
    if status == 400:
        return " answers 400 to an honest request: is it https, or does it want a client certificate?"
    if status >= 500 or status == 429:
        return f" answers {status}: it fails honest requests"
    return f" answers {status}: every request would be an error" if proper and status > 400 else ""


def refusal(target: Target, patience: float = _REFUSING) -> bytes:
    """Say what is no HTTP, and return the beginning of the answer, in words of the server's own; b"" without any."""
    received = b""
    until = monotonic() + patience
    with suppress(OSError), target.connect(patience) as connection:
        connection.sendall(b"\x01\r\n\r\n")
        while len(received) < _REFUSAL and (data := _receive(connection, until)):
            received += data
    return received


def _receive(connection: socket.socket, until: float) -> bytes:
    """Return the next bytes; TimeoutError at `until`, however many have come."""
    if (left := until - monotonic()) <= 0.0:
        raise TimeoutError
    connection.settimeout(left)
    return connection.recv(65536)


def _exchange(target: Target, request: bytes, patience: float, answers: Answers, number: int = 1) -> None:
    """Make so many requests on one connection, and take what the server answers, as far as it comes in time."""
    asked, until = 0, monotonic() + patience
    with target.connect(patience) as connection:
        while answers.count < number and answers.size < MOST:
            if answers.count == asked:
                asked = min(number, asked + _BATCH)
                connection.sendall(request * (asked - answers.count))
            if not (data := _receive(connection, until)):
                answers.end()
                break
            answers.feed(data, 0.0)


def answered(target: Target, request: bytes, number: int) -> int:
    """Return how many of so many requests the server answers on one connection, before it ends it and in time: one at
    least, because it has answered before."""
    answers = Answers()
    with suppress(OSError, httptools.HttpParserError):
        _exchange(target, request, PATIENCE, answers, number)
    return max(1, answers.count)


def _tls_trouble(error: ssl.SSLError) -> str:
    reason = str(error.reason or error)
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
        return f"wants a client certificate, or agrees to no cipher ({reason})"
    if "UNEXPECTED_EOF" in reason:
        return f"ends the TLS handshake; perhaps it speaks no TLS, or wants a client certificate ({reason})"
    if "WRONG_VERSION" in reason or "RECORD_LAYER" in reason:
        return f"speaks no TLS there; is it http://? ({reason})"
    return f"the TLS handshake fails: {reason}"


def speaks_ws(target: Target) -> bool:
    """Ask for a websocket. False if the answer is anything but 101."""
    answers = Answers()
    with suppress(OSError, httptools.HttpParserError):
        _exchange(target, upgrade(target), PATIENCE, answers)
    return answers.complete and answers.status == 101


def upgrade(target: Target) -> bytes:
    """Return the request for a websocket."""
    key = "dGhlIHNhbXBsZSBub25jZQ=="  # RFC 6455's example: nothing depends on its being random
    fields = ("Connection: Upgrade", "Upgrade: websocket", f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13")
    return target.get(*fields)
