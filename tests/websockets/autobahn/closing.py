"""7: the closing handshake."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.websocket_peer import CLOSE, CONTINUATION, PING, TEXT, Event, closing, fragments, frame

from .case import Case, sends
from .framing import hello, part
from .utf8 import EDITED, KOSME, SURROGATE

NORMAL = (1000,)
FAILED = (1002,)
BIG = (b"BAsd7&jh23" * 26215)[: 256 * 1024]

VALID = (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999)
FORBIDDEN = (0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999)

# registered since the suite was written: service restart, try again later, bad gateway
REGISTERED_LATER = (1012, 1013, 1014)


def orders() -> Iterator[Case]:
    """Yield the cases in which something comes before or after the close."""
    yield Case("7.1.1", (hello(), *sends(closing())), NORMAL, paced=True)
    yield Case("7.1.2", sends(closing(), frame(CLOSE)), NORMAL)
    yield Case("7.1.3", sends(closing(), frame(PING)), NORMAL)
    yield Case("7.1.4", sends(closing(), frame(TEXT, b"Hello World!")), NORMAL)
    first, second = part(TEXT, b"fragment1", fin=False), part(CONTINUATION, b"fragment2", fin=True)
    # the suite wants 1000; the `websockets` library fails the message that the close has cut short
    yield Case("7.1.5", sends(first, closing(), second), (1000, 1002))
    big = (frame(TEXT, BIG), (Event("text", BIG),))
    yield Case("7.1.6", (big, hello(), *sends(closing(), frame(PING))), NORMAL)


def payloads() -> Iterator[Case]:
    yield Case("7.3.1", sends(closing(None)), (1000, 1005))
    yield Case("7.3.2", sends(frame(CLOSE, b"a")), FAILED)
    yield Case("7.3.3", sends(closing()), NORMAL)
    yield Case("7.3.4", sends(closing(1000, b"Hello World!")), NORMAL)
    yield Case("7.3.5", sends(closing(1000, b"*" * 123)), NORMAL)
    yield Case("7.3.6", sends(closing(1000, b"*" * 124)), FAILED)
    yield Case("7.5.1", sends(closing(1000, KOSME + SURROGATE + EDITED)), (1002, 1007))


def codes() -> Iterator[Case]:
    for number, code in enumerate(VALID, 1):
        yield Case(f"7.7.{number}", sends(closing(code)), (1000, code))
    for number, code in enumerate(FORBIDDEN, 1):
        yield Case(f"7.9.{number}", sends(closing(code)), FAILED)
    yield Case("7.13.1", sends(closing(5000)), FAILED)
    yield Case("7.13.2", sends(closing(65535)), FAILED)
    for code in REGISTERED_LATER:
        yield Case(f"7.7 {code}", sends(closing(code)), (1000, code))
    yield Case("7.9 1015", sends(closing(1015)), FAILED)


def masks() -> Iterator[Case]:
    """Yield what the suite has no case of, because its client cannot: frames that are not masked, or end nowhere."""
    yield Case("unmasked text", sends(frame(TEXT, b"Hello", mask=None)), FAILED)
    yield Case("unmasked ping", sends(frame(PING, mask=None)), FAILED)
    yield Case("unmasked close", sends(frame(CLOSE, mask=None)), FAILED)
    again = fragments(TEXT, b"a", b"b")[:-1]
    yield Case("unmasked fragment", sends(again[:7], frame(CONTINUATION, b"b", mask=None)), FAILED)
    yield Case("length beyond 63 bits", sends(frame(TEXT, b"a" * 100, length=1 << 63)), (1002, 1009))
    yield Case("length of 63 bits", sends(frame(TEXT, b"a" * 100, length=(1 << 63) - 1)), (1009,))


CASES = [*orders(), *payloads(), *codes(), *masks()]
