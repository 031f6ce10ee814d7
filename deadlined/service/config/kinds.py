"""The kinds of values that a setting can have: how each is read from text and from TOML, and how it is shown.

Flags and variables are text. TOML has numbers, booleans and lists beside text, and each kind accepts those that cannot
be misread: 10 for a duration is 10 seconds, but `true` for a number is a mistake.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from .units import AMOUNTS, DURATIONS, amount, duration, show_amount, show_duration

# what click understands in variables
_TRUE = frozenset({"1", "true", "t", "yes", "y", "on"})
_FALSE = frozenset({"0", "false", "f", "no", "n", "off"})


class Kind:
    """A kind of value. An abstract base class. `name` stands for the value in a help text; `allowed` says what can be
    written."""

    name: str
    allowed: str

    def parse(self, text: str) -> Any:
        """Return the value of a flag or a variable. ValueError says what is wrong, and what is allowed."""
        raise NotImplementedError

    def accept(self, value: Any) -> Any:
        """Return the value of a TOML value. ValueError says what is wrong, and what is allowed."""
        raise NotImplementedError

    def text(self, value: Any) -> str:
        """Return the text from which `parse` returns `value`."""
        return str(value)

    def toml(self, value: Any) -> str:
        """Return the TOML from which `accept` returns `value`."""
        return quoted(self.text(value))


class Quantity(Kind):
    """A number with a unit, `inf` for off. `positive`: 0 is refused; `zero_is_off`: 0 is off as well; `never_off`: off
    is refused."""

    def __init__(
        self,
        name: str,
        parse: Callable[[str], float],
        text: Callable[[float], str],
        allowed: str,
        *,
        whole: bool = False,
        positive: bool = False,
        zero_is_off: bool = False,
        never_off: bool = False,
    ) -> None:
        self.name = name
        self.allowed = allowed
        self._parse = parse
        self._text = text
        self._whole = whole
        self._positive = positive
        self._zero_is_off = zero_is_off
        self._never_off = never_off

    def parse(self, text: str) -> float:
        return self._checked(self._parse(text))

    def accept(self, value: Any) -> float:
        if isinstance(value, str):
            return self.parse(value)
        # a bool is an int; NaN fails each comparison
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise ValueError(f"{shown(value)} is not {_article(self.name)}: {self.allowed}")
        number = _as_float(value)
        if self._whole and number != math.inf and not number.is_integer():
            raise ValueError(f"{shown(value)} is not {_article(self.name)}: {self.allowed}")
        return self._checked(number)

    def text(self, value: float) -> str:
        return self._text(value)

    def toml(self, value: float) -> str:
        return self.text(value) if self._whole and value != math.inf else quoted(self.text(value))

    def _checked(self, number: float) -> float:
        if self._positive and not number:
            raise ValueError("must be above 0; off switches it off")
        if self._never_off and number == math.inf:
            raise ValueError(f"cannot be off: {self.allowed}")
        return math.inf if self._zero_is_off and not number else number


class Flag(Kind):
    """True or False."""

    name = ""
    allowed = "write true or false"

    def parse(self, text: str) -> bool:
        word = text.strip().lower()
        if word not in _TRUE | _FALSE:
            raise ValueError(f"{text!r} is neither true nor false: {self.allowed}")
        return word in _TRUE

    def accept(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"{shown(value)} is neither true nor false: {self.allowed}")
        return value

    def text(self, value: bool) -> str:
        return "true" if value else "false"

    def toml(self, value: bool) -> str:
        return self.text(value)


class Plain(Kind):
    """A value that msgspec converts to `type`. `what` names such a value in a message."""

    def __init__(self, name: str, type_: Any, what: str, allowed: str) -> None:
        self.name = name
        self.allowed = allowed
        self._type = type_
        self._what = what

    def parse(self, text: str) -> Any:
        return self._convert(text, strict=False)

    def accept(self, value: Any) -> Any:
        # strict: where a number is allowed, its text is not
        _refuse_number(value, partial(self._convert, strict=True))
        return self._convert(value, strict=True)

    def toml(self, value: Any) -> str:
        return str(value) if isinstance(value, int) else quoted(value)

    def _convert(self, value: Any, *, strict: bool) -> Any:
        try:
            return msgspec.convert(value, self._type, strict=strict)
        except msgspec.ValidationError:
            raise ValueError(f"{shown(value)} is not {self._what}: {self.allowed}") from None


class Checked(Kind):
    """A text that `check` returns, or refuses by a ValueError."""

    allowed = ""

    def __init__(self, name: str, check: Callable[[str], str]) -> None:
        self.name = name
        self._check = check

    def parse(self, text: str) -> str:
        return self._check(text)

    def accept(self, value: Any) -> str:
        _refuse_number(value, self._check)
        if not isinstance(value, str):
            raise ValueError(f"{shown(value)} is not text: write {_article(self.name)}")
        return self._check(value)


class Words(Kind):
    """A list of texts, separated by commas where it is one text, so that one of them may be a path with blanks. `check`
    raises ValueError for a wrong one."""

    def __init__(self, name: str, allowed: str, check: Callable[[str], object]) -> None:
        self.name = name
        self.allowed = allowed
        self._check = check

    def parse(self, text: str) -> tuple[str, ...]:
        return self.accept([word for part in text.split(",") if (word := part.strip())])

    def accept(self, value: Any) -> tuple[str, ...]:
        try:
            words = msgspec.convert([value] if isinstance(value, str) else value, tuple[str, ...])
        except msgspec.ValidationError:
            raise ValueError(f"{shown(value)} is not a list of texts: {self.allowed}") from None
        for word in words:
            self._check(word)
        return words

    def text(self, value: Sequence[str]) -> str:
        return ",".join(value)

    def toml(self, value: Sequence[str]) -> str:
        return _list(value)


class Program(Kind):
    """A command and its arguments: a list in TOML, and in text with the quotes of a shell."""

    name = "command"
    allowed = 'write a list of texts, such as ["uvicorn", "app:app", "--uds", "{uds}"]'

    def parse(self, text: str) -> tuple[str, ...]:
        try:
            return tuple(shlex.split(text))
        except ValueError as error:
            raise ValueError(f"{text!r} is not a command: {error}") from None

    def accept(self, value: Any) -> tuple[str, ...]:
        try:
            return msgspec.convert(value, tuple[str, ...])
        except msgspec.ValidationError:
            raise ValueError(f"{shown(value)} is not a command: {self.allowed}") from None

    def text(self, value: Sequence[str]) -> str:
        return shlex.join(value)

    def toml(self, value: Sequence[str]) -> str:
        return _list(value)


class Mode(Kind):
    """Permission bits in octal, of what its owner must be able to read and write."""

    name = "mode"
    allowed = "write three octal digits, such as 660"

    def parse(self, text: str) -> int:
        if not re.fullmatch(r"(0o?)?[0-7]{3}", text):
            raise ValueError(f"{text!r} is not a mode: {self.allowed}")
        mode = int(text[-3:], 8)
        if mode & 0o600 != 0o600:
            raise ValueError(
                f"{text!r} does not let the owner read and write: write three octal digits that begin with 6 or 7, "
                "such as 660, which is what the umask 007 leaves"
            )
        return mode

    def accept(self, value: Any) -> int:
        # TOML's 0o660 is a number
        if isinstance(value, int) and not isinstance(value, bool):
            raise ValueError(f'{value} is a number, and may be octal or not: write a text, such as "660"')
        if not isinstance(value, str):
            raise ValueError(f"{shown(value)} is not a mode: {self.allowed}")
        return self.parse(value)

    def text(self, value: int) -> str:
        return f"{value:03o}"


def duration_kind(*, positive: bool = False, zero_is_off: bool = False) -> Kind:
    """Return the kind of durations, in seconds."""
    return Quantity("duration", duration, show_duration, DURATIONS, positive=positive, zero_is_off=zero_is_off)


def amount_kind() -> Kind:
    """Return the kind of whole numbers with units of 1024."""
    return Quantity("amount", amount, show_amount, AMOUNTS, whole=True, positive=True)


def rate_kind(grace: str) -> Kind:
    """Return the kind of a minimum rate in bytes per second. `off` is refused: without a rate nothing would extend the
    deadline. `grace` is the flag that switches the check off."""
    allowed = f"write a number of bytes per second, such as 500 or 16k; {grace} off switches the check off"

    def parse(text: str) -> float:
        return amount(text, "a rate", allowed)

    return Quantity("rate", parse, show_amount, allowed, whole=True, never_off=True)


def printable(text: str) -> str:
    """Return a text that UTF-8 can encode: a byte of a file's name that is not UTF-8 is written as \\udcff."""
    return text.encode("utf-8", "backslashreplace").decode()


def quoted(text: str) -> str:
    """Return a text as TOML writes it."""
    return json.dumps(printable(text), ensure_ascii=False).replace("\x7f", "\\u007f")


def shown(value: Any) -> str:
    """Return a value of TOML, or a text, as a message shows it."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _list(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(quoted, texts))}]"


def _refuse_number(value: Any, check: Callable[[str], object]) -> None:
    """Raise ValueError for a number of TOML whose text would be right: `check` accepts it, and raises ValueError for
    others."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    try:
        check(str(value))
    except ValueError:
        return
    raise ValueError(f'{value} is a number: write the text "{value}"')


def _article(name: str) -> str:
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


def _as_float(number: int | float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf
