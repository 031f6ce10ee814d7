"""Frozen dataclasses that can be pickled and copied.

Facts      `pickle` and `copy` make an object without calling its class, and then set its attributes one by one. An
           interpreted dataclass lets them, through its dictionary or methods that it gets with its slots.
Hazard     A compiled one has neither, and its attributes cannot be set: settings would not reach a process that is
           spawned, and a configuration that holds some could not be copied.
Answer     The class is called with the values of its fields.
"""

from __future__ import annotations

import dataclasses
from typing import Any


class Value:
    """The base of the frozen dataclasses in compiled modules."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (type(self), _values_of(self))


def _values_of(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}


def _made(kind: Any, values: dict[str, Any]) -> Any:
    return kind(**values)
