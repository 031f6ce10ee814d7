"""Run commands one after another, each with a time limit, in a program that blocks.

    echo sleep 60 | python examples/timer_thread.py --limit 1       # killed after 1 s

There is no event loop: the program waits for its child, and one thread runs all timers. One timer kills a child that
takes too long, another reports every few seconds what the program waits for. `stop()` returns False if the kill has
been sent, or is being sent.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time

from deadlined.threads import TimerThread


def run(timers: TimerThread, command: str, limit: float, report: float) -> str:
    """Run one command, and return how it ended."""
    started = time.monotonic()

    def tell() -> None:
        print(f"{command}: for {time.monotonic() - started:.1f} s now", flush=True)

    try:
        # the other commands are in the standard input, and not for this one
        process = subprocess.Popen(shlex.split(command), stdin=subprocess.DEVNULL)
    except (OSError, ValueError) as error:
        return f"cannot start: {error}"
    with process:
        watchdog = timers.after_func(limit, process.kill)
        reporter = timers.every(report, tell)
        status = process.wait()
        in_time = watchdog.stop()
        reporter.stop()
    if not in_time:
        return f"killed after {limit:g} s"
    return f"exit status {status}"


def main() -> None:
    """Read the arguments, and the commands from the standard input, a line each."""
    parser = argparse.ArgumentParser(description="Run commands, each within a time limit.")
    parser.add_argument("--limit", type=float, default=10.0, help="seconds per command")
    parser.add_argument("--report", type=float, default=5.0, help="seconds between two lines on a command that runs")
    arguments = parser.parse_args()
    with TimerThread() as timers:
        for line in sys.stdin:
            if command := line.strip():
                print(f"{command}: {run(timers, command, arguments.limit, arguments.report)}", flush=True)


if __name__ == "__main__":
    try:
        main()
    except* KeyboardInterrupt:
        pass
