"""Tracebacks for people: from the application's own file on.

Facts      A traceback begins with the frames that lead to the application: the server's, the import system's, those of
           frameworks. Frameworks also send tracebacks as text (in `lifespan.startup.failed`).
Hazard     The one line that the author can fix is the thirtieth of fifty.
Answer     Each traceback of a chain begins with the first frame of the application. Frames of the import system are
           left out everywhere. A traceback that is not of the application at all is shown as it is.
Cost       It works on the text, as Python formats it, so that both kinds are cut by one rule.
"""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Iterator
from itertools import dropwhile
from pathlib import Path
from traceback import FrameSummary
from typing import Literal

_OURS = str(Path(__file__).parents[2])
_STANDARD = tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib")})
_INSTALLED = ("/site-packages/", "/dist-packages/")
_IMPORTING = ("<frozen importlib", "<frozen runpy", "<frozen zipimport")

# what a line of a traceback is; `text` are exceptions and what is between them
Part = Literal["header", "own", "library", "text"]

_HEADER = "Traceback (most recent call last):"
# a frame's first line; what stands before it are the bars of an exception group
_FRAME = re.compile(r'((?:[ |]*\| )?)  File "(.*)", line \d+')
# what stands before the other lines of an exception in a group
_GROUP_BARS = re.compile(r"^[ |]*\| ")


def is_of_package(file: str) -> bool:
    """Return True for a file of this package."""
    # compiled code names its files relative to where it was compiled
    return file.startswith(("deadlined/", f"{_OURS}/"))


def is_of_server(file: str) -> bool:
    """Return True for a file of this package, or of the import system."""
    return _imports(file) or file.endswith("/runpy.py") or is_of_package(file)


def is_of_application(file: str) -> bool:
    """Return True for a file that is neither of the server, nor of the standard library, nor installed."""
    if is_of_server(file) or file.startswith("<") or is_installed(file):
        return False
    return not file.startswith(_STANDARD)


def is_installed(file: str) -> bool:
    """Return True for a file of an installed package; where it is installed, this one is such a package, too."""
    return any(folder in file for folder in _INSTALLED)


def innermost(error: BaseException) -> BaseException:
    """Return the last error of a group that was raised, which is the last in its traceback; `error` itself if it is no
    group, or nothing in it was raised."""
    if isinstance(error, BaseExceptionGroup):
        for member in reversed(error.exceptions):
            found = innermost(member)
            if found.__traceback__ is not None:
                return found
    return error


def place(error: BaseException) -> FrameSummary | None:
    """Return the innermost frame of the application in the traceback of `error`, or of any library if there is none;
    None if there is neither. The place of a SyntaxError is the line that is wrong, that of a group its innermost
    error's."""
    error = innermost(error)
    frames = list(reversed(traceback.extract_tb(error.__traceback__)))
    if isinstance(error, SyntaxError) and error.filename is not None:
        frames.insert(0, FrameSummary(error.filename, error.lineno or 0, "<module>", lookup_line=False))
    own = (frame for frame in frames if is_of_application(frame.filename))
    others = (frame for frame in frames if not is_of_server(frame.filename))
    return next(own, None) or next(others, None)


def message(error: BaseException) -> str:
    """Return the message of an exception, or that it cannot be had; that of a SyntaxError without the place."""
    try:
        return error.msg if isinstance(error, SyntaxError) else str(error)
    except Exception as failure:
        return f"<its text raises {type(failure).__name__}>"


def full(error: BaseException) -> str:
    """Return the whole traceback of `error` as Python prints it, without the last newline. If Python cannot, return
    only where and what was raised, without what came before."""
    try:
        lines = traceback.format_exception(error)
    except (Exception, SystemExit):
        # of a ModuleNotFoundError, Python 3.15 imports the package again, which fails again
        frames = traceback.format_tb(error.__traceback__)
        lines = [f"{_HEADER}\n", *frames, f"{type(error).__name__}: {message(error)}"]
    return "".join(lines).rstrip("\n")


def shown(error: BaseException) -> str:
    """Return the traceback of `error` from the application on."""
    return cut(full(error))


def cut(text: str) -> str:
    """Return a text with each traceback in it cut to what begins with the application."""
    return "\n".join(line for _, line in parts(text))


def cut_stack(text: str) -> str:
    """Return the frames of a stack, without a header, from the application on. Its beginning may be missing."""
    lines = list(dropwhile(lambda line: not _FRAME.match(line), text.splitlines()))
    return "\n".join(line for _, line in _kept(list(_frames(lines[::-1]))))


def last_error(text: str) -> str:
    """Return the line that says what was raised, in a text that ends with a traceback, of a group the line of its
    innermost error; in another text the last line."""
    lines = list(parts(text.strip()))
    frames = [number for number, (kind, _) in enumerate(lines) if kind != "text"]
    if not frames:
        return lines[-1][1] if lines else ""
    following = lines[frames[-1] + 1 :]
    return _GROUP_BARS.sub("", following[0][1]) if following else ""


def parts(text: str) -> Iterator[tuple[Part, str]]:
    """Give what `cut` returns line by line, each with what it is."""
    lines = text.splitlines()[::-1]
    while lines:
        line = lines.pop()
        if line.endswith(_HEADER):
            yield "header", line
            yield from _kept(list(_frames(lines)))
        else:
            yield "text", line


def _frames(lines: list[str]) -> Iterator[list[str]]:
    """Take the frames of a traceback from the end of `lines`, which are in reverse. A frame is its first line and what
    is indented below it."""
    while lines and (found := _FRAME.match(lines[-1])):
        frame = [lines.pop()]
        while lines and lines[-1].startswith(f"{found[1]}  ") and not _FRAME.match(lines[-1]):
            frame.append(lines.pop())
        yield frame


def _kept(frames: list[list[str]]) -> Iterator[tuple[Part, str]]:
    """Give the lines that are shown of the frames of one traceback."""
    files = [_file(frame[0]) for frame in frames]
    own = (number for number, file in enumerate(files) if is_of_application(file))
    others = (number for number, file in enumerate(files) if not is_of_server(file))
    first = next(own, None)
    first = next(others, 0) if first is None else first
    left_out = sum(not is_of_server(file) for file in files[:first])
    if left_out:
        yield "header", f"{_bars(frames[0][0])}  ... outer frames of libraries left out: {left_out}"
    for frame, file in zip(frames[first:], files[first:], strict=True):
        if not _imports(file):
            yield from (("own" if is_of_application(file) else "library", line) for line in frame)


def _file(line: str) -> str:
    """Return the file of a frame's first line."""
    found = _FRAME.match(line)
    return found[2] if found else ""


def _bars(line: str) -> str:
    found = _FRAME.match(line)
    return found[1] if found else ""


def _imports(file: str) -> bool:
    return file.startswith(_IMPORTING) or file.endswith("/importlib/__init__.py")
