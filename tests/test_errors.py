"""Errors that are kept to be raised later."""

from __future__ import annotations

import pytest

from deadlined.errors import Kept
from tests.support.garbage import assert_leaves_no_garbage


class Keeper:
    """Fails in one method, and raises why in another one, as what has failed beside a task does."""

    def __init__(self) -> None:
        try:
            raise ValueError("why")
        except ValueError as error:
            self.kept = Kept(error)

    def reraise(self) -> None:
        kept = self.kept
        kept.reraise()


async def test_an_error_that_was_kept_leaves_no_reference_cycle() -> None:
    async def fail() -> None:
        with pytest.raises(ValueError, match="why"):
            Keeper().reraise()

    await assert_leaves_no_garbage(fail)
