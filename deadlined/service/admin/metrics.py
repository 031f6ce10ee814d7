"""The metrics of a service in the formats of Prometheus and OpenMetrics: docs/metrics.md lists them.

Facts      prometheus-client renders both formats. Its own counters are locked objects, and several processes share them
           through files.
Answer     The library only renders. A collector makes new families from each picture that it is given, and counts
           nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from .picture import Counters, Gauges, Histogram, Picture, Worker, sums


class Exposition(Collector):
    """Renders pictures of a service. `build` has the labels of `deadlined_build_info`."""

    def __init__(self, build: Mapping[str, str]) -> None:
        self._build = dict(build)
        self._picture: Picture | None = None
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def render(self, picture: Picture, accept: str) -> tuple[bytes, str]:
        """Return the metrics of `picture`, and their media type, as the Accept field `accept` asks for; as text if it
        is malformed."""
        encoder: Callable[[CollectorRegistry], bytes]
        try:
            encoder, kind = choose_encoder(accept)
        except (TypeError, ValueError):
            # it compares a version that is no version
            encoder, kind = choose_encoder("")
        self._picture = picture
        try:
            return encoder(self._registry), kind
        finally:
            self._picture = None

    def collect(self) -> Iterator[Metric]:
        """Make the families of the picture that is being rendered; none at registration."""
        if self._picture is None:
            return
        yield InfoMetricFamily("deadlined_build", "Version and build of the server.", value=self._build)
        yield from _service(self._picture)
        yield from _workers(self._picture.workers)
        totals = self._picture.totals()
        if totals is not None:
            yield from _connections(totals)
            yield from _requests(totals)
            yield from _timers(totals)
            gauges = [worker.answer.gauges for worker in self._picture.workers if worker.up and worker.answer]
            yield from _state(gauges)
            yield from _process(totals, gauges)
            if totals.refused:
                yield from _turns(totals, gauges)
            if totals.upstreams:
                yield from _upstreams(totals, gauges)


def _service(picture: Picture) -> Iterator[Metric]:
    yield _gauge("deadlined_ready", "1 if /readyz answers 200, else 0.", picture.ready)
    yield _gauge("deadlined_draining", "1 once a drain has begun, else 0.", picture.status == "draining")
    yield _gauge("deadlined_workers", "Worker processes that there should be.", picture.wanted)
    restarts = "Worker processes that were started in place of earlier ones."
    yield _counter("deadlined_worker_restarts", restarts, picture.restarts)


def _workers(workers: Iterable[Worker]) -> Iterator[Metric]:
    up = GaugeMetricFamily(
        "deadlined_worker_up", "1 if the worker process has answered this scrape in time, else 0.", labels=["worker"]
    )
    connections = GaugeMetricFamily(
        "deadlined_worker_connections_open", "Open connections of a worker process.", labels=["worker"]
    )
    numbers: dict[int, list[Worker]] = {}
    for worker in workers:
        numbers.setdefault(worker.worker, []).append(worker)
    for number, same in numbers.items():
        # a process that drains has the same number as its replacement
        serving = [worker for worker in same if worker.ready] or same
        up.add_metric([str(number)], float(all(worker.up for worker in serving)))
        answers = [worker.answer for worker in same if worker.up and worker.answer is not None]
        if answers:
            connections.add_metric([str(number)], sum(sum(one.gauges.phases.values()) for one in answers))
    yield up
    yield connections


def _connections(totals: Counters) -> Iterator[Metric]:
    yield _counter("deadlined_connections_accepted", "Connections that were accepted.", totals.accepted)
    yield _counters("deadlined_connections_closed", "Connections that have ended, by reason.", "reason", totals.closed)
    yield _counters(
        "deadlined_deadline_expired", "Deadlines that ended their connection, by phase.", "phase", totals.expired
    )
    yield _histogram(
        "deadlined_deadline_lateness_seconds",
        "How long after its deadline a connection was ended, of those that a deadline ended.",
        totals.lateness,
    )
    yield _counter(
        "deadlined_received_bytes",
        "Bytes of HTTP, and of TLS handshakes that timed out, from clients.",
        totals.received,
    )
    yield _counter("deadlined_sent_bytes", "Bytes of HTTP that were sent to clients.", totals.sent)


def _requests(totals: Counters) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "deadlined_requests",
        "Requests that are done, by method and status. Method other: not one of HTTP's, or refused before a handler. "
        "Code none: nothing was answered.",
        labels=["method", "code"],
    )
    for method, codes in sorted(totals.requests.items()):
        for code, number in sorted(codes.items()):
            requests.add_metric([method, code], number)
    yield requests
    yield _histogram(
        "deadlined_request_duration_seconds",
        "Time from the end of a request's head until its connection was done with it, of requests with a handler.",
        totals.durations,
    )


def _timers(totals: Counters) -> Iterator[Metric]:
    yield _counter("deadlined_timers_fired", "Timers that have fired.", totals.fired)
    yield _counter(
        "deadlined_timer_resets", "How often a deadline of a descriptor was set, moved or removed.", totals.resets
    )
    yield _counter(
        "deadlined_event_loop_stalls", "How often the event loop was blocked for --stall-log.", totals.stalls
    )


def _state(gauges: list[Gauges]) -> Iterator[Metric]:
    phases = sums(one.phases for one in gauges)
    yield _gauges("deadlined_connections_open", "Open connections, by what they wait for.", "phase", phases)
    most = [one.max_connections for one in gauges if one.max_connections is not None]
    if most:
        yield _gauge("deadlined_connections_max", "Connections that may be open; more clients wait.", sum(most))
    in_flight = sum(one.in_flight for one in gauges)
    yield _gauge("deadlined_requests_in_flight", "Requests that are being received, handled or answered.", in_flight)
    background = sum(one.background for one in gauges)
    yield _gauge("deadlined_background_handlers", "Handlers that still run after their response.", background)
    timers = {"armed": sum(one.armed for one in gauges), "zombie": sum(one.zombies for one in gauges)}
    yield _gauges("deadlined_timers", "Stored timers: armed, or stopped and not removed yet.", "state", timers)


def _process(totals: Counters, gauges: list[Gauges]) -> Iterator[Metric]:
    """Make the process metrics that every client of Prometheus has: here sums over the processes that serve."""
    yield _counter("process_cpu_seconds", "User and system CPU time of the processes that serve.", totals.cpu)
    resident = sum(one.resident for one in gauges)
    yield _gauge("process_resident_memory_bytes", "Resident memory of the processes that serve.", resident)
    files = sum(one.open_files for one in gauges)
    yield _gauge("process_open_fds", "Open file descriptors of the processes that serve.", files)


def _turns(totals: Counters, gauges: list[Gauges]) -> Iterator[Metric]:
    """Make the metrics of a limit of requests."""
    running = sum(one.running for one in gauges)
    yield _gauge("deadlined_requests_running", "Requests that are handled, of which there are --max-running.", running)
    waiting = sum(one.queued for one in gauges)
    yield _gauge("deadlined_requests_waiting", "Requests that wait for their turn to be handled.", waiting)
    text = "Requests that were answered with 503 because they got no turn, by reason."
    yield _counters("deadlined_requests_refused", text, "reason", totals.refused)


def _upstreams(totals: Counters, gauges: list[Gauges]) -> Iterator[Metric]:
    """Make the metrics of a proxy."""
    counters = totals.upstreams
    tries = {address: one.tries for address, one in counters.items()}
    text = "Requests or raw connections for an upstream, also those that are tried again or find no connection."
    yield _counters("deadlined_upstream_tries", text, "upstream", tries)
    connects = {address: one.connects for address, one in counters.items()}
    yield _counters("deadlined_upstream_connects", "Connections that were made to an upstream.", "upstream", connects)
    failures = CounterMetricFamily(
        "deadlined_upstream_failures", "Failures of an upstream, by kind.", labels=["upstream", "failure"]
    )
    for address, one in counters.items():
        for failure, number in one.failures.items():
            failures.add_metric([address, failure], number)
    yield failures
    yield _counter(
        "deadlined_upstream_retries", "Requests or raw connections that were tried once more.", totals.retries
    )
    text = "Requests or raw connections that had to wait for an upstream for too long."
    yield _counter("deadlined_upstream_overloaded", text, totals.overloaded)
    yield from _upstreams_now(gauges)


def _upstreams_now(gauges: list[Gauges]) -> Iterator[Metric]:
    tables = [one.upstreams for one in gauges]
    active = sums({address: one.active for address, one in table.items()} for table in tables)
    yield _gauges(
        "deadlined_upstream_active", "Requests, tunnels and raw connections at an upstream now.", "upstream", active
    )
    idle = sums({address: one.idle for address, one in table.items()} for table in tables)
    yield _gauges("deadlined_upstream_idle_connections", "Idle connections to an upstream.", "upstream", idle)
    up = {address: min(table[address].up for table in tables if address in table) for address in active}
    yield _gauges(
        "deadlined_upstream_up",
        "1 if an upstream gets requests or raw connections, 0 if a worker process leaves it out because of its "
        "failures, or if it does not run.",
        "upstream",
        up,
    )
    waiting = sum(one.waiting for one in gauges)
    yield _gauge("deadlined_upstream_waiting", "Requests or raw connections that wait for an upstream.", waiting)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=float(value))


def _gauges(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _counters(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _histogram(name: str, text: str, found: Histogram) -> Metric:
    bounds = [*map(floatToGoString, found.bounds), "+Inf"]
    cumulated = list(zip(bounds, map(float, accumulate(found.counts)), strict=True))
    return HistogramMetricFamily(name, text, buckets=cumulated, sum_value=found.sum)
