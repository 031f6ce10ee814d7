"""A case of the table, and how it is run against an echo server."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.websocket_peer import ENDS, FIN, Event, Peer

# bytes that the client sends, and what the server must answer to them
Step = tuple[bytes, tuple[Event, ...]]


@dataclass(frozen=True)
class Case:
    """`steps` are sent one after the other. `closes`: the codes with which the server may close then; if there are
    none, the client closes. `chop`: bytes of each call of `send`, 0 for all at once. `paced`: each answer is awaited
    before more is sent."""

    name: str
    steps: tuple[Step, ...]
    closes: tuple[int, ...] = ()
    chop: int = 0
    paced: bool = False

    @property
    def answers(self) -> list[Event]:
        """What the server must send before it closes."""
        return [answer for _, answers in self.steps for answer in answers]


def sends(*data: bytes) -> tuple[Step, ...]:
    """Return steps without answers."""
    return tuple((piece, ()) for piece in data)


def run(case: Case, port: int, path: str = "/echo") -> None:
    """Run a case. Raises AssertionError with what the server has sent instead."""
    with Peer.open(port, path) as peer:
        received = paced(case, peer) if case.paced else at_once(case, peer)
        if case.closes:
            received += peer.end()
            check_failed(case, received)
        else:
            received += peer.close()
            assert received == [*case.answers, Event("close", code=1000), FIN], received


def at_once(case: Case, peer: Peer) -> list[Event]:
    """Send all, as fast as the server reads. Return what must come before the client may close."""
    for data, _ in case.steps:
        peer.send(data, case.chop)
    return [] if case.closes else [peer.event() for _ in case.answers]


def paced(case: Case, peer: Peer) -> list[Event]:
    """Send each step when the one before is answered."""
    received = []
    for data, answers in case.steps:
        peer.send(data, case.chop)
        received += [peer.event() for _ in answers]
    return received


def check_failed(case: Case, received: list[Event]) -> None:
    """Check that a server which was to close has answered before, closed with a code, and hung up."""
    *answers, close, end = received
    assert close.kind == "close", received
    assert close.code in case.closes, received
    assert end in ENDS
    # an echo that waits while the connection fails is lost: the suite calls that not strict, and accepts it
    assert answers == case.answers if case.paced else answers == case.answers[: len(answers)], received
