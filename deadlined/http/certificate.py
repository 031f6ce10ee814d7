"""A certificate in parts, read from its DER (RFC 5280, 4.1).

Facts      `getpeercert()` decodes all of a certificate, and raises if a part that should be text is not, such as a
           mail address in Latin-1. OpenSSL has accepted such a client in the handshake.
Hazard     A client that was let in gets an error for each of its requests.
Answer     The parts that are needed are read here, and what is not text is written as its bytes.
"""

from __future__ import annotations

from typing import Final

# an element: its tag, its content, and all of it
Element = tuple[int, bytes, bytes]

# indexes of what `parts_of` returns
VALIDITY: Final = 3
_SUBJECT: Final = 4

_VERSION: Final = 0xA0

# of texts, by their tags
_ENCODINGS: Final = {
    0x0C: "utf-8",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
    # ASCII by the standard, and T.61; OpenSSL reads Latin-1
    **dict.fromkeys((0x12, 0x13, 0x14, 0x16, 0x1A), "latin-1"),
}

# the short names of RFC 4514, 3; others are LDAP's, or X.520's
_TYPES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.6": "C",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
    "1.2.840.113549.1.9.1": "emailAddress",
    "2.5.4.4": "sn",
    "2.5.4.5": "serialNumber",
    "2.5.4.12": "title",
    "2.5.4.13": "description",
    "2.5.4.15": "businessCategory",
    "2.5.4.17": "postalCode",
    "2.5.4.41": "name",
    "2.5.4.42": "givenName",
    "2.5.4.43": "initials",
    "2.5.4.44": "generationQualifier",
    "2.5.4.45": "x500UniqueIdentifier",
    "2.5.4.46": "dnQualifier",
    "2.5.4.65": "pseudonym",
    "2.5.4.97": "organizationIdentifier",
}

# bytes of the number of a type; those that exist have up to 20
_LONGEST_TYPE: Final = 64

# control characters and ends of lines, which would mean something in a log
_CONTROLS: Final = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)]

# these, as the bytes of UTF-8, and the characters that mean something in a distinguished name (RFC 4514, 2.4)
_ESCAPED: Final = str.maketrans(
    {character: f"\\{character}" for character in '"+,;<>\\'}
    | {character: "".join(f"\\{byte:02X}" for byte in character.encode()) for character in _CONTROLS}
)


def elements(der: bytes) -> list[Element]:
    """Return the elements that follow one another. ValueError or IndexError if it is not DER."""
    found = []
    at = 0
    while at < len(der):
        length, begin = der[at + 1], at + 2
        if length > 0x80:
            begin += length & 0x7F
            length = int.from_bytes(der[at + 2 : begin], "big")
        elif length == 0x80:
            raise ValueError("a length that is not told")
        end = begin + length
        if end > len(der) or der[at] & 0x1F == 0x1F:
            raise ValueError("cut short, or a tag of several bytes")
        found.append((der[at], der[begin:end], der[at:end]))
        at = end
    return found


def parts_of(der: bytes) -> list[Element]:
    """Return the parts of a certificate, from its serial number on. ValueError or IndexError if it is not one."""
    signed = elements(elements(der)[0][1])[0]
    parts = elements(signed[1])
    return parts[1:] if parts[0][0] == _VERSION else parts


def name_of(der: bytes) -> str:
    """Return the distinguished name of a certificate's owner (RFC 4514); "" also if it cannot be read."""
    try:
        return distinguished_name(parts_of(der)[_SUBJECT][1])
    except (ValueError, IndexError):
        # OpenSSL reads BER as well
        return ""


def distinguished_name(name: bytes) -> str:
    """Return the text of a name. `name`: the content of its element. The last part comes first (RFC 4514, 2.1).
    ValueError or IndexError if it cannot be read."""
    parts = ["+".join(_attribute(pair) for _, pair, _ in elements(part)) for _, part, _ in elements(name)]
    return ",".join(filter(None, reversed(parts)))


def _attribute(pair: bytes) -> str:
    (_, kind, _), (tag, content, value) = elements(pair)
    number = _dotted(kind)
    name = _TYPES.get(number)
    text = None if name is None else _text(tag, content)
    return f"{name or number}={f'#{value.hex()}' if text is None else _escaped(text)}"


def _text(tag: int, content: bytes) -> str | None:
    """Return the value of an element, None if it is not a text."""
    try:
        return content.decode(_ENCODINGS[tag])
    except (KeyError, UnicodeDecodeError):
        return None


def _escaped(value: str) -> str:
    text = value.translate(_ESCAPED)
    if text.startswith((" ", "#")):
        text = f"\\{text}"
    if text.endswith(" ") and len(value) > 1:
        text = f"{text[:-1]}\\ "
    return text


def _dotted(number: bytes) -> str:
    """Return the number of a type, such as 2.5.4.3. ValueError if it is too long, or cut short."""
    if not 0 < len(number) <= _LONGEST_TYPE or number[-1] & 0x80:
        raise ValueError("not the number of a type")
    found = [0]
    for byte in number:
        found[-1] = found[-1] << 7 | byte & 0x7F
        if byte < 0x80:
            found.append(0)
    # the first one is two (X.690, 8.19.4)
    first = min(found[0] // 40, 2)
    return ".".join(map(str, (first, found[0] - 40 * first, *found[1:-1])))
