"""Standard output that may fail: what was measured for minutes is not lost because it cannot be shown."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TextIO


class Output(io.TextIOBase):
    """A stream to standard output, whatever that is now; after an error of it, to nowhere.

    The error is one line on stderr, and `failed` is true then. A reader of a pipe that has left is no error. Letters
    that the encoding does not have are replaced.
    """

    failed = False

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding or "utf-8"

    @property
    def _stream(self) -> TextIO:
        return sys.stdout or io.StringIO()  # None: it was closed when the process began

    def isatty(self) -> bool:
        return self._stream.isatty()

    def write(self, text: str) -> int:
        self._try(self._stream.write, text.encode(self.encoding, "replace").decode(self.encoding))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def close(self) -> None:
        """Leave standard output open: others print there."""

    def _try(self, act: Callable[..., object], *arguments: str) -> None:
        try:
            act(*arguments)
        except OSError as error:
            with suppress(OSError), Path(os.devnull).open("wb") as nowhere:
                # the flush at the end of the process must not fail, too
                os.dup2(nowhere.fileno(), self._stream.fileno())
            if not isinstance(error, BrokenPipeError):
                self.failed = True
                print(f"Error: standard output: {error.strerror}", file=sys.stderr)


OUTPUT = Output()
