"""The grammar of a request's head and of a body in chunks, as one table of transitions (RFC 9112, 3, 5 and 7.1).

Facts      RFC 9112 leaves room for leniency: a bare LF, folded lines, anything behind the `;` of a chunk's size.
Hazard     Two parties on one path that read such bytes differently see different messages (request smuggling).
Answer     Every byte has at most one place to go. A byte that has none is refused when it arrives, whatever comes
           after it and in whichever pieces the bytes come.
Cost       One look-up per byte, so the table reads only what is short or late: heads that come in pieces, the lines
           between chunks, trailers.
"""

from __future__ import annotations

from string import ascii_letters, digits, hexdigits
from typing import Final

from ..errors import BadRequest

_WHITESPACE: Final = b" \t"
_DIGIT: Final = digits.encode()
_HEX: Final = hexdigits.encode()
# RFC 9110, 5.6.2
_TOKEN: Final = b"!#$%&'*+-.^_`|~" + (digits + ascii_letters).encode()
_VISIBLE: Final = bytes(range(0x21, 0x7F))
# RFC 9110, 5.5: visible characters, obs-text and whitespace
_TEXT: Final = _WHITESPACE + _VISIBLE + bytes(range(0x80, 0x100))
# RFC 9110, 5.6.4: what stands in quotes unescaped
_QUOTED_TEXT: Final = bytes(byte for byte in _TEXT if byte not in b'"\\')

# no transition leads out of this state, and none into it: the table says so where a byte is not allowed
REFUSED: Final = 0
# the request line
METHOD_START: Final = 1
_METHOD: Final = 2
_TARGET_START: Final = 3
_TARGET: Final = 4
# one state per character of `HTTP/1.1`
_VERSION: Final = 5
_VERSION_END: Final = 13
_REQUEST_LINE_LF: Final = 14
# header or trailer fields; LINE is where a field or the empty line begins
LINE: Final = 15
FIELD_NAME: Final = 16
_FIELD_VALUE: Final = 17
_FIELD_LF: Final = 18
_LAST_LF: Final = 19
END: Final = 20
# the line before a chunk
SIZE_START: Final = 21
SIZE: Final = 22
_SIZE_LF: Final = 23
# what follows a chunk's data
DATA: Final = 24
DATA_CR: Final = 25
_DATA_LF: Final = 26
# chunk extensions, which have the highest numbers
EXTENSION: Final = 27
_EXTENSION_NAME: Final = 28
_NAME_SPACE: Final = 29
_EXTENSION_EQUALS: Final = 30
_EXTENSION_VALUE: Final = 31
_EXTENSION_SPACE: Final = 32
_QUOTED: Final = 33
_ESCAPED: Final = 34
_QUOTE_END: Final = 35

# state: the bytes that are allowed in it, and the state that each leads to
_TRANSITIONS: Final[dict[int, tuple[tuple[bytes, int], ...]]] = {
    METHOD_START: ((_TOKEN, _METHOD),),
    _METHOD: ((_TOKEN, _METHOD), (b" ", _TARGET_START)),
    _TARGET_START: ((_VISIBLE, _TARGET),),
    _TARGET: ((_VISIBLE, _TARGET), (b" ", _VERSION)),
    **{
        _VERSION + place: ((allowed, _VERSION + place + 1),)
        for place, allowed in enumerate((b"H", b"T", b"T", b"P", b"/", _DIGIT, b".", _DIGIT))
    },
    _VERSION_END: ((b"\r", _REQUEST_LINE_LF),),
    _REQUEST_LINE_LF: ((b"\n", LINE),),
    LINE: ((_TOKEN, FIELD_NAME), (b"\r", _LAST_LF)),
    FIELD_NAME: ((_TOKEN, FIELD_NAME), (b":", _FIELD_VALUE)),
    _FIELD_VALUE: ((_TEXT, _FIELD_VALUE), (b"\r", _FIELD_LF)),
    _FIELD_LF: ((b"\n", LINE),),
    _LAST_LF: ((b"\n", END),),
    SIZE_START: ((_HEX, SIZE),),
    SIZE: ((_HEX, SIZE), (_WHITESPACE, _EXTENSION_SPACE), (b";", EXTENSION), (b"\r", _SIZE_LF)),
    _SIZE_LF: ((b"\n", DATA),),
    DATA_CR: ((b"\r", _DATA_LF),),
    _DATA_LF: ((b"\n", SIZE_START),),
    EXTENSION: ((_WHITESPACE, EXTENSION), (_TOKEN, _EXTENSION_NAME)),
    _EXTENSION_NAME: (
        (_TOKEN, _EXTENSION_NAME), (_WHITESPACE, _NAME_SPACE), (b"=", _EXTENSION_EQUALS), (b";", EXTENSION),
        (b"\r", _SIZE_LF),
    ),
    _NAME_SPACE: ((_WHITESPACE, _NAME_SPACE), (b"=", _EXTENSION_EQUALS), (b";", EXTENSION)),
    _EXTENSION_EQUALS: ((_WHITESPACE, _EXTENSION_EQUALS), (_TOKEN, _EXTENSION_VALUE), (b'"', _QUOTED)),
    _EXTENSION_VALUE: (
        (_TOKEN, _EXTENSION_VALUE), (_WHITESPACE, _EXTENSION_SPACE), (b";", EXTENSION), (b"\r", _SIZE_LF),
    ),
    _EXTENSION_SPACE: ((_WHITESPACE, _EXTENSION_SPACE), (b";", EXTENSION)),
    _QUOTED: ((_QUOTED_TEXT, _QUOTED), (b"\\", _ESCAPED), (b'"', _QUOTE_END)),
    _ESCAPED: ((_TEXT, _QUOTED),),
    _QUOTE_END: ((_WHITESPACE, _EXTENSION_SPACE), (b";", EXTENSION), (b"\r", _SIZE_LF)),
}  # fmt: skip

_TLS_HELLO: Final = 0x16
_LF: Final = 0x0A
_CR: Final = 0x0D


def _flatten() -> bytes:
    table = bytearray(256 * (_QUOTE_END + 1))
    for state, transitions in _TRANSITIONS.items():
        for allowed, following in transitions:
            for byte in allowed:
                table[256 * state + byte] = following
    return bytes(table)


# the state that follows `state` after `byte` stands at 256 * state + byte
NEXT: Final = _flatten()


def advance(state: int, data: bytes, start: int, end: int) -> int:
    """Return the state after `data[start:end]`, for a head. Raise BadRequest at the first byte that is not allowed."""
    for place in range(start, end):
        following = NEXT[256 * state + data[place]]
        if following == REFUSED:
            raise BadRequest(400, describe(state, data[place]))
        state = following
    return state


def describe(state: int, byte: int) -> str:
    """Say what is wrong with `byte` in `state`."""
    if state <= _METHOD:
        hint = "; this port speaks plain HTTP, not TLS" if byte == _TLS_HELLO else ""
        return f"this is not an HTTP request{hint}"
    if state >= SIZE_START:
        return "the chunks of the body are malformed"
    if byte == _LF or NEXT[256 * state + _LF] != REFUSED:
        return "a line does not end in CRLF"
    if state == LINE and byte in _WHITESPACE:
        return "a folded header line (obsolete since RFC 7230)"
    if (byte < 0x20 and byte != _CR) or byte == 0x7F:
        return "a control character in the head or in the trailers"
    if state >= LINE:
        return "a header field is malformed"
    return "the request line is malformed"
