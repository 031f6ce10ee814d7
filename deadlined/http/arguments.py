"""What a program gives to the classes of options: a value of a wrong type is told with the name of its field.

Facts      A compiled dataclass sets its attributes before any code of its class runs, and refuses what does not fit by
           an error that names neither field nor value. An interpreted one takes everything.
Hazard     A mistake is found far from where it was made, and differently in each build.
Answer     The arguments are checked before the class has them. This module is interpreted: `signature()` must still see
           the arguments, and compiled functions cannot pass for others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import wraps
from typing import Any, Final

# types for `require_types`; a bool is none of them
NUMBER: Final = (int, float)
WHOLE: Final = (int,)


def require_types(kind: Any, wanted: Mapping[str, tuple[type | tuple[type, ...], str]]) -> None:
    """Let the dataclass `kind` raise a TypeError, with the name of the field, for an argument that is of no type that
    `wanted` has for it, and a ValueError for a number that no float can hold. The text there says what is allowed. A
    bool is no number."""
    init = kind.__init__
    names = [field.name for field in fields(kind)]

    @wraps(init)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        for name, value in {**dict(zip(names, args, strict=False)), **kwargs}.items():
            types, allowed = wanted.get(name, (object, ""))
            if not isinstance(value, types) or (isinstance(value, bool) and types in (NUMBER, WHOLE)):
                raise TypeError(f"{name} must be {allowed}, not {value!r}")
            if types == NUMBER and _is_no_float(value):
                raise ValueError(f"{name} must be {allowed}; this one is too large for a float")
        init(self, *args, **kwargs)

    kind.__init__ = checked


def _is_no_float(value: Any) -> bool:
    try:
        float(value)
    except OverflowError:
        return True
    return False
