"""The cost of moving a deadline, beside the equivalents of trio, asyncio, uvloop and Go.

Facts      A server moves a deadline with every read and every write; hardly any of them passes.
Hazard     A figure without reading the clock, or on an empty heap, is too good.
Answer     Every operation reads its clock. Each is measured with the same number of timers armed in its own heap. An
           operation that arms a new timer and cancels it (a scope entered and left, `call_later`) has one figure, shown
           under "later" and under "set and cleared".
Cost       No machine has descriptors for a million connections: the measured deadline is that of a real one, and the
           others are bare timers in the same heap.

The fair rivals do as little as ours: a deadline that is stored in an object, whose `call_at` looks at it when it comes
and is armed anew, and `socket.settimeout`, which stores a timeout and reads no clock.

"Past expiry" is the worst case of a deadline that is stored: each is moved later once only, and the old time of each
comes, so that a timer queue must file it anew. The figure is the CPU time of both, because the runtime of Go does the
second whenever it likes.
"""

from __future__ import annotations

from .programs import Programs

BENCHMARK = Programs("reset")
