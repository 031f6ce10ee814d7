"""Tasks that `asyncio.all_tasks()` does not show, so that programs which cancel all tasks leave them alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

# documented for libraries that have task classes of their own (Python's manual, "Extending asyncio")
hide: Final[Callable[[Any], object]] = asyncio.tasks._unregister_task
show: Final[Callable[[Any], object]] = asyncio.tasks._register_task
