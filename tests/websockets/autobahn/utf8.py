"""6: texts whose bytes are UTF-8, and texts whose bytes are not (after Markus Kuhn's UTF-8 decoder stress test)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tests.support.websocket_peer import CONTINUATION, TEXT, Event, fragments, frame

from .case import Case, sends
from .framing import ping

INVALID = (1007,)

KOSME = bytes.fromhex("ceba e1bdb9 cf83 cebc ceb5")  # κόσμε
MIXED = "Hello-µ@ßöäüàá-UTF-8!!".encode()
EDITED = b"edited"
SURROGATE = bytes.fromhex("eda080")
BEYOND = bytes.fromhex("f4908080")  # U+110000


def valid(name: str, *payloads: bytes) -> Case:
    return Case(name, ((fragments(TEXT, *payloads), (Event("text", b"".join(payloads)),)),))


def invalid(name: str, *payloads: bytes) -> Case:
    return Case(name, sends(fragments(TEXT, *payloads)), INVALID)


def single(payload: bytes) -> list[bytes]:
    """Return a fragment for each byte."""
    return [payload[start : start + 1] for start in range(len(payload))]


def in_fragments() -> Iterator[Case]:
    yield valid("6.1.1", b"")
    yield valid("6.1.2", b"", b"", b"")
    yield valid("6.1.3", b"", b"middle frame payload", b"")
    yield valid("6.2.1", MIXED)
    yield valid("6.2.2", MIXED[:12], MIXED[12:])
    yield valid("6.2.3", *single(MIXED))
    yield valid("6.2.4", *single(KOSME))
    bad = KOSME + SURROGATE + EDITED
    yield invalid("6.3.1", bad)
    yield invalid("6.3.2", *single(bad))


def in_pieces() -> Iterator[Case]:
    """Yield the cases that end a valid beginning wrongly: the fragment that makes it wrong, or the last, is answered.

    Where the suite waits a second to see that the beginning is accepted, a ping between the fragments asks.
    """
    for name, first, second in (("6.4.1", KOSME, BEYOND), ("6.4.2", (KOSME + BEYOND)[:12], (KOSME + BEYOND)[12:13])):
        third = (KOSME + BEYOND + EDITED)[len(first + second) :]
        steps = (
            *sends(frame(TEXT, first, fin=False)),
            ping(b"A"),
            *sends(frame(CONTINUATION, second, fin=False), frame(CONTINUATION, third)),
        )
        yield Case(name, steps, INVALID, paced=True)
    whole = frame(TEXT, KOSME + BEYOND + EDITED)
    head = len(whole) - len(KOSME + BEYOND + EDITED)
    for name, first_end, second_end in (("6.4.3", 11, 15), ("6.4.4", 12, 13)):
        cuts = [0, head + first_end, head + second_end, len(whole)]
        pieces = [whole[begin:end] for begin, end in pairwise(cuts)]
        yield Case(name, sends(*pieces), INVALID)


# per section: what is valid, and what is not
SEQUENCES: list[tuple[str, list[str], list[str]]] = [
    ("6.5 valid", ["24", "c2a2", "e282ac", "f0a4ada2"], []),
    ("6.7 first of each length", ["00", "c280", "e0a080", "f0908080"], []),
    ("6.8 first of 5 and 6 bytes", [], ["f888808080", "fc8480808080"]),
    ("6.9 last of each length", ["7f", "dfbf", "efbfbf", "f48fbfbf"], []),
    ("6.10 last of 4, 5 and 6 bytes", [], ["f7bfbfbf", "fbbfbfbfbf", "fdbfbfbfbfbf"]),
    ("6.11 other boundaries", ["ed9fbf", "ee8080", "efbfbd", "f48fbfbf"], ["f4908080"]),
    (
        "6.12 unexpected continuations",
        [],
        ["80", "bf", "80bf", "80bf80", "80bf80bf", "80bf80bf80", "80bf80bf80bf", bytes(range(0x80, 0xBF)).hex()],
    ),
    (
        "6.13 lonely starts",
        [],
        [
            bytes(range(low, high)).hex(" ").replace(" ", "20") + "20"
            for low, high in ((0xC0, 0xDF), (0xE0, 0xEF), (0xF0, 0xF7), (0xF8, 0xFB), (0xFC, 0xFD))
        ],
    ),
    (
        "6.14 last continuation missing",
        [],
        [
            *("c0", "e080", "f08080", "f8808080", "fc80808080"),
            *("df", "efbf", "f7bfbf", "fbbfbfbf", "fdbfbfbfbf"),
        ],
    ),
    ("6.15 incomplete ones joined", [], ["c0e080f08080f8808080fc80808080dfefbff7bfbffbbfbfbffdbfbfbfbf"]),
    ("6.16 impossible bytes", [], ["fe", "ff", "fefeffff"]),
    ("6.17 overlong ASCII", [], ["c0af", "e080af", "f08080af", "f8808080af", "fc80808080af"]),
    ("6.18 longest overlong", [], ["c1bf", "e09fbf", "f08fbfbf", "f887bfbfbf", "fc83bfbfbfbf"]),
    ("6.19 overlong NUL", [], ["c080", "e08080", "f0808080", "f880808080", "fc8080808080"]),
    ("6.20 single surrogates", [], ["eda080", "edadbf", "edae80", "edafbf", "edb080", "edbe80", "edbfbf"]),
    (
        "6.21 paired surrogates",
        [],
        [f"{high}{low}" for high in ("eda080", "edadbf", "edae80", "edafbf") for low in ("edb080", "edbfbf")],
    ),
    (
        "6.22 no characters",
        [
            *("efbfbe", "efbfbf"),
            *(
                f"{first}{second}bf{last}"
                for first in ("f0", "f1", "f2", "f3")
                for second in ("8f", "9f", "af", "bf")
                for last in ("be", "bf")
                if (first, second) != ("f0", "8f")
            ),
            *("f48fbfbe", "f48fbfbf"),
        ],
        [],
    ),
    ("6.23 specials", ["efbfb9", "efbfba", "efbfbb", "efbfbc", "efbfbd", "efbfbe", "efbfbf"], []),
]


def sequences() -> Iterator[Case]:
    for name, good, bad in SEQUENCES:
        section, _, _ = name.partition(" ")
        wrap = b"hello", b"world"
        for number, text in enumerate(good, 1):
            payload = bytes.fromhex(text)
            yield valid(f"{section}.{number}", payload.join(wrap) if section == "6.5" else payload)
        for number, text in enumerate(bad, len(good) + 1):
            yield invalid(f"{section}.{number}", bytes.fromhex(text))
    yield valid("6.5.5", KOSME)


def prefixes() -> Iterator[Case]:
    """Yield 6.6: all beginnings of a text, of which some end inside a character."""
    ends = {0, 2, 5, 7, 9, 11}
    for length in range(1, len(KOSME) + 1):
        make = valid if length in ends else invalid
        yield make(f"6.6.{length}", KOSME[:length])


CASES = [*in_fragments(), *in_pieces(), *sequences(), *prefixes()]
