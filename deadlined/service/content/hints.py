"""A hint in the log for an application that runs on the wrong event loop.

Facts      A call of asyncio in a task of trio raises "no running event loop" or one of a few other texts, a call of
           trio in a task of asyncio "must be called from async context" or alike. Libraries wrap these errors.
Hazard     What is logged is a traceback out of some library. Nothing says that one option of the server fixes it.
Answer     Every exception that reaches the log is searched for those texts. The first find of the process is one line
           of log: which loop is needed, the option, and the innermost line of the application on the way to the call.
Cost       A walk through each exception that is logged, until one was found.
"""

from __future__ import annotations

import logging
import re
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from ..log.logs import Log, Onlooker

# what the standard library, trio and aiohttp say, by the event loop that the call needs
_NEEDS = {
    "asyncio": re.compile(
        r"no running event loop|There is no current event loop"
        r"|trio\.run received unrecognized yield message"
        r"|'NoneType' object has no attribute 'create_future'"
        r"|Timeout (?:context manager )?should be used inside a task"
    ),
    "trio": re.compile(
        r"must be called from async context"
        r"|'RunContext' object has no attribute '(?:runner|task)'"
        r"|Task got bad yield: .*(?:trio\.|WaitTaskRescheduled)"
    ),
}

_OURS = str(Path(__file__).parents[2])
_STANDARD = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})
_INSTALLED = ("/site-packages/", "/dist-packages/")
# whose frames lie between the application and the failure
_ASYNC_LIBRARIES = tuple(f"{folder}{name}/" for folder in _INSTALLED for name in ("trio", "anyio", "sniffio", "uvloop"))


@dataclass(frozen=True)
class Hint:
    """An application needs the event loop `loop`. `frame`: the innermost line of the application, None if unknown."""

    loop: str
    error: BaseException
    frame: traceback.FrameSummary | None

    def __str__(self) -> str:
        return f"this application needs {self.loop}: serve it with --loop {self.loop}"


def hint(error: BaseException, loop: str) -> Hint | None:
    """Return what `error`, its causes, contexts and members say about an application that runs on `loop`; None if
    nothing."""
    running = "trio" if loop == "trio" else "asyncio"
    found: list[Hint] = []
    for each in _related(error):
        needed = _needed(each)
        if needed is not None and needed != running:
            frame = _application_frame(each.__traceback__) or _application_frame(error.__traceback__)
            found.append(Hint(needed, each, frame))
    # a text that repeats another exception's has no frames
    return next((each for each in found if each.frame is not None), found[0] if found else None)


class LoopHint(Onlooker):
    """A handler of log records that writes one line to `log`, at most once, if an exception shows that the application
    needs another event loop than `loop`."""

    def __init__(self, loop: str, log: Log) -> None:
        super().__init__()
        self._loop = loop
        self._log = log
        self._told = False

    def emit(self, record: logging.LogRecord) -> None:
        """Search the exception of a record."""
        try:
            if not self._told and record.exc_info and record.exc_info[1] is not None:
                self.search(record.exc_info[1])
        except Exception:
            self.handleError(record)

    def search(self, error: BaseException) -> Hint | None:
        """Search an exception, and return what it shows. Write the line if it is the first."""
        found = hint(error, self._loop)
        if found is not None and not self._told:
            self._told = True
            frame = found.frame
            place = {} if frame is None else {"call": frame.line, "file": frame.filename, "line": frame.lineno}
            self._log(str(found), level="warning", **place, error=f"{type(found.error).__name__}: {found.error}")
        return found


@contextmanager
def hinting(loop: str, log: Log) -> Iterator[LoopHint]:
    """Search the exceptions that are logged, for one block; the server's only if the root logger has no handler."""
    handler = LoopHint(loop, log)
    # some frameworks replace the handlers of the root
    loggers = [logging.getLogger("deadlined")]
    root = logging.getLogger()
    if root.handlers:
        # as the only one it would keep warnings from `logging.lastResort`
        loggers.append(root)
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield handler
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def _needed(error: BaseException) -> str | None:
    """Return the event loop that was missing when `error` was raised, None if the error does not say."""
    if isinstance(error, (RuntimeError, TypeError, AttributeError)):
        text = str(error)
        for loop, said in _NEEDS.items():
            if said.search(text):
                return loop
    return None


def _related(error: BaseException) -> Iterator[BaseException]:
    """Give `error`, and all exceptions that it contains or follows, once each."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        following = [each.__cause__, each.__context__]
        members = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        waiting += [*(other for other in following if other is not None), *reversed(members)]


def _application_frame(trace: TracebackType | None) -> traceback.FrameSummary | None:
    """Return the innermost frame of the application: of a file that is not installed, or else of an installed package
    that is not part of an event loop. None if there is none."""
    frames = [frame for frame in reversed(traceback.extract_tb(trace)) if not _is_of_a_loop(frame.filename)]
    own = (frame for frame in frames if not any(folder in frame.filename for folder in _INSTALLED))
    return next(own, frames[0] if frames else None)


def _is_of_a_loop(file: str) -> bool:
    """Return True for a file of an event loop, the standard library, or the server."""
    # compiled code names its files relative to where it was compiled
    if file.startswith(("<", "deadlined/", f"{_OURS}/")):
        return True
    if any(folder in file for folder in _INSTALLED):
        return any(library in file for library in _ASYNC_LIBRARIES)
    return file.startswith(tuple(f"{folder}/" for folder in _STANDARD))
