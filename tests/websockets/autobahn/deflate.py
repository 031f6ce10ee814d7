"""12: compressed messages of several kinds of data. 13: the parameters that a client may offer.

The suite sends 1,000 messages in each case; here are three, because a second message shows what becomes of the context
of the first, and the third what becomes of that.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tests.support.websocket_peer import BINARY, FIN, TEXT, Event, Peer

COUNT = 3

# a message's length, and the length of its frames; 0: one frame
SIZES = (
    *((16, 0), (64, 0), (256, 0), (1024, 0), (4096, 0), (8192, 0), (16384, 0), (32768, 0), (65536, 0), (131072, 0)),
    *((8192, 256), (16384, 256), (32768, 256), (65536, 256), (131072, 256)),
    *((131072, 1024), (131072, 4096), (131072, 32768)),
)

PLAIN = "permessage-deflate; client_no_context_takeover; client_max_window_bits"
FRESH = f"{PLAIN}; server_no_context_takeover"


@dataclass(frozen=True)
class DeflateCase:
    """Messages of `length` bytes of `data`, in frames of `size` bytes. `offer` is the client's. `needs`: the parameters
    that the server must agree to."""

    name: str
    data: str
    length: int
    size: int
    offer: str
    needs: tuple[str, ...] = ()
    most_bits: int = 15


@cache
def corpus(kind: str) -> bytes:
    """Return 400,000 bytes of such data, the same in every run."""
    chance = random.Random(kind)
    words = ["".join(chance.choices("aäbcdefghiklmnoöprstuüwz", k=chance.randint(2, 11))) for _ in range(2000)]
    if kind == "json":
        rows = [{"id": n, "name": chance.choice(words), "value": chance.random()} for n in range(6000)]
        return json.dumps(rows).encode()
    if kind == "text":
        return " ".join(chance.choices(words, k=70_000)).encode()
    if kind == "html":
        cells = (f'<tr class="row"><td>{word}</td><td>{chance.randint(0, 99)}</td></tr>\n' for word in words * 5)
        return "".join(cells).encode()
    if kind == "picture":
        return bytes(min(255, max(0, int(chance.gauss(128 + n % 64, 3)))) for n in range(400_000))
    return zlib.compress(chance.randbytes(400_000))


def pieces(case: DeflateCase) -> Iterator[bytes]:
    """Yield the messages of a case. A text is ASCII, for it may be cut anywhere."""
    data = corpus(case.data)
    if opcode_of(case) == TEXT:
        data = data.decode().encode("ascii", "replace")
    for number in range(COUNT):
        start = number * case.length // 2
        yield data[start : start + case.length]


def opcode_of(case: DeflateCase) -> int:
    return TEXT if case.data in ("json", "html") else BINARY


def run(case: DeflateCase, port: int, path: str = "/echo") -> None:
    """Run a case. Raises AssertionError with what the server has sent instead, and zlib.error if it does not keep to
    the parameters."""
    opcode = opcode_of(case)
    with Peer.open(port, path, offer=case.offer) as peer:
        assert peer.agreed is not None, "the offer is declined"
        assert set(case.needs) <= set(peer.agreed), peer.agreed
        assert int(peer.agreed.get("server_max_window_bits", 15)) <= case.most_bits, peer.agreed
        for piece in pieces(case):
            peer.message(opcode, piece, case.size)
            answer = peer.event()
            assert answer == Event("text" if opcode == TEXT else "binary", piece), answer.kind
        assert peer.close() == [Event("close", code=1000), FIN]


def data() -> Iterator[DeflateCase]:
    for section, kind in enumerate(("json", "picture", "text", "html", "packed"), 1):
        for number, (length, size) in enumerate(SIZES, 1):
            yield DeflateCase(f"12.{section}.{number}", kind, length, size, PLAIN)


def offers() -> Iterator[tuple[str, tuple[str, ...], int]]:
    yield PLAIN, (), 15
    yield FRESH, ("server_no_context_takeover",), 15
    yield f"{PLAIN}; server_max_window_bits=9", ("server_max_window_bits",), 9
    yield f"{PLAIN}; server_max_window_bits=15", ("server_max_window_bits",), 15
    both = ("server_no_context_takeover", "server_max_window_bits")
    yield f"{FRESH}; server_max_window_bits=9", both, 9
    yield f"{FRESH}; server_max_window_bits=15", both, 15
    yield f"{FRESH}; server_max_window_bits=9, {FRESH}, {PLAIN}", both, 9


def parameters() -> Iterator[DeflateCase]:
    for section, (offer, needs, most_bits) in enumerate(offers(), 1):
        for number, (length, size) in enumerate(SIZES, 1):
            yield DeflateCase(f"13.{section}.{number}", "json", length, size, offer, needs, most_bits)


CASES = [*data(), *parameters()]
