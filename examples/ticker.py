"""A heartbeat that skips the beats it misses, and a watchdog that notices when none comes.

    python examples/ticker.py --period 0.2 --beats 8

The work of one beat takes three periods and a half. As in Go, the ticker keeps one beat for the slow worker, drops the
others and keeps its phase, so the next beats come at their regular times. The watchdog is a function that every beat
postpones; it is called once, during the slow beat. Neither needs a task of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import trio

import deadlined

# the beat whose work takes too long, and how many periods it takes
SLOW = 3
SLOWNESS = 3.5
# periods without a beat after which the watchdog is called
PATIENCE = 1.5


async def heartbeat(period: float, beats: int, say: Callable[[str], None]) -> None:
    """Beat for `beats` periods, done or missed, and report by `say`."""

    def bark() -> None:
        say(f"watchdog: no beat for {PATIENCE} periods")

    watchdog = deadlined.after_func(PATIENCE * period, bark)
    beat, previous = 0, 0.0
    async for when in deadlined.Ticker(period):
        # `when` is the time at which the beat was due, so the difference is a whole number of periods
        passed = round((when - previous) / period) if beat else 1
        if passed > 1:
            say(f"skipped {passed - 1}")
        beat, previous = beat + passed, when
        watchdog.reset(PATIENCE * period)
        say(f"beat {beat}")
        if beat >= beats:
            break
        if beat == SLOW:
            await deadlined.sleep(SLOWNESS * period)
    watchdog.stop()


def main() -> None:
    """Read the arguments and beat."""
    parser = argparse.ArgumentParser(description="A heartbeat with a watchdog.")
    parser.add_argument("--period", type=float, default=0.5, help="seconds")
    parser.add_argument("--beats", type=int, default=8, help="how many periods to run")
    arguments = parser.parse_args()
    trio.run(heartbeat, arguments.period, arguments.beats, print)


if __name__ == "__main__":
    try:
        main()
    except* KeyboardInterrupt:
        pass
