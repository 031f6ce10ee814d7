"""How many examples a property test draws."""

from __future__ import annotations

from hypothesis import settings


def examples(number: int) -> int:
    """Return `number` in the profile `thorough`, and as large a share of it as another profile draws of 100."""
    return max(1, number * settings().max_examples // 100)
