"""1: messages of all sizes. 2: pings and pongs. 3: reserved bits. 4: reserved opcodes. 5: fragments."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.websocket_peer import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Event, frame

from .case import Case, sends

HELLO = b"Hello, world!"
ODD = b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff"

FAILED = (1002,)


def echo(opcode: int, payload: bytes) -> Event:
    return Event("text" if opcode == TEXT else "binary", payload)


def hello() -> tuple[bytes, tuple[Event, ...]]:
    """Return a step: a text, and its echo."""
    return frame(TEXT, HELLO), (Event("text", HELLO),)


def sizes() -> Iterator[Case]:
    for section, opcode, byte in (("1.1", TEXT, b"*"), ("1.2", BINARY, b"\xfe")):
        for number, (length, chop) in enumerate(
            [(0, 0), (125, 0), (126, 0), (127, 0), (128, 0), (65535, 0), (65536, 0), (65536, 997)], 1
        ):
            payload = byte * length
            yield Case(f"{section}.{number}", ((frame(opcode, payload), (echo(opcode, payload),)),), chop=chop)


def ping(payload: bytes = b"") -> tuple[bytes, tuple[Event, ...]]:
    """Return a step: a ping, and its pong."""
    return frame(PING, payload), (Event("pong", payload),)


def pings() -> Iterator[Case]:
    unasked = frame(PONG, b"unsolicited pong payload")
    ten = tuple(ping(b"payload-%d" % number) for number in range(10))
    yield Case("2.1", (ping(),))
    yield Case("2.2", (ping(HELLO),))
    yield Case("2.3", (ping(ODD),))
    yield Case("2.4", (ping(b"\xfe" * 125),))
    yield Case("2.5", sends(frame(PING, b"\xfe" * 126)), FAILED)
    yield Case("2.6", (ping(b"\xfe" * 125),), chop=1)
    yield Case("2.7", sends(frame(PONG)))
    yield Case("2.8", sends(unasked))
    yield Case("2.9", (*sends(unasked), ping(b"ping payload")))
    yield Case("2.10", ten)
    yield Case("2.11", ten, chop=1)


def after_hello(name: str, bad: bytes, chop: int = 0) -> Iterator[Case]:
    """Yield the case that sends a text, something wrong and a ping; and the one that waits for the echo."""
    steps = (hello(), *sends(bad, frame(PING)))
    yield Case(name, steps, FAILED, chop)
    yield Case(f"{name} paced", steps, FAILED, chop, paced=True)


def reserved_bits() -> Iterator[Case]:
    yield Case("3.1", sends(frame(TEXT, HELLO, rsv=1)), FAILED)
    yield from after_hello("3.2", frame(TEXT, HELLO, rsv=2))
    yield from after_hello("3.3", frame(TEXT, HELLO, rsv=3))
    yield from after_hello("3.4", frame(TEXT, HELLO, rsv=4), chop=1)
    yield Case("3.5", sends(frame(BINARY, ODD, rsv=5)), FAILED)
    yield Case("3.6", sends(frame(PING, HELLO, rsv=6)), FAILED)
    yield Case("3.7", sends(frame(CLOSE, rsv=7)), FAILED)


def reserved_opcodes() -> Iterator[Case]:
    payload = b"reserved opcode payload"
    for section, first in (("4.1", 3), ("4.2", 11)):
        yield Case(f"{section}.1", sends(frame(first)), FAILED)
        yield Case(f"{section}.2", sends(frame(first + 1, payload)), FAILED)
        yield from after_hello(f"{section}.3", frame(first + 2))
        yield from after_hello(f"{section}.4", frame(first + 3, HELLO))
        yield from after_hello(f"{section}.5", frame(first + 4, HELLO), chop=1)


def part(opcode: int, payload: bytes, *, fin: bool) -> bytes:
    return frame(opcode, payload, fin=fin)


def fragmented() -> Iterator[Case]:
    """Yield the cases of fragments that are valid."""
    first, last = part(TEXT, b"fragment1", fin=False), part(CONTINUATION, b"fragment2", fin=True)
    whole = (last, (Event("text", b"fragment1fragment2"),))
    for number, chop, waits in ((3, 0, False), (4, 0, True), (5, 1, False)):
        yield Case(f"5.{number}", (*sends(first), whole), chop=chop, paced=waits)
        yield Case(f"5.{number + 3}", (*sends(first), ping(b"ping payload"), whole), chop=chop, paced=waits)
    middle = [part(CONTINUATION, b"fragment%d" % number, fin=False) for number in (2, 3, 4)]
    end = (
        part(CONTINUATION, b"fragment5", fin=True),
        (Event("text", b"fragment1fragment2fragment3fragment4fragment5"),),
    )
    steps = (*sends(first, middle[0]), ping(b"pongme 1!"), *sends(*middle[1:]), ping(b"pongme 2!"), end)
    yield Case("5.19", steps)
    yield Case("5.20", steps, paced=True)


def wrongly_fragmented() -> Iterator[Case]:
    """Yield the cases of fragments that are not valid."""
    for name, opcode in (("5.1", PING), ("5.2", PONG)):
        bad = part(opcode, b"fragment1", fin=False), part(CONTINUATION, b"fragment2", fin=True)
        yield Case(name, sends(*bad), FAILED)
    for begin, fin in ((9, True), (12, False)):
        nothing = part(CONTINUATION, b"non-continuation payload", fin=fin)
        for number, (chop, waits) in enumerate(((0, False), (0, True), (1, False)), begin):
            yield Case(f"5.{number}", sends(nothing, frame(TEXT, HELLO)), FAILED, chop, waits)
    first, last = part(TEXT, b"fragment1", fin=False), part(CONTINUATION, b"fragment2", fin=True)
    whole = (last, (Event("text", b"fragment1fragment2"),))
    rest = sends(part(CONTINUATION, b"fragment3", fin=False), frame(TEXT, b"fragment4"))
    yield Case("5.15", (*sends(first), whole, *rest), FAILED)
    yield Case("5.15 paced", (*sends(first), whole, *rest), FAILED, paced=True)
    for name, fin in (("5.16", False), ("5.17", True)):
        once = (
            part(CONTINUATION, b"fragment1", fin=fin),
            part(TEXT, b"fragment2", fin=False),
            part(CONTINUATION, b"fragment3", fin=True),
        )
        yield Case(name, sends(*once, *once), FAILED)
    yield Case("5.18", sends(first, frame(TEXT, b"fragment2")), FAILED)


CASES = [*sizes(), *pings(), *reserved_bits(), *reserved_opcodes(), *fragmented(), *wrongly_fragmented()]
