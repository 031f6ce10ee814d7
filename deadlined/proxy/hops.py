"""Max-Forwards: how many proxies an OPTIONS or a TRACE may still pass.

Facts      A proxy counts it down in these two methods, and is itself the recipient of a request that comes with 0; in
           others it means nothing (RFC 9110, 7.6.2). The recipient of a TRACE sends back what it has got (9.3.8).
Hazard     A proxy that passes the field on as it is makes a loop endless, and hides from who asks that it is there. In
           an answer to a TRACE a script reads cookies and credentials that it must not see.
Answer     OPTIONS with 0 is answered with an empty 200: nothing is known of what the upstream allows. TRACE with 0 is
           refused. What is not one number cannot be counted down, so it is refused, too.
Cost       A look-up of the method per request, and one pass more over the fields of these two.
"""

from __future__ import annotations

from typing import Final

from ..http import Request

MAX_FORWARDS: Final = b"max-forwards"

# the methods in which it counts
COUNTED: Final = frozenset(("OPTIONS", "TRACE"))

# The largest number that is passed on. Without a bound, a number as long as a head takes seconds to be read
_MOST: Final = 999_999_999
_DIGITS: Final = 9


def final_answer(request: Request) -> tuple[int, str] | None:
    """Return status and detail of the answer to a request that is not for an upstream, None if it is for one. The
    detail is "" for a success. The method must be in COUNTED."""
    values = [value for name, value in request.headers if name == MAX_FORWARDS]
    if not values:
        return None
    left = _number(values[0]) if len(values) == 1 else -1
    if left < 0:
        return 400, "Max-Forwards is not one number"
    if left > 0:
        return None
    if request.method == "OPTIONS":
        return 200, ""
    return 501, "this proxy does not answer a TRACE, which would show the credentials of the request"


def counted_down(value: bytes) -> bytes:
    """Return the value of Max-Forwards for the next recipient; 0 if there is none."""
    return b"%d" % max(_number(value) - 1, 0)


def _number(value: bytes) -> int:
    """Return the number, or _MOST and one if it is larger; -1 if it is none."""
    if not value.isdigit():
        return -1
    digits = value.lstrip(b"0")
    return int(digits or b"0") if len(digits) <= _DIGITS else _MOST + 1
