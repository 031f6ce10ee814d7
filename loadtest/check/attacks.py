"""The attacks (attacks.toml), what to set against them (advice.toml), and the deadline of each, from what was seen."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import msgspec

from .kinds import OUTLIVED, SAME, Deadline, Kind, ended, measured, narrowed, none, of_dripped, of_stalled, same
from .scripts import CLOSE, DOWN, NEEDS, PRIMED, Seen

# which part of what was seen is whose: the seen ones of an attack in one role
Seen_ = Callable[[str, str], list[Seen]]

# seconds in which one byte finds out that a connection had ended
FOUND = 1.0

GUARD = "has no such option; put `deadlined run` in front, or another proxy that has this deadline"
CROWDED = "limit connections per address in front, or add worker processes: honest clients wait"

# the options by attack, by the beginning of the Server field; "" is for what is not named
_OPTIONS: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("advice.toml").read_text(encoding="utf-8"))

# what HAProxy, which names itself nowhere, answers to what is no HTTP
_HAPROXY = b"<h1>400 Bad request</h1>\nYour browser sent an invalid request.\n"
# and deadlined: problem details with a reason of its closed set
_OURS = b'"reason": "protocol_error"}'


class Attack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One attack, as attacks.toml describes it. `enough`: None if it is no question of a deadline."""

    name: str
    does: str
    setting: str
    enough: tuple[Kind, ...] | None = None
    within: float = 0.0
    needs_tls: bool = False


ATTACKS = msgspec.toml.decode(
    Path(__file__).with_name("attacks.toml").read_bytes(), type=dict[Literal["attack"], tuple[Attack, ...]]
)["attack"]
NAMES = tuple(attack.name for attack in ATTACKS)


def known(fields: Mapping[str, str], refusal: bytes = b"") -> str:
    """Return the name of the server that an honest response's fields show, as this module knows it; "" if it does not.

    `refusal`: what was answered to what is no HTTP; it shows a server that sends no Server field, and a proxy in front,
    whose responses name the server behind it.
    """
    if _HAPROXY in refusal:
        return "haproxy"
    if _OURS in refusal:
        return "deadlined"
    return next((prefix for prefix in _OPTIONS if fields.get("server", "").lower().startswith(prefix)), "")


def advice(name: str, attack: Attack) -> str:
    """Return what a user of this server can set against an attack; what to look for if the server is not known."""
    if not name:
        return f"look for {attack.setting}, or put `deadlined run` in front"
    options = _OPTIONS[name]
    option = options.get(attack.name, options.get("", GUARD))
    return f"{name} {option}" if option.startswith("has ") else f"{name}: {option}"


def crowded(name: str, attack: Attack) -> str:
    """Return what can be set for honest clients that wait, whatever the server's deadlines."""
    option = _OPTIONS.get(name, {}).get(attack.name) if attack.enough is None else None
    return f"{CROWDED}; {name}: {option}" if option else CROWDED


def deadlines(seen: Sequence[Seen]) -> dict[str, Deadline]:
    """Return the deadline of each attack that was measured, while the server was up. Pure."""
    found = {name: rule(_seen_of(seen)) for name, rule in _RULES.items() if trouble(seen, name) != DOWN}
    return {name: deadline for name, deadline in found.items() if deadline.connections}


def _seen_of(seen: Sequence[Seen]) -> Seen_:
    return lambda attack, role: [one for one in seen if (one.attack, one.role) == (attack, role) and not one.trouble]


def trouble(seen: Sequence[Seen], name: str) -> str:
    """Return why connections of an attack, or of one that it is judged by, could not be followed; "" if all could."""
    judged_by = {name} | NEEDS.get(name, set())
    found = [one.trouble for one in seen if one.trouble and one.attack in judged_by]
    return DOWN if DOWN in found else next(iter(found), "")


def unsure(seen: Sequence[Seen]) -> dict[str, tuple[float, float]]:
    """Return the attacks whose minimum rate lies between two that are not close, with these."""
    of = deadlines(seen)
    found = {name: of[name].min_rate for name in ("slow-header", "slow-body", "slow-read") if name in of}
    return {name: rates for name, rates in found.items() if rates and rates[1] > CLOSE * rates[0]}


def _slow_read(of: Seen_) -> Deadline:
    """Judge those that poke; a silent twin tells if the server had reset them by itself.

    Those that send one byte tell if the pokes changed the end. Then it is known as well as their moments are close.
    """
    deadline = of_stalled(of("slow-read", "poked"), of("slow-read", "dripped"))
    deadline = narrowed(deadline, of("slow-read", "closer"))
    # one whose moment was still to come, when the watch was interrupted, tells nothing
    once = [one for one in of("slow-read", "once") if one.seconds is not None or one.watched >= 1 / one.rate]
    moments = {1 / one.rate: one for one in once}
    dead = {when: one for when, one in moments.items() if one.seconds is not None and one.seconds < when + FOUND}
    lived = max((when for when in moments if when not in dead), default=0.0)
    later = {when: one for when, one in dead.items() if when > lived}
    end = deadline.seconds
    # the pokes were taken for a slow head, and caused the end; or they put it off
    if (lived > end * OUTLIVED) if end is not None else (len(later) > 1):
        deadline = _at(later, moments)
    if deadline.close == "rst" and not any(one.close == "rst" for one in of("slow-read", "stalled")):
        return replace(deadline, close="fin")
    return deadline


def _at(dead: dict[float, Seen], moments: dict[float, Seen]) -> Deadline:
    """Return the deadline of those that stall, by the first that was found dead; none if all were alive."""
    if not dead:
        return none(moments.values())
    return replace(measured("idle", [dead[min(dead)]]), connections=len(dead))


def _slow_body(of: Seen_) -> Deadline:
    """Judge those that drip from the beginning; and those that drip after a good part, if they should have ended."""
    deadline = _of_rates("slow-body", of)
    if deadline.seconds is None:
        return deadline
    due = deadline.seconds + (PRIMED / deadline.min_rate[0] if deadline.min_rate else 0.0)
    primed = of("slow-body", "primed")
    if primed and all(one.watched > max(due * OUTLIVED, due + SAME) for one in primed):
        return replace(deadline, kind="idle", min_rate=None)
    return deadline


def _stalled_body(of: Seen_) -> Deadline:
    return narrowed(of_stalled(of("slow-body", "stalled"), of("slow-body", "dripped")), of("slow-body", "closer"))


def _silent(of: Seen_) -> Deadline:
    stalled = of("silent", "stalled")
    if own := of("silent", "dripped"):  # with TLS, where it is the handshake that drips
        return of_stalled(stalled, own)
    dripped = of("slow-header", "dripped")
    return _of_heads(of_stalled(stalled, dripped), dripped, of)


def _of_rates(name: str, of: Seen_) -> Deadline:
    return narrowed(of_dripped(of(name, "stalled"), of(name, "dripped")), of(name, "closer"))


def _of_heads(deadline: Deadline, dripped: Sequence[Seen], of: Seen_) -> Deadline:
    """Correct the kind of an attack on heads by that of slow heads, where these have a minimum rate.

    The attack goes on at one rate only, or its silence began before the opening of those that it is compared with.
    """
    slow = _of_rates("slow-header", of)
    if slow.min_rate is None or deadline.seconds is None or deadline.bytes is not None:
        return deadline
    # an absolute deadline it is if the bytes would have put off the end for longer than by chance
    paid = max((one.went for one in dripped), default=0) / slow.min_rate[1]
    if deadline.kind == "absolute" and not deadline.idle_seconds and paid > same(deadline.seconds, deadline.spread):
        return deadline
    seconds = deadline.idle_seconds or deadline.seconds
    return replace(deadline, kind="min-rate", min_rate=slow.min_rate, seconds=seconds, idle_seconds=None)


def _endless(of: Seen_) -> Deadline:
    dripped = of("endless-header", "dripped")
    deadline = _of_heads(of_dripped(of("slow-header", "stalled"), dripped), dripped, of)
    flood = [one.sent for one in ended(of("endless-header", "flood"))]
    return replace(deadline, bytes=deadline.bytes or max(flood, default=None))


def _pipelined(of: Seen_) -> Deadline:
    dripped = of("pipelined", "dripped")
    return _of_heads(of_stalled(of("pipelined", "stalled"), dripped), dripped, of)


_RULES: dict[str, Callable[[Seen_], Deadline]] = {
    "silent": _silent,
    "tls-silent": lambda of: of_stalled(of("tls-silent", "stalled"), of("tls-silent", "dripped")),
    "slow-header": lambda of: _of_rates("slow-header", of),
    "endless-header": _endless,
    "slow-body": _slow_body,
    "stalled-body": _stalled_body,
    "slow-read": _slow_read,
    "idle": lambda of: of_stalled(of("idle", "stalled"), of("idle", "fed")),
    "half-close": lambda of: of_stalled(of("half-close", "stalled"), []),
    "pipelined": _pipelined,
    "websocket-silent": lambda of: of_stalled(of("websocket-silent", "stalled"), of("websocket-silent", "fed")),
}
