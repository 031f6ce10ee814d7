"""How much time a request may take, as its client says: gRPC's `grpc-timeout` and its kin.

Facts      A client that waits 2 s for an answer has no use for one after 2.1 s. gRPC sends the time that is left with
           each call, Envoy with each request that it forwards; `Request-Timeout` is draft-thomson-hybi-http-timeout's.
           All are relative, because the clocks of two machines differ.
Hazard     A client chooses the value. It could ask for more than the server gives, or for nothing.
Answer     A budget only shortens: the handler's deadline is the earlier of the server's and the client's. A field that
           is malformed counts as absent; of several the shortest counts.
Cost       None unless the fields are trusted; then comparisons with each field's name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import inf
from typing import Final

__all__ = ["time_budget"]

# seconds of each unit (gRPC over HTTP/2, "Requests")
_GRPC_UNITS: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_GRPC: Final = re.compile(rb"([0-9]{1,8})([HMSmun])")
_MILLISECONDS: Final = re.compile(rb"[0-9]{1,12}")
_SECONDS: Final = re.compile(rb"[0-9]{1,9}(?:\.[0-9]{1,9})?")


def time_budget(headers: Sequence[tuple[bytes, bytes]]) -> float:
    """Return the seconds that the client waits for its response, `inf` if no field is there and well-formed.

    `grpc-timeout`: up to eight digits and one of H, M, S, m, u, n. `x-envoy-expected-rq-timeout-ms`: milliseconds.
    `request-timeout`: seconds, whole or decimal. Names are lower case. Zero is a budget: the client does not wait.
    """
    least = inf
    for name, value in headers:
        if name == b"grpc-timeout":
            least = min(least, _grpc(value))
        elif name == b"x-envoy-expected-rq-timeout-ms":
            least = min(least, float(value) / 1000 if _MILLISECONDS.fullmatch(value) else inf)
        elif name == b"request-timeout":
            least = min(least, float(value) if _SECONDS.fullmatch(value) else inf)
    return least


def _grpc(value: bytes) -> float:
    found = _GRPC.fullmatch(value)
    return float(found[1]) * _GRPC_UNITS[found[2]] if found else inf
