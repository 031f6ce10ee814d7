"""What kind of deadline ended the connections of an attack. Pure: no clock, no sockets.

Facts      A stalled connection ends at the deadline T, of whichever kind. A connection that goes on ends at T, too, if
           the deadline is absolute; never, if it is an idle timeout between reads; and after n bytes at T + n/R if a
           minimum rate R extends it, which never comes for R bytes per second and above.
Hazard     A connection that was still open when the watch ended may belong to any of the last two.
Answer     The ends that did come are a straight line in n, whose slope is 1/R.
Cost       A rate that is checked in windows, or by a coarse clock, gives no such line. Then R is only known to lie
           between two rates, and others between these are tried in a second round. One that was ended at r bytes per
           second shows that R > r. One that was open after W seconds may be about to end, at T / (1 - r/R), and shows
           no more than that R < r / (1 - T/W).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from statistics import linear_regression, median
from typing import Literal

from .scripts import Close, Seen

Kind = Literal["none", "idle", "absolute", "min-rate"]

# Two ends are at the same deadline if they differ by less: seconds, and the part of the deadline. A server whose timer
# ticks in seconds spreads its ends by that.
SAME = 0.05
SAME_PART = 0.05
# seconds by which the client's clock may be wrong
EXACT = 0.01
# a connection that stopped dripping has outlived a deadline if it had gone on for so many times as long
OUTLIVED = 1.25
# One that outlived the deadline by less than this part of its time shows of a minimum rate as much as nothing.
LEAST_PART = 0.01
# A line through ends that a coarse clock has put off may be steeper than the rate or less, by so many times what they
# are off by. Of 5,000 servers that look twice a second five had another rate then. Up to that part the rate is exact.
DOUBT, DOUBTED = 4.0, 0.1
# responses that refuse a request for its size
TOO_LARGE = (400, 413, 414, 431)


@dataclass(frozen=True)
class Deadline:
    """How a server ends the connections of an attack.

    `seconds`: until the end, the median of those that the client has timed well (of all, if it was too busy for that);
    None for none. `spread`: the latest of them minus the earliest; `clock_error`: the largest error of the client's
    clock. `min_rate`: the bytes per second that keep a connection open: a lower and an upper bound, equal if they were
    calculated. `idle_seconds`: with absolute, what a connection gets that stalls, if that is less. `bytes`: what was
    sent when the server refused the size, for a head a bit more than its limit; None if it never did. `connections`
    were measured, for `watched` seconds.
    """

    kind: Kind = "none"
    seconds: float | None = None
    spread: float = 0.0
    clock_error: float = 0.0
    min_rate: tuple[float, float] | None = None
    idle_seconds: float | None = None
    close: Close = "none"
    status: int | None = None
    bytes: int | None = None
    connections: int = 0
    watched: float = 0.0


def of_stalled(stalled: Sequence[Seen], others: Sequence[Seen]) -> Deadline:
    """Return the deadline of an attack that stalls; `others` go on, and tell its kind."""
    ends = ended(stalled)
    if not ends or len(ends) < len(stalled):
        return none(stalled)
    seconds = _seconds(ends)
    when = median(seconds)
    if when <= SAME:
        return measured("absolute", ends)  # at once: no other could go on
    tolerance = same(when, max(seconds) - min(seconds))
    cut = [other for other in ended(others) if abs(_when(other) - when) <= tolerance]
    alive = _lived(others, when)
    faster = [end for end in ended(others) if _when(end) > when + tolerance]
    if others and len(cut) < len(others) and (alive or faster):
        fit = None if _at_once(others) else _rates(others, when, max(seconds) - min(seconds))
        # an idle timeout ends none that goes on: where most ended at once and the rest later, chance held these up
        kind: Kind = "min-rate" if fit else "idle" if alive or len(cut) * 2 <= len(others) else "absolute"
        return replace(measured(kind, ends), min_rate=fit)
    return measured("absolute", ends)


def of_dripped(stalled: Sequence[Seen], dripped: Sequence[Seen]) -> Deadline:
    """Return the deadline of an attack that goes on slowly; `stalled` ones are its twins that stop."""
    ends = ended(dripped)
    if ends and all(end.status in TOO_LARGE for end in ends) and len(ends) == len(dripped):
        return replace(measured("absolute", ends), bytes=max(end.sent for end in ends))
    if not ended(stalled) or len(ended(stalled)) < len(stalled):
        # nothing ends those that stall
        return measured("absolute", ends) if dripped and len(ends) == len(dripped) else none(dripped)
    deadline = of_stalled(stalled, dripped)
    if deadline.kind == "idle" and ends and (len(ends) == len(dripped) or _at_once(dripped)):
        # in the end all were cut: an absolute deadline above an idle timeout
        above = replace(measured("absolute", ends), idle_seconds=deadline.seconds)
        # a minimum rate may have put it off, up to a bound
        return above if _at_once(dripped) else replace(above, seconds=max(_seconds(ends)))
    if deadline.kind == "absolute" and ends:
        return measured("absolute", ends)
    return deadline


def narrowed(deadline: Deadline, closer: Collection[Seen]) -> Deadline:
    """Return the deadline with the bounds of its minimum rate as `closer` show them, which went on at rates between."""
    if deadline.min_rate is None or deadline.seconds is None:
        return deadline
    low, high = deadline.min_rate
    low = max([low, *map(_pace, ended(closer))])
    latest = deadline.seconds + same(deadline.seconds, deadline.spread)
    high = min([high, *(_most(one, latest) for one in _lived(closer, deadline.seconds))])
    return replace(deadline, min_rate=(low, high)) if low < high else deadline


def none(seen: Collection[Seen]) -> Deadline:
    """Return what is known if some were never ended: for how long these were watched."""
    still = [one.watched for one in seen if one.seconds is None]
    return Deadline(connections=len(seen), watched=min(still, default=0.0))


def measured(kind: Kind, ends: Sequence[Seen]) -> Deadline:
    """Return the deadline that these ends show."""
    # on a busy machine some times are not exact: then those count that are, if there are any
    exact = [end for end in ends if end.error <= EXACT] or list(ends)
    seconds, error = _seconds(exact), max(end.error for end in exact)
    (close, status), _ = Counter((end.close, end.status) for end in ends).most_common(1)[0]
    return Deadline(kind, median(seconds), max(seconds) - min(seconds), error, close=close, status=status,
                    connections=len(ends), watched=max(seconds))  # fmt: skip


def ended(seen: Collection[Seen]) -> list[Seen]:
    """Return those that the server has ended while they followed their script."""
    return [one for one in seen if one.seconds is not None and (one.full is None or one.seconds <= one.full)]


def _lived(seen: Collection[Seen], when: float) -> list[Seen]:
    """Return those that have outlived a deadline.

    One whose watch ended soon after the deadline has, to be on the safe side. One that stopped dripping soon after it
    has not: the server may have been about to end it.
    """
    ends = ended(seen)
    still = [one for one in seen if one not in ends]
    return [one for one in still if (one.watched > when if one.full is None else one.full > when * OUTLIVED)]


def _at_once(others: Sequence[Seen]) -> bool:
    """Tell if all that went on were ended at the same time, but for those that had stopped before."""
    ends = ended(others)
    seconds = _seconds(ends)
    together = bool(ends) and max(seconds) - min(seconds) <= max(SAME, SAME_PART * median(seconds))
    return together and len({end.rate for end in ends}) > 1 and not _lived(others, max(seconds))


def _when(end: Seen) -> float:
    assert end.seconds is not None
    return end.seconds


def _seconds(ends: Sequence[Seen]) -> list[float]:
    return [_when(end) for end in ends]


def same(when: float, spread: float) -> float:
    """Return by how much the end of another may differ to be of the same deadline."""
    return max(SAME, SAME_PART * when, spread)


def _rates(others: Sequence[Seen], when: float, spread: float) -> tuple[float, float] | None:
    """Return the bounds of a minimum rate; None if what was seen is an idle timeout.

    Every one that goes on at the same interval survives an idle timeout, or none does.
    """
    ends, lived = ended(others), _lived(others, when)
    if not ends or len({one.rate for one in others}) < 2:
        return None
    if (calculated := _calculated(ends, when, spread)) is not None:
        # jitter is a line, too, of a rate that nobody has tried
        return calculated if calculated[0] <= 2 * max(map(_pace, others)) else None
    fastest = max(map(_pace, ends))
    if lived and fastest < min(map(_pace, lived)):
        return fastest, min(_most(one, when + same(when, spread)) for one in lived)
    return None


def _most(lived: Seen, when: float) -> float:
    """Return the highest minimum rate that one can have lived with that outlived the deadline."""
    return _pace(lived) / max(LEAST_PART, 1 - when / _followed(lived))


def _pace(one: Seen) -> float:
    """Return the bytes per second that it has gone on with, which may be fewer than its script wants."""
    return one.went / _followed(one)


def _followed(one: Seen) -> float:
    """Return for how many seconds it has gone on."""
    return max(0.001, one.watched if one.full is None else one.full)


def _calculated(ends: Sequence[Seen], when: float, spread: float) -> tuple[float, float] | None:
    """Return the rate by which bytes have put off the ends, if all are as late as it would have them: twice, or two
    between which it lies, if what the ends are off by is no small part of that time."""
    points = [(0.0, when), *((float(end.went), _when(end)) for end in ends)]
    latest = max(seconds for _, seconds in points)
    if latest <= when + SAME or len({went for went, _ in points}) < 2:
        return None
    slope, start = linear_regression(*zip(*points, strict=True))
    off = [(abs(seconds - start - slope * went), seconds) for went, seconds in points]
    if slope <= 0 or any(error > max(SAME, SAME_PART * seconds) for error, seconds in off):
        return None
    doubt = DOUBT * max(spread, *(error for error, _ in off)) / (latest - when)
    doubt = doubt if doubt > DOUBTED else 0.0
    return 1 / slope / (1 + doubt), 1 / slope / max(LEAST_PART, 1 - doubt)
