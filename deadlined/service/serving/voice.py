"""How a serving process speaks: its log, its access log, and what it says first."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from ... import __version__
from ...timing import after_func
from ..config import ServeConfig
from ..log.access import AccessLog, FailureLog
from ..log.entries import Layout
from ..log.greeting import Facts, parser_in_use
from ..log.logs import Log, reaches
from ..log.output import write_last_lines_to
from ..log.queries import WithoutQueries, leave_out_queries


@dataclass(frozen=True)
class Voice:
    """The output of a serving process: its log, its access log, and the first screen. `thread_log` may be called in
    other threads. `access` is None without an access log."""

    layout: Layout
    log: Log
    thread_log: Log
    access: AccessLog | None
    out: TextIO

    def greet(self, config: ServeConfig, title: str, urls: Sequence[str], *, for_all: bool) -> None:
        """Log that this process listens at `urls`. If the layout has a first screen, a process that speaks `for_all`
        writes that instead; it also says what is served (`title`)."""
        greets = for_all and reaches("info", config.log_level)
        screen = self.layout.greeting(_facts(config, title, urls)) if greets else ""
        if screen:
            self.out.write(screen)
            return
        parser = {} if config.tcp else {"http": parser_in_use(config.http)}
        for each in urls:
            self.log("listening", url=each, loop=config.loop, **parser, version=__version__, pid=os.getpid())

    def end(self) -> None:
        """Write the lines that the access log keeps. From now on, wait longer for a reader of the output that lags."""
        write_last_lines_to(self.out)
        if self.access is not None:
            self.access.flush()


def voice_of(config: ServeConfig, layout: Layout, log: Log, out: TextIO) -> Voice:
    """Return how this process speaks, and leave queries out of all lines if that is configured."""
    if not config.log_query:
        leave_out_queries()
        layout = WithoutQueries(layout)
    access = _access_log(config, out, layout)
    return Voice(layout, _after(access, log), log, access, out)


def _access_log(config: ServeConfig, out: TextIO, layout: Layout) -> AccessLog | None:
    """Return the access log, None if no line of it would be written."""
    if not config.access_log or not reaches("warning", config.log_level):
        return None
    everything = config.access_log_lines == "all" and reaches("info", config.log_level)
    kind = AccessLog if everything else FailureLog
    return kind(out, after_func, layout)


def _after(access: AccessLog | None, log: Log) -> Log:
    """Return `log`, made to write what the access log keeps first."""
    if access is None:
        return log
    flush = access.flush

    def ordered(event: str, **fields: object) -> None:
        flush()
        log(event, **fields)

    return ordered


def _facts(config: ServeConfig, title: str, urls: Sequence[str]) -> Facts:
    return Facts(
        app=title,
        urls=urls,
        loop=config.loop,
        http="" if config.tcp else config.http,
        workers=config.workers,
        timeouts=config.timeouts,
    )
