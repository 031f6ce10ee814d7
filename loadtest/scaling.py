"""What one process, one machine and many machines hold: a simulation with measured costs.

Facts      Connections of different processes share nothing, so requests and memory grow in proportion. What does not is
           chance (the kernel spreads connections by a hash) and a restart, after which all clients of a process come
           back at once.
Hazard     A simulation shows what it was given. A figure that was not measured makes the rest worthless.
Answer     Every cost below was measured, and says where. Timers are not modelled: the server's own facility runs, on a
           virtual clock, with the calls that the server makes for a request. Queues are computed customer by customer.
Cost       Hot spots of a load balancer, slow clients and the network are left out. The result is an upper bound.
"""

from __future__ import annotations

import json
import math
import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import Any, Final

import click

from deadlined.http import Timeouts
from deadlined.timers import Timer, Timers

# seconds of one core, from docs/findings.md, "Applications of real frameworks": FastAPI on uvloop; and Starlette on
# uvloop with a connection per request, less what the request takes there
REQUEST: Final = 1 / 7_000
ACCEPT: Final = 1 / 15_200 - 1 / 25_700
# a full handshake of TLS 1.3, ECDSA P-256, the server's part: ssl.SSLObject on the machine of docs/performance.md
HANDSHAKE: Final = 345e-6
# moving a deadline: docs/findings.md, "Moving a deadline"
MOVE: Final = 59e-9

# bytes of an idle connection: docs/performance.md, "Idle connections"; docs/http.md, "TLS"; the growth of Slab in
# /proc/meminfo for each end of an idle TCP connection, Linux 6
MEMORY: Final = 2_533
MEMORY_TLS: Final = 19_700
MEMORY_KERNEL: Final = 3_900

# seconds within which clients that reconnect at once arrive: the round trip and the spread of the drain's own closes
AT_ONCE: Final = 0.1
# of the simulation of timers: connections, seconds that are not counted, and seconds that are
_SAMPLE: Final = 400
_WARM: Final = 200.0
_COUNTED: Final = 600.0


@dataclass(frozen=True)
class Plan:
    """`connections` of each process, each with a request every `period` seconds on average; `cores` of a machine, with
    a process each; `machines`; and the `jitter`, in seconds, with which clients come back."""

    connections: int = 10_000
    period: float = 10.0
    cores: int = 8
    machines: int = 100
    jitter: float = 10.0
    seed: int = 1

    @property
    def share(self) -> float:
        """The part of a core that the requests of a process take."""
        return self.connections / self.period * REQUEST


@dataclass(frozen=True)
class Rates:
    """Per connection and second: deadlines `moved`, entries `filed` anew, connections `cut` because they were idle."""

    moved: float
    filed: float
    cut: float


@dataclass(frozen=True)
class Herd:
    """What happens to clients that come back: the longest `queue` before a process, and the longest `wait` in it."""

    queue: int
    wait: float


def timer_rates(plan: Plan) -> Rates:
    """Run the timers of some connections on a virtual clock, and count what happens to them."""
    draw = random.Random(plan.seed)
    timers = Timers()
    idle = Timeouts().idle + 1.0  # the server waits a second longer than it promises
    deadlines = [Timer(lambda arg, seq, lateness: None) for _ in range(_SAMPLE)]
    requests = [(_exponential(draw, plan.period), number) for number in range(_SAMPLE)]
    heapify(requests)
    moved, before, warm = 0, timers.statistics(), False
    while requests[0][0] < _WARM + _COUNTED:
        now, number = requests[0]
        if now >= _WARM and not warm:
            moved, before, warm = 0, timers.statistics(), True
        while timers.wake_time() <= now:
            timers.check(timers.wake_time())
        timers.stop(deadlines[number])  # no read deadline while the handler runs
        timers.modify(deadlines[number], now + idle)
        moved += 2
        heapreplace(requests, (now + _exponential(draw, plan.period), number))
    after = timers.statistics()
    scale = 1 / (_SAMPLE * _COUNTED)
    return Rates(moved * scale, (after.refiled - before.refiled) * scale, (after.fired - before.fired) * scale)


def _exponential(draw: random.Random, mean: float) -> float:
    """Return a time between two events that do not know of each other."""
    return -math.log(1.0 - draw.random()) * mean


def busiest(plan: Plan, processes: int, draw: random.Random) -> float:
    """Return the connections of the process that has the most, where each connection goes to any of them."""
    if processes == 1:
        return plan.connections
    deviation = math.sqrt(plan.connections * (1 - 1 / processes))  # a binomial distribution, which is nearly normal
    return max(plan.connections + deviation * draw.gauss(0.0, 1.0) for _ in range(processes))


def herd(clients: int, processes: int, spread: float, service: float, draw: random.Random) -> Herd:
    """Let `clients` come back within `spread` seconds, each to any of the processes, which need `service` seconds for
    one."""
    arrivals: list[list[float]] = [[] for _ in range(processes)]
    for _ in range(clients):
        arrivals[draw.randrange(processes)].append(draw.random() * spread)
    queues = [_queue(sorted(times), service) for times in arrivals]
    return Herd(max(queue.queue for queue in queues), max(queue.wait for queue in queues))


def _queue(arrivals: Sequence[float], service: float) -> Herd:
    """Serve the arrivals one after another. A wait ends with the service."""
    done: list[float] = []
    longest, wait = 0, 0.0
    for arrival in arrivals:
        longest = max(longest, len(done) - bisect_right(done, arrival))
        done.append(max(arrival, done[-1] if done else 0.0) + service)
        wait = max(wait, done[-1] - arrival)
    return Herd(longest, wait)


def simulate(plan: Plan) -> dict[str, dict[str, Any]]:
    """Return the figures of one process, one machine, and all machines. ValueError if they cannot do the work."""
    if plan.share >= 1.0:
        raise ValueError(
            f"{plan.connections} connections with a request every {plan.period:g} s need {plan.share:.0%} of a core"
        )
    rates = timer_rates(plan)
    sites = {"process": 1, "machine": plan.cores, "machines": plan.cores * plan.machines}
    return {name: _site(plan, rates, name, processes) for name, processes in sites.items()}


def _site(plan: Plan, rates: Rates, name: str, processes: int) -> dict[str, Any]:
    """Return the figures of so many processes."""
    draw = random.Random(f"{plan.seed} {name}")
    connections = plan.connections * processes
    most = busiest(plan, processes, draw)
    restarted = plan.cores if name == "machines" else 1  # a machine at a time, or a process at a time
    figures: dict[str, Any] = {
        "processes": processes,
        "connections": connections,
        "requests_per_second": connections / plan.period,
        "busiest_connections": most,
        "busiest_share": plan.share * most / plan.connections,
        "moved_per_second": rates.moved * connections,
        "moved_share": rates.moved * plan.connections * MOVE,
        "filed_per_second": rates.filed * connections,
        "cut_per_second": rates.cut * connections,
        "memory": MEMORY * connections,
        "memory_tls": MEMORY_TLS * connections,
        "memory_kernel": MEMORY_KERNEL * connections,
        "returning": plan.connections * restarted,
    }
    # one that has no other comes back itself
    remaining = max(processes - restarted, 1)
    for kind, cost in {"plain": ACCEPT + REQUEST, "tls": ACCEPT + HANDSHAKE + REQUEST}.items():
        service = cost / (1.0 - plan.share)
        for when, spread in {"at_once": AT_ONCE, "jitter": plan.jitter}.items():
            result = herd(plan.connections * restarted, remaining, spread, service, draw)
            figures[f"{kind}_{when}"] = {"queue": result.queue, "wait": result.wait}
    return figures


def table(plan: Plan, sites: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the figures as a Markdown table."""
    rows = [
        ("", ["one process", f"a machine, {plan.cores} cores", f"{plan.machines:,} machines"]),
        ("open connections", [f"{site['connections']:,}" for site in sites.values()]),
        ("requests/s", [f"{site['requests_per_second']:,.0f}" for site in sites.values()]),
        ("connections of the busiest process", [f"{site['busiest_connections']:,.0f}" for site in sites.values()]),
        ("its requests take, of a core", [f"{site['busiest_share']:.1%}" for site in sites.values()]),
        ("deadlines moved/s", [f"{site['moved_per_second']:,.0f}" for site in sites.values()]),
        ("they take, of a core each", [f"{site['moved_share']:.3%}" for site in sites.values()]),
        ("timers filed anew/s", [f"{site['filed_per_second']:,.0f}" for site in sites.values()]),
        ("idle connections cut/s", [f"{site['cut_per_second']:,.1f}" for site in sites.values()]),
        ("memory of the processes, GB", [f"{site['memory'] / 1e9:,.2f}" for site in sites.values()]),
        ("the same with TLS, GB", [f"{site['memory_tls'] / 1e9:,.2f}" for site in sites.values()]),
        ("memory of the kernel, GB", [f"{site['memory_kernel'] / 1e9:,.2f}" for site in sites.values()]),
        ("**one restart**: clients that come back", [f"{site['returning']:,}" for site in sites.values()]),
    ]
    for kind, text in {"plain": "in the clear", "tls": "with TLS"}.items():
        for when, how in {"at_once": "at once", "jitter": f"within {plan.jitter:g} s"}.items():
            found = [site[f"{kind}_{when}"] for site in sites.values()]
            cells = [f"{_time(one['wait'])}, behind {one['queue']:,}" for one in found]
            rows.append((f"the longest wait, {text}, {how}", cells))
    header, *lines = [f"| {' | '.join([name, *cells])} |" for name, cells in rows]
    return "\n".join([header, "|---|---:|---:|---:|", *lines])


def _time(seconds: float) -> str:
    """Return a time with a unit of its size."""
    if seconds >= 1.0:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.1 else f"{seconds * 1e3:.2g} ms"


@click.command("scaling", short_help="Simulate one process, a machine, many machines.")
@click.option("--connections", type=click.IntRange(1, 100_000), default=Plan.connections, show_default=True,
              help="Open connections of each process.")  # fmt: skip
@click.option("--period", type=click.FloatRange(0.01, 3600), default=Plan.period, show_default=True,
              help="Seconds between two requests of a connection, on average.")  # fmt: skip
@click.option("--cores", type=click.IntRange(2, 256), default=Plan.cores, show_default=True,
              help="Cores of a machine, with a process each.")  # fmt: skip
@click.option("--machines", type=click.IntRange(2, 1000), default=Plan.machines, show_default=True)
@click.option("--jitter", type=click.FloatRange(0, 3600, min_open=True), default=Plan.jitter, show_default=True,
              help="Seconds within which clients come back after a restart.")  # fmt: skip
@click.option("--seed", type=int, default=Plan.seed, show_default=True, help="The same seed gives the same table.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, not a Markdown table.")
def command(as_json: bool, **options: Any) -> None:
    """Simulate what one process, one machine and many machines hold, and what a restart costs them.

    \b
      python -m loadtest scaling
      python -m loadtest scaling --connections 15000 --period 60 --jitter 30

    Costs are measured ones, of the machine of docs/performance.md; docs/scaling.md explains the table. A machine
    restarts one process at a time; many machines restart one machine at a time, so that all its clients come back to
    the others.

    Exit codes: 0 simulated; 1 the requests need more than a core; 2 wrong arguments.
    """
    plan = Plan(**options)
    try:
        sites = simulate(plan)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    click.echo(json.dumps({"plan": vars(plan), **sites}, indent=2) if as_json else table(plan, sites))
