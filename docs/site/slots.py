"""An extension of griffe: fields that are described in a `__slots__` dictionary have that description."""

from __future__ import annotations

import ast
from typing import Any

from griffe import Attribute, Class, Docstring, Extension


class DescribedSlots(Extension):
    """Give each field of a class the text that `help()` shows for it."""

    def on_class_members(self, *, cls: Class, **kwargs: Any) -> None:
        """Read the texts of `__slots__`, if it is a dictionary."""
        slots = cls.members.get("__slots__")
        if not isinstance(slots, Attribute) or not str(slots.value).startswith("{"):
            return
        for name, text in ast.literal_eval(str(slots.value)).items():
            field = cls.members.get(name)
            if text and isinstance(field, Attribute):
                field.docstring = Docstring(text, parent=field)
                # how it is made concerns nobody
                field.value = None
