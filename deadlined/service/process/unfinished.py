"""What keeps a process from its end, in words: where its main thread is busy, or what the end waits for."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from types import FrameType

from ..log.style import harmless
from ..log.tracebacks import is_installed, is_of_application, is_of_package

# threads, processes or tasks that are named as what the end has waited for
_NAMED = 10


def waited_for(tasks: list[str]) -> str:
    """Name what the process has waited for: the tasks that the event loop has not ended, `tasks`, or without any, the
    threads and the processes of `multiprocessing` that Python waits for. Return "" if there is nothing."""
    if tasks:
        return f"; it has waited for the cancelled tasks {_listed(tasks)}"
    threads = [one.name for one in threading.enumerate() if _is_joined(one)]
    module = sys.modules.get("multiprocessing.process")
    processes = [] if module is None else [one.name for one in module.active_children() if not one.daemon]
    named = [
        f"the {kind} {_listed(names)}" for kind, names in (("threads", threads), ("processes", processes)) if names
    ]
    return f"; it has waited for {' and '.join(named)}" if named else ""


def _listed(names: list[str]) -> str:
    """Return the first of `names`, which may be many, or alike, and are the application's, for one line."""
    counted = [name if number == 1 else f"{number} times {name}" for name, number in sorted(Counter(names).items())]
    more = f" and {len(counted) - _NAMED} more" if len(counted) > _NAMED else ""
    return harmless(", ".join(counted[:_NAMED])) + more


def _is_joined(thread: threading.Thread) -> bool:
    # an executor's thread is waited for, although it is a daemon if a daemon has started it
    module = sys.modules.get("concurrent.futures.thread")
    of_executors = () if module is None else getattr(module, "_threads_queues", ())
    return thread is not threading.main_thread() and (not thread.daemon or thread in of_executors)


def busy_place() -> str:
    """Say where the main thread runs code of the application, or else of an installed package that the end of Python
    calls by `atexit`; "" if it runs neither. A script that runs the server, as the command does, does not count."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    installed = ""
    while frame is not None and not is_of_package(file := frame.f_code.co_filename):
        if is_of_application(file):
            return _busy_in(frame)
        if not installed and is_installed(file):
            installed = _busy_in(frame)
        frame = frame.f_back
    # below the server are also frames of an event loop that is installed
    return installed if frame is None else ""


def _busy_in(frame: FrameType) -> str:
    return f"; it is busy in {frame.f_code.co_filename}, line {frame.f_lineno}, in {frame.f_code.co_name}"
