"""64-byte messages echoed over TCP, one in flight per connection, with and without deadlines.

Facts      The cost of a deadline shows in the CPU time of a message; kernel, event loop and stream take most of it.
Hazard     glibc returns large receive buffers to the kernel after every message, which halves asyncio's rate and
           favours servers that receive less at a time. A rate that the client limits says nothing about a server.
Answer     The allocator is told to keep such memory, for all servers; one case shows its defaults. `busy` is the share
           of its core that a server used: far below 100 % it waited for the client, or shared its core.
Cost       The client spins on a core of its own: two cores without other load are needed.

Two starts of one server differ by more than its deadlines cost. Exact is the count of `instructions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..servers import running
from . import builds, client
from .contest import Contestant
from .processes import SERVER_CORE
from .programs import Programs


class Echo(Programs):
    """The benchmark `echo`. Each measurement starts a server of its own."""

    def contestants(self) -> Sequence[Contestant]:
        client.compiled()  # nothing can be measured without it
        return super().contestants()

    def saturates(self, case: str) -> bool:
        # one connection waits for its client
        return bool(self.numbers[case][0] > 1)

    def measure(self, contestant: str, case: str) -> Mapping[str, float]:
        around = builds.surroundings(contestant, neutral=not case.endswith("default malloc"))
        with running(self.command(contestant), core=SERVER_CORE, environment=around) as server:
            found = client.exchange(server.port, server.pid, *self.numbers[case])
        if not found["messages"]:
            raise RuntimeError(f"no message came back in {found['seconds']:g} s")
        return {
            "rate": found["messages"] / found["seconds"],
            "cpu": found["cpu"] / found["messages"] * 1e6,
            "busy": found["cpu"] / found["seconds"] * 100,
        }


BENCHMARK = Echo("echo")
