"""A Python server with the garbage collector and the C library's allocator as `deadlined serve` sets them: `python -m
loadtest.peers.tuned MODULE[:FUNCTION] ...`. It calls the function, or runs the module as `python -m` does.

Otherwise a benchmark would compare settings of these. A server that starts processes for its workers, as granian does,
has the defaults in these.
"""

from __future__ import annotations

import importlib
import runpy
import sys

from deadlined.service import keep_freed_memory, tune_gc


def main() -> None:
    """Run the module or the function with the rest of the arguments."""
    module, _, function = sys.argv.pop(1).partition(":")
    # what the server needs is imported before the collector is told that all there is stays
    imported = importlib.import_module(module)
    tune_gc()
    keep_freed_memory()
    if function:
        getattr(imported, function)()
        return
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
