"""What one connection of an attack does, and what was seen of it: the vocabulary of this package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Close = Literal["fin", "rst", "response", "none"]


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
