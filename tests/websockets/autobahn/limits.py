"""9: large messages, many fragments, and messages that follow each other; smaller than the suite's, which take minutes.
10: a message that the client cuts into frames."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.websocket_peer import BINARY, TEXT, Event, fragments, frame

from .case import Case
from .framing import echo

KIB = 1024
PATTERN = b"BAsd7&jh23"
BYTES = b"\x00\xfe\x23\xfa\xf0"


def repeated(pattern: bytes, length: int) -> bytes:
    return (pattern * (length // len(pattern) + 1))[:length]


def cut(opcode: int, payload: bytes, size: int) -> bytes:
    return fragments(opcode, *(payload[start : start + size] for start in range(0, len(payload), size)))


def large() -> Iterator[Case]:
    """Yield messages in one frame: the suite's sizes up to 1 MiB, and 2 MiB for its 4, 8 and 16."""
    for section, opcode, pattern in (("9.1", TEXT, PATTERN), ("9.2", BINARY, BYTES)):
        for number, length in ((1, 64), (2, 256), (3, 1024), (4, 2048)):
            payload = repeated(pattern, length * KIB)
            yield Case(f"{section}.{number}", ((frame(opcode, payload), (echo(opcode, payload),)),))


def in_fragments() -> Iterator[Case]:
    """Yield messages of 64 KiB, for the suite's 4 MiB, in fragments from 64 bytes, of 1,024 frames, to the whole."""
    for section, opcode, byte in (("9.3", TEXT, b"*"), ("9.4", BINARY, b"\xfe")):
        payload = byte * 64 * KIB
        for number, size in enumerate((64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB), 1):
            yield Case(f"{section}.{number}", ((cut(opcode, payload, size), (echo(opcode, payload),)),))


def in_chops() -> Iterator[Case]:
    """Yield messages of 64 KiB, for the suite's 1 MiB, sent in pieces that are no frames."""
    for section, opcode, pattern in (("9.5", TEXT, PATTERN), ("9.6", BINARY, BYTES)):
        payload = repeated(pattern, 64 * KIB)
        for number, chop in enumerate((64, 128, 256, 512, KIB, 2 * KIB), 1):
            yield Case(f"{section}.{number}", ((frame(opcode, payload), (echo(opcode, payload),)),), chop=chop)


def round_trips() -> Iterator[Case]:
    """Yield 20 messages, for the suite's 1,000, each sent when the one before is echoed."""
    for section, opcode, byte in (("9.7", TEXT, b"*"), ("9.8", BINARY, b"\xfe")):
        for number, length in enumerate((0, 16, 64, 256, 1024, 4096), 1):
            step = (frame(opcode, byte * length), (echo(opcode, byte * length),))
            yield Case(f"{section}.{number}", (step,) * 20, paced=True)


def many() -> Iterator[Case]:
    """Yield messages that the client sends all at once, which the suite does not; and its 9.9.1, a message of many
    frames of 4 KiB, and its 10.1.1."""
    step = (frame(TEXT, b"*" * 100), (Event("text", b"*" * 100),))
    yield Case("9 at once", (step,) * 200)
    payload = b"*" * (512 * KIB)
    yield Case("9.9.1", ((cut(TEXT, payload, 4 * KIB), (Event("text", payload),)),))
    payload = b"*" * (64 * KIB)
    yield Case("10.1.1", ((cut(TEXT, payload, 1300), (Event("text", payload),)),))


CASES = [*large(), *in_fragments(), *in_chops(), *round_trips(), *many()]
