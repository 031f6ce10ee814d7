"""Methods that may end at the proxy.

Facts      Methods are case-sensitive, so `head` is not HEAD (RFC 9110, 9.1). Some servers read it as HEAD.
Hazard     Such an upstream sends only the head of its answer. The proxy waits for the body until a deadline, and counts
           a failure of the upstream. A client that repeats this has every upstream ejected.
Answer     HEAD in other letters is answered with 501, as it is before an ASGI application.
Cost       A look-up of the method per request.
"""

from __future__ import annotations

from typing import Final

from ..http import Reason, Request
from .hops import COUNTED, final_answer

# almost all requests have one of them
ALWAYS_PASSED: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"))

_NOT_HEAD: Final = "the method HEAD is written in capitals: written otherwise it is another method (RFC 9110, 9.1)"


def own_answer(request: Request) -> tuple[int, str, str] | None:
    """Return status, reason and detail of the proxy's own answer to a request that is not for an upstream, None if it
    is for one. The method must not be in ALWAYS_PASSED."""
    if request.method.upper() == "HEAD":
        return 501, Reason.PROTOCOL_ERROR, _NOT_HEAD
    answer = final_answer(request) if request.method in COUNTED else None
    return None if answer is None else (answer[0], "max_forwards", answer[1])
