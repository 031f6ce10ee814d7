"""The table of transitions and the joint conditions: alone, and held against connections of a running server."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from deadlined.http import HttpServer, Reason
from deadlined.http.state import (
    BYTES_CAME,
    CLOSED,
    CLOSING,
    DEAD,
    DETACHED,
    DONE,
    ENDED,
    EVENTS,
    EXCHANGE,
    EXCHANGE_DONE,
    EXPECT_100,
    FINISHING,
    HANDLER_LEFT,
    HANDSHAKE,
    HANDSHAKE_DONE,
    HEAD,
    IDLE,
    LIVE,
    NONE,
    OPEN,
    PROTOCOL_SWITCHED,
    REQUEST_READ,
    SENDING,
    SENT,
    STARTED,
    STATES,
    TRANSITIONS,
    TRANSPORT_CLOSED,
    UNATTENDED,
    UPGRADED,
    diagram,
    is_detachable,
    is_reusable,
    may_be_sending,
    may_be_unattended,
    next_state,
)
from tests.support.handlers import slow
from tests.support.http import CHUNKED_POST, GET, LAST_GET, Site, chunk, only, post, serving

# written a second time, so that a change of the table is a change of two places
ALLOWED = {
    (HANDSHAKE, HANDSHAKE_DONE): HEAD,
    (HEAD, REQUEST_READ): EXCHANGE,
    (EXCHANGE, HANDLER_LEFT): FINISHING,
    (EXCHANGE, PROTOCOL_SWITCHED): UPGRADED,
    (FINISHING, EXCHANGE_DONE): IDLE,
    (IDLE, BYTES_CAME): HEAD,
    (HANDSHAKE, ENDED): CLOSING,
    (HEAD, ENDED): CLOSING,
    (EXCHANGE, ENDED): CLOSING,
    (FINISHING, ENDED): CLOSING,
    (IDLE, ENDED): CLOSING,
    (UPGRADED, ENDED): CLOSING,
    (CLOSING, TRANSPORT_CLOSED): CLOSED,
}
PAIRS = list(product(range(len(STATES)), range(len(EVENTS))))


@pytest.mark.parametrize(("state", "event"), PAIRS, ids=[f"{STATES[s]}-{EVENTS[e]}" for s, e in PAIRS])
def test_a_transition_is_in_the_table_or_is_a_bug(state: int, event: int) -> None:
    if (state, event) in ALLOWED:
        assert next_state(state, event) == ALLOWED[state, event]
    else:
        with pytest.raises(AssertionError, match=f"{EVENTS[event]} in state {STATES[state]}"):
            next_state(state, event)


def test_the_table_has_nothing_else() -> None:
    assert TRANSITIONS == ALLOWED


def test_a_connection_may_be_unattended_while_a_responder_answers() -> None:
    assert may_be_unattended(EXCHANGE, True, responds=True)
    assert not may_be_unattended(FINISHING, True, responds=True)


UNATTENDED_STATES = [(HANDSHAKE, False), (HEAD, False), (IDLE, False), (UPGRADED, False), (UPGRADED, True)]


@pytest.mark.parametrize(("state", "byte_came"), list(product(range(len(STATES)), (False, True))))
def test_a_connection_may_be_unattended_while_nothing_of_a_request_has_come(state: int, byte_came: bool) -> None:
    assert may_be_unattended(state, byte_came) is ((state, byte_came) in UNATTENDED_STATES)


def test_a_connection_may_be_sending_without_a_task_after_its_response() -> None:
    assert [state for state in range(len(STATES)) if may_be_sending(state)] == [FINISHING, IDLE]


@pytest.mark.parametrize(
    ("response", "link", "receiving"), list(product((NONE, STARTED, SENT), (LIVE, DETACHED, DEAD), (False, True)))
)
def test_an_exchange_is_detachable_once_it_is_answered_or_dead(response: int, link: int, receiving: bool) -> None:
    detachable = [(SENT, LIVE, False), (NONE, DEAD, False), (STARTED, DEAD, False), (SENT, DEAD, False)]
    assert is_detachable(response, link, receiving) is ((response, link, receiving) in detachable)


@pytest.mark.parametrize(
    ("body", "response", "link"), list(product((EXPECT_100, OPEN, DONE), (NONE, STARTED, SENT), (LIVE, DETACHED, DEAD)))
)
def test_a_connection_is_reusable_in_two_cases(body: int, response: int, link: int) -> None:
    assert is_reusable(body, response, link) is ((body, response, link) in [(DONE, SENT, LIVE), (DONE, SENT, DETACHED)])


@given(st.lists(st.integers(0, len(EVENTS) - 1), max_size=60), st.sampled_from([HANDSHAKE, HEAD]))
def test_only_an_end_leads_to_the_end(events: list[int], state: int) -> None:
    """Events that the table refuses change nothing, so that any list of events is a history."""
    ended = closed = False
    for event in events:
        try:
            state = next_state(state, event)
        except AssertionError:
            continue
        ended = ended or event == ENDED
        closed = closed or event == TRANSPORT_CLOSED
        assert (state >= CLOSING) == ended
        assert (state == CLOSED) == closed


class Watch(trio.abc.Instrument):
    """Checks all connections of a server after each step of a task."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self.seen: set[tuple[int, int]] = set()
        self.wrong: list[tuple[str, int]] = []

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        for connection in self._server._connections:
            state, attendance = connection.state, connection.attendance
            self.seen.add((state, attendance))
            if attendance == UNATTENDED and not may_be_unattended(state, connection.reader.buffered > 0):
                self.wrong.append((STATES[state], attendance))
            if attendance == SENDING and not (may_be_sending(state) and connection.output.size):
                self.wrong.append((STATES[state], attendance))
            if (connection.reason is not None) != (state >= CLOSING):
                self.wrong.append((STATES[state], attendance))


async def play(site: Site, pieces: tuple[bytes, ...], leave: str) -> None:
    """Send the pieces one after the other, let the server do what it can, and leave."""
    client = await site.connect()
    for piece in pieces:
        await client.send_what_is_taken(piece)
        await wait_all_tasks_blocked()
    await trio.sleep(5)
    if leave == "reset":
        client.reset()
    elif leave == "close":
        client.conn.close()


SCRIPTS: list[tuple[bytes, ...]] = [
    (),
    (GET,),
    (GET[:5],),
    (GET[:5], GET[5:]),
    (GET * 3,),
    (GET + GET[:5],),
    (LAST_GET,),
    (post(5), b"hello"),
    (post(5) + b"he",),
    (CHUNKED_POST + chunk(b"hello"), chunk(b"")),
    (b"no request\r\n\r\n",),
]


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_connections_of_a_server_keep_to_the_joint_conditions(tls: bool, autojump_clock: MockClock) -> None:
    async with serving(slow, only(read_header=20, idle=20, handler=30, body_grace=20, drain=30), tls=tls) as site:
        watch = Watch(site.server)
        trio.lowlevel.add_instrument(watch)
        async with trio.open_nursery() as nursery:
            for script, leave in product(SCRIPTS, ("stay", "reset", "close")):
                nursery.start_soon(play, site, script, leave)
        site.server.shutdown()
        await trio.sleep(40)
        trio.lowlevel.remove_instrument(watch)
        assert watch.wrong == []
        # it has seen something
        states = {state for state, _ in watch.seen}
        assert states >= {HEAD, EXCHANGE, IDLE}
        assert {(IDLE, UNATTENDED), (HANDSHAKE if tls else HEAD, UNATTENDED)} <= watch.seen
        assert site.server.statistics().open == 0
        assert Reason.SERVER_ERROR not in site.server.statistics().reasons


def test_the_page_shows_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs/http.md").read_text()
    _, _, after_marker = page.partition("<!-- http states -->")
    _, fence, block = after_marker.partition("```mermaid\n")
    assert fence, "no diagram after the marker"
    assert block.partition("\n```")[0] == diagram()
