"""The end of the content (`content/content.py`), after the drain; also if requests do not end.

Facts      Nothing ends a request that waits for a thread of anyio's, as a plain `def` endpoint of FastAPI does, nor one
           that ignores its cancellation. Then the process is ended (`stopping.py`).
Hazard     The application would never be told to shut down: what its last requests have left to write would be lost.
Answer     Requests have OVERDUE seconds to clean up after they were cancelled, with all that the application has. Then
           the content is closed, whether they have ended or not.
Cost       A task that waits, per process.
"""

from __future__ import annotations

from typing import Final

from ...runtime import Event
from ..content.content import Content
from ..process.last_resort import MARGIN
from .drain import ProcessDrain

# seconds after the drain's deadline; as many are left then for the end of the content
OVERDUE: Final = MARGIN / 2


class Closing:
    """Closes `content` once: when `close` is called, or at the end of `watch`, a task beside the server."""

    def __init__(self, content: Content, drain: ProcessDrain) -> None:
        self._content = content
        self._drain = drain
        self._begun = False
        self._closed = Event()

    async def watch(self) -> None:
        """Close the content OVERDUE seconds after the drain's deadline."""
        await self._drain.wait_overdue(OVERDUE)
        await self.close()

    async def close(self) -> None:
        """Close the content, or wait until that is done."""
        if self._begun:
            await self._closed.wait()
            return
        self._begun = True
        await self._content.close(self._drain.deadline)
        self._closed.set()
