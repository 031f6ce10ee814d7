"""What waits to be sent: in order, in one system call per turn, never for longer than its deadline."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from deadlined import DeadlineExceeded
from deadlined.http import Exchange, Phase, Reason
from deadlined.http.output import LIMIT, Output, OutputOwner
from tests.support.builds import interpreted_only
from tests.support.examples import examples
from tests.support.http import GET, answer, only, serving
from tests.support.net import INF

HOUR = 3600.0
BIG = 4_000_000


class Wire:
    """A transport that takes as many bytes of each offer as it is told, and a connection that is never ready. `looks`:
    what the peer has taken at each look; until there are none, the connection is woken by its deadline."""

    def __init__(self, takes: list[int]) -> None:
        self.takes = takes
        self.arrived = b""
        self.offers: list[int] = []
        self.looks: list[int] = []
        self.conn = cast(Any, self)
        self.write_deadline = INF

    def offer(self, data: bytes | memoryview) -> int:
        self.offers.append(len(data))
        taken = min(self.takes.pop(0), len(data)) if self.takes else len(data)
        self.arrived += bytes(data[:taken])
        return taken

    def offer_parts(self, parts: list[bytes | memoryview]) -> int:
        return self.offer(b"".join(parts))

    @property
    def taken(self) -> int:
        return self.looks.pop(0)

    def set_write_deadline(self, when: float) -> None:
        """Ignore it."""

    def call_when_writable(self, callback: Output) -> bool:
        return True

    def resume_writable(self, callback: Output) -> bool:
        if self.looks:
            raise DeadlineExceeded("write", 0.0)
        return True

    def cancel_writable_call(self) -> None:
        """Ignore it."""


class Owner(OutputOwner):
    """A connection that counts when all was sent."""

    def __init__(self, wire: Wire) -> None:
        self.transport = cast(Any, wire)
        self.clock = cast(Any, self)
        self.sent = self.expired = 0
        self.time = 0.0
        self.asked: list[tuple[int, float]] = []

    def output_waits(self) -> None:
        """Ignore it."""

    def output_deadline(self, length: int, since: float, progress: float) -> Any:
        self.asked.append((length, since))
        return min(since + 100.0, progress + 10.0), None

    def now(self) -> float:
        return self.time

    def output_blocked(self, deadline: float) -> None:
        """Ignore it."""

    def output_moved(self, deadline: float) -> None:
        """Ignore it."""

    def output_sent(self) -> None:
        self.sent += 1

    def output_expired(self, rule: Any, lateness: float) -> None:
        self.expired += 1


def play(pieces: list[bytes | tuple[bytes, bytes, bytes]], takes: list[int], flush_after: set[int]) -> Wire:
    """Append `pieces`, tuples are parts of one; flush after some of them, and let the wire call until all is sent."""
    wire = Wire(list(takes))
    output = Output(Owner(wire))
    for number, piece in enumerate(pieces):
        if isinstance(piece, tuple):
            output.append(*piece)
        else:
            output.append(piece)
        if number in flush_after:
            output.flush()
    output.flush()
    while output.blocked:
        output.on_ready()
    assert output.size == 0
    return wire


@interpreted_only
@settings(max_examples=examples(200))
@given(
    pieces=st.lists(
        st.one_of(
            st.binary(min_size=1, max_size=40),
            st.tuples(st.binary(min_size=1, max_size=9), st.binary(min_size=1, max_size=40), st.binary(max_size=5)),
        ),
        max_size=12,
    ),
    takes=st.lists(st.integers(0, 60), max_size=30),
    flush_after=st.sets(st.integers(0, 11)),
)
def test_pieces_arrive_whole_and_in_order_however_much_the_kernel_takes(
    pieces: list[bytes | tuple[bytes, bytes, bytes]], takes: list[int], flush_after: set[int]
) -> None:
    whole = [piece if isinstance(piece, bytes) else b"".join(piece) for piece in pieces]
    assert play(pieces, takes, flush_after).arrived == b"".join(whole)


@interpreted_only
@given(sizes=st.lists(st.sampled_from([1, LIMIT // 3, LIMIT - 1, LIMIT, 3 * LIMIT]), max_size=6))
def test_no_offer_copies_more_than_the_limit_together(sizes: list[int]) -> None:
    pieces = [bytes([number]) * size for number, size in enumerate(sizes)]
    wire = play([*pieces], [], set())
    assert wire.arrived == b"".join(pieces)
    assert all(offer <= LIMIT or offer in sizes for offer in wire.offers)


@interpreted_only
def test_what_is_appended_in_one_turn_is_one_offer() -> None:
    assert play([b"x" * 100] * 20, [], set()).offers == [2000]


@interpreted_only
def test_a_large_part_is_offered_as_it_is_with_its_piece() -> None:
    body = b"y" * LIMIT
    wire = play([(b"head", body, b"end"), b"x", (b"head", body, b"")], [], set())
    assert wire.offers == [LIMIT + 7, 5, LIMIT]
    assert wire.arrived == b"head" + body + b"endxhead" + body


@interpreted_only
def test_the_time_of_a_piece_does_not_begin_again_with_its_parts() -> None:
    wire = Wire([0, 8, 0, LIMIT, 0, 3, 0])
    output = Output(owner := Owner(wire))
    output.append(b"last")
    output.append(b"head", b"y" * LIMIT, b"end")
    output.append(b"next")
    output.flush()
    while output.blocked:
        owner.time += 1
        output.on_ready()
    assert owner.asked == [(4, 0.0), (LIMIT + 3, 1.0), (3, 1.0), (4, 3.0)]


@interpreted_only
def test_what_is_left_is_forgotten_when_it_is_discarded() -> None:
    wire = Wire([3])
    output = Output(Owner(wire))
    output.append(b"hello")
    output.append(b"world")
    wire.takes += [0]
    output.flush()
    assert (output.blocked, output.size) == (True, 7)
    output.discard()
    assert (output.blocked, output.size) == (False, 0)


@interpreted_only
def test_what_expires_after_some_progress_was_not_sent() -> None:
    """The event loop was blocked beyond the deadline, and the peer has read meanwhile, but not all."""
    wire = Wire([3, 0, 3, 0])
    owner = Owner(wire)
    output = Output(owner)
    output.append(b"hello, world")
    output.flush()
    assert output.blocked

    owner.time = 100.0
    output.on_ready()
    assert wire.arrived == b"hello,"
    assert (output.size, owner.expired, owner.sent) == (0, 1, 0)


@interpreted_only
@pytest.mark.parametrize(
    ("looks", "expired"),
    [
        # what was under way when the wait began has arrived by the first look
        ([2] * 50, 15.0),
        ([2, 2, 3, 3, 3, 3], 25.0),
        (list(range(50)), 100.0),
    ],
)
def test_a_peer_has_time_while_the_kernel_sends_it_what_it_has(looks: list[int], expired: float) -> None:
    wire = Wire([3, *[0] * 50])
    owner = Owner(wire)
    output = Output(owner)
    output.append(b"hello, world")
    output.flush()
    wire.looks = looks
    while output.blocked:
        owner.time += 5.0
        output.on_ready()
    assert (owner.expired, owner.time, wire.arrived) == (1, expired, b"hel")


@interpreted_only
@pytest.mark.parametrize(("limit", "deadlines"), [(4.0, [5.0, 4.0]), (7.0, [5.0, 5.0])])
def test_the_end_of_all_that_is_pending_holds_for_a_wait_that_has_begun(limit: float, deadlines: list[float]) -> None:
    """Unless the next look, or the deadline of the piece, comes first."""
    wire = Wire([3, 0])
    output = Output(Owner(wire))
    set_to: list[float] = []

    def set_deadline(when: float) -> None:
        wire.write_deadline = when
        set_to.append(when)

    wire.set_write_deadline = set_deadline  # type: ignore[method-assign]
    output.append(b"hello")
    output.flush()
    output.send_by(limit)
    assert set_to == deadlines


@interpreted_only
def test_a_look_that_comes_too_late_to_wait_for_is_taken_at_once() -> None:
    """The process did not run between the clock's reading and the wait."""
    wire = Wire([3, 0, 0])
    deadlines: list[float] = []
    late = [DeadlineExceeded("write", 5.0)]

    def too_late(callback: Output) -> bool:
        if late:
            raise late.pop()
        return True

    wire.set_write_deadline = deadlines.append  # type: ignore[method-assign, assignment]
    wire.call_when_writable = too_late  # type: ignore[method-assign]
    wire.looks = [3]
    output = Output(owner := Owner(wire))
    output.append(b"hello")
    output.flush()
    assert (output.blocked, wire.offers, owner.expired) == (True, [5, 2, 2], 0)
    # the offer in between would have failed by a deadline that has passed
    assert deadlines == [5.0, INF, 5.0]


@interpreted_only
def test_after_the_close_nothing_is_kept() -> None:
    output = Output(Owner(Wire([])))
    output.append(b"x")
    output.close()
    output.append(b"y")
    output.flush()
    assert output.size == 0


async def test_a_response_goes_on_to_a_slow_client_while_its_handler_sleeps(autojump_clock: MockClock) -> None:
    """No task of the server sends it."""
    asleep: list[float] = []

    async def handler(exchange: Exchange) -> None:
        exchange.start(200, [])
        with trio.move_on_after(1):
            await exchange.send(bytes(BIG), True)
        asleep.append(trio.current_time())
        await trio.sleep(HOUR)
        await exchange.send(b"", False)

    async with serving(handler) as site:
        client = await site.connect(receive_buffer=65536)
        await client.send(GET)
        await trio.sleep(10)
        assert asleep == [1.0]
        assert (await client.response()).body == bytes(BIG)
        assert trio.current_time() == HOUR + 1


@pytest.mark.parametrize("tls", [False, True])
async def test_the_deadline_of_a_piece_counts_while_its_handler_sleeps(tls: bool, autojump_clock: MockClock) -> None:
    cancelled: list[float] = []

    async def handler(exchange: Exchange) -> None:
        exchange.start(200, [])
        with trio.move_on_after(1):
            await exchange.send(bytes(BIG), True)
        try:
            await trio.sleep(HOUR)
        except trio.Cancelled:
            cancelled.append(trio.current_time())
            raise

    async with serving(handler, only(write_grace=10, write_min_rate=1_000_000), tls=tls) as site:
        client = await site.connect(receive_buffer=65536)
        await client.send(GET)
        await trio.sleep(5)
        assert site.server.connections()[0].phase is Phase.WRITE
        assert await site.reason() is Reason.WRITE_TIMEOUT
        assert cancelled == [10.0]
        assert await client.end() == "reset"


async def test_a_sender_waits_while_too_much_is_pending(autojump_clock: MockClock) -> None:
    sent = 0

    async def handler(exchange: Exchange) -> None:
        nonlocal sent
        exchange.start(200, [])
        while True:
            await exchange.send(bytes(1000), True)
            sent += 1000

    async with serving(handler) as site:
        client = await site.connect(receive_buffer=65536)
        await client.send(GET)
        await trio.sleep(1)
        first = sent
        await trio.sleep(HOUR)
        assert sent == first
        assert site.server.statistics().open == 1


@pytest.mark.parametrize(
    ("tls", "size", "more", "returns"),
    [
        (False, 4 * LIMIT - 1000, False, False),
        # small enough to be encrypted with others at the end of the turn
        (True, 4 * LIMIT - 1000, False, True),
        (True, 4 * LIMIT - 1000, True, False),
        (True, 4 * LIMIT, False, False),
    ],
)
async def test_a_handler_waits_for_a_slow_client_unless_its_response_ends_soon(
    tls: bool, size: int, more: bool, returns: bool, autojump_clock: MockClock
) -> None:
    returned: list[float] = []

    async def handler(exchange: Exchange) -> None:
        exchange.start(200, [])
        await exchange.send(bytes(size), more)
        returned.append(trio.current_time())

    async with serving(handler, tls=tls) as site:
        client = await site.connect(receive_buffer=4096)
        await client.send(GET)
        await trio.sleep(HOUR)
        assert bool(returned) == returns
        assert site.server.connections()[0].phase is Phase.WRITE


async def test_an_idle_client_that_has_not_read_its_response_is_cut_by_the_deadline_of_the_response(
    autojump_clock: MockClock,
) -> None:
    """The handler has returned, and no task is left."""

    async def handler(exchange: Exchange) -> None:
        exchange.start(200, [])
        with trio.move_on_after(1):
            await exchange.send(bytes(BIG), False)

    async with serving(handler, only(write_grace=10, write_min_rate=1_000_000, idle=3)) as site:
        client = await site.connect(receive_buffer=65536)
        await client.send(GET)
        assert await site.reason() is Reason.WRITE_TIMEOUT
        assert trio.current_time() == 10.0
        assert await client.end() == "reset"


async def test_a_response_of_a_turn_does_not_wait_for_a_handler_that_sleeps_in_it(autojump_clock: MockClock) -> None:
    async def handler(exchange: Exchange) -> None:
        if exchange.request.target == b"/slow":
            await trio.sleep(HOUR)
        await answer(exchange)

    async with serving(handler) as site:
        quick, slow = await site.connect(), await site.connect()
        for _ in range(2):
            slow_request = GET.replace(b"/", b"/slow", 1)
            quick.conn.try_send(GET)
            slow.conn.try_send(slow_request)
            assert (await quick.response()).status == 200
            assert trio.current_time() % HOUR == 0
            before = trio.current_time()
            assert (await slow.response()).status == 200
            assert trio.current_time() == before + HOUR
