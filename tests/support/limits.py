"""The limits of the test's own process."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

from deadlined.service.process import file_limit


@contextmanager
def low_file_limit(soft: int) -> Iterator[None]:
    """Have a soft limit of open files below the hard one, which was not raised yet."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        file_limit._before = None
