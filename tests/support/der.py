"""DER, written: names of certificates as no library makes them."""

from __future__ import annotations

UTF8 = 0x0C
BIT_STRING = 0x03
_OBJECT, _SEQUENCE, _SET = 0x06, 0x30, 0x31

# the number of a type, a tag, and the content of the value
Attribute = tuple[str, int, bytes]


def element(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def names(*parts: list[Attribute]) -> bytes:
    """Return the content of a name, its parts in their order."""
    return b"".join(element(_SET, b"".join(map(_attribute, part))) for part in parts)


def _attribute(attribute: Attribute) -> bytes:
    number, tag, content = attribute
    return element(_SEQUENCE, element(_OBJECT, _object(number)) + element(tag, content))


def _object(number: str) -> bytes:
    first, second, *others = map(int, number.split("."))
    return b"".join(map(_digits, (40 * first + second, *others)))


def _digits(number: int) -> bytes:
    found = bytes([number & 0x7F])
    while number := number >> 7:
        found = bytes([0x80 | number & 0x7F]) + found
    return found
