"""The supervisor's part: questions to worker processes that answer, hang or end."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deadlined.service.admin.hub import BOUND, Hub
from deadlined.service.admin.picture import Answer, Connection, Picture, Question, Status
from deadlined.service.admin.views import statistics_of
from deadlined.service.workers.frames import ASK
from tests.support.admin import answer, counters
from tests.support.examples import examples


class Process:
    """A worker process as the hub sees it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.questions: list[Question] = []

    def send(self, kind: bytes, payload: bytes) -> None:
        assert kind == ASK
        self.questions.append(msgspec.json.decode(payload, type=Question))


class Service:
    """A hub, its processes, and what it has published."""

    def __init__(self, wanted: int) -> None:
        self.now = 1000.0
        self.status: Status = "ready"
        self.pictures: list[Picture] = []
        self.hub = Hub(wanted, lambda: self.status, self._publish, lambda: self.now)
        self.processes: dict[int, Process] = {}
        self._asked = 0

    def _publish(self, picture: bytes) -> None:
        self.pictures.append(msgspec.json.decode(picture, type=Picture))

    def start(self, pid: int, number: int) -> None:
        self.processes[pid] = Process(pid)
        self.hub.joined(pid, number, self.processes[pid].send)
        self.hub.is_ready(pid)

    def ask(self, what: str = "counts") -> int:
        self._asked += 1
        self.hub.ask(msgspec.convert({"what": what, "id": self._asked}, Question))
        return self._asked

    def tell(self, pid: int, number: int = 0, question: int | None = None) -> None:
        asked = self._asked if question is None else question
        self.hub.told(pid, msgspec.json.encode(answer(number, asked, open_=number)))

    def restarts(self) -> int:
        self.ask("status")
        return self.pictures[-1].restarts

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.hub.tick()


@pytest.fixture
def service() -> Service:
    found = Service(2)
    found.start(11, 1)
    found.start(12, 2)
    return found


def test_a_picture_is_published_when_all_have_answered(service: Service) -> None:
    service.ask()
    service.tell(12, 4)
    assert service.pictures == []
    service.tell(11, 3)
    (picture,) = service.pictures
    assert [(worker.worker, worker.pid, worker.up) for worker in picture.workers] == [(1, 11, True), (2, 12, True)]
    assert picture.totals() == counters(7)
    assert service.hub.until() == math.inf


def test_a_status_needs_no_process(service: Service) -> None:
    service.ask("status")
    (picture,) = service.pictures
    assert picture.ready
    assert all(process.questions == [] for process in service.processes.values())


def test_one_that_hangs_does_not_hold_the_picture_and_keeps_its_last_counts(service: Service) -> None:
    service.ask()
    service.tell(11, 3)
    service.tell(12, 4)
    service.ask()
    service.tell(11, 5)
    assert service.hub.until() == service.now + BOUND
    service.wait(BOUND / 2)
    assert len(service.pictures) == 1
    service.wait(BOUND / 2)
    picture = service.pictures[1]
    assert [worker.up for worker in picture.workers] == [True, False]
    assert picture.totals() == counters(9)


def test_one_that_hangs_is_not_asked_again_until_it_has_answered(service: Service) -> None:
    service.ask()
    service.tell(11)
    service.wait(BOUND)
    for _ in range(100):
        service.ask()
        service.tell(11)
        service.wait(1)
    # at once: nobody else is waited for
    assert len(service.pictures) == 101
    assert len(service.processes[12].questions) == 1
    service.tell(12, 4, question=1)
    service.ask()
    assert len(service.processes[12].questions) == 2


def test_one_that_ends_instead_of_answering_is_missing_and_its_counts_stay(service: Service) -> None:
    service.ask()
    service.tell(11, 3)
    service.tell(12, 4)
    service.ask()
    service.tell(11, 3)
    service.hub.left(12)
    picture = service.pictures[1]
    assert [worker.worker for worker in picture.workers] == [1]
    assert (picture.serving, picture.wanted, picture.totals()) == (1, 2, counters(7))
    service.start(13, 2)
    service.ask()
    service.tell(11, 3)
    service.tell(13, 2)
    assert service.pictures[2].totals() == counters(9)


def test_one_that_is_started_in_the_place_of_another_is_a_restart(service: Service) -> None:
    assert service.restarts() == 0
    # of one that drains, and of one that has died
    service.hub.leaves(11)
    service.start(13, 1)
    service.hub.left(11)
    service.hub.left(12)
    service.start(14, 2)
    assert service.restarts() == 2


def test_one_that_nobody_replaces_is_no_restart_nor_is_one_that_is_added_later(service: Service) -> None:
    service.hub.want(1)
    service.hub.leaves(12)
    service.hub.left(12)
    service.hub.want(2)
    service.start(13, 2)
    assert service.restarts() == 0


def test_the_last_counts_that_come_unasked_are_kept(service: Service) -> None:
    service.tell(12, 8, question=0)
    service.hub.left(12)
    service.ask()
    service.tell(11, 1)
    assert service.pictures[0].totals() == counters(9)


def test_an_answer_that_comes_too_late_is_kept_for_the_next_picture(service: Service) -> None:
    late = service.ask()
    service.tell(11, 1)
    service.wait(BOUND)
    service.tell(12, 4, question=late)
    service.ask("status")
    assert service.pictures[1].totals() == counters(5)


@pytest.mark.parametrize("payload", [b"{", b"null", b'{"id": 1}', b"\xff"])
def test_what_is_no_answer_is_logged_and_harms_nothing(
    payload: bytes, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    service.ask()
    service.hub.told(12, payload)
    service.tell(11, 1)
    service.wait(BOUND)
    assert [worker.up for worker in service.pictures[0].workers] == [True, False]
    assert "invalid answer" in caplog.text


def test_one_that_has_nothing_to_say_yet_is_not_up(service: Service) -> None:
    service.ask()
    service.hub.told(12, b"")
    service.tell(11)
    service.wait(BOUND)
    assert [worker.up for worker in service.pictures[0].workers] == [True, False]


def test_one_that_does_not_serve_yet_is_not_asked() -> None:
    service = Service(1)
    service.processes[11] = Process(11)
    service.hub.joined(11, 0, service.processes[11].send)
    service.ask()
    assert service.processes[11].questions == []
    assert (service.pictures[0].ready, service.hub.all_ready) == (False, False)


def test_one_that_does_not_answer_its_supervisor_is_shown_as_silent(service: Service) -> None:
    service.hub.is_silent(12, True)
    service.ask("status")
    service.hub.is_silent(12, False)
    service.ask("status")
    found = [[worker.silent for worker in picture.workers] for picture in service.pictures]
    assert found == [[False, True], [False, False]]


def test_the_state_of_each_process_is_shown() -> None:
    service = Service(4)
    for pid in (11, 12, 13):
        service.start(pid, pid - 10)
    service.hub.joined(14, 4, Process(14).send)
    service.hub.leaves(13)
    service.ask()
    for pid in (11, 13):
        service.tell(pid)
    service.wait(BOUND)
    found = [(line.state, line.up, line.ready) for line in statistics_of(service.pictures[0]).workers]
    assert found == [
        ("serving", True, True),
        ("serving", False, True),
        ("draining", True, False),
        ("starting", False, False),
    ]


def test_connections_are_passed_on_and_not_kept(service: Service) -> None:
    shown = Connection(worker=0, id=1, peer="a", phase="idle", age=1.0, left=None, requests=1)
    number = service.ask("connections")
    told = answer(1, number)
    told = Answer(id=number, counters=told.counters, gauges=told.gauges, matching=1, connections=[shown])
    service.hub.told(11, msgspec.json.encode(told))
    service.tell(12)
    service.ask("status")
    found = [worker.answer for picture in service.pictures for worker in picture.workers[:1]]
    assert [one.connections for one in found if one is not None] == [[shown], []]


class Worker:
    """A worker process that counts."""

    def __init__(self, pid: int, slot: int) -> None:
        self.pid = pid
        self.slot = slot
        self.counted = 0


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(st.sampled_from(["count", "ask", "kill", "end", "hang"]), st.integers(0, 2)), max_size=60))
def test_no_counter_ever_goes_back(story: list[tuple[str, int]]) -> None:
    service = Service(3)
    workers = [Worker(pid, pid) for pid in range(3)]
    for worker in workers:
        service.start(worker.pid, worker.slot)
    shown, pid = 0, 100
    for what, slot in story:
        worker = workers[slot]
        if what == "count":
            worker.counted += 1
        elif what == "ask":
            service.ask()
            for each in workers:
                # one that hangs was not asked, or does not answer
                if each.counted % 7 != 3:
                    service.tell(each.pid, each.counted)
            service.wait(BOUND)
            totals = service.pictures[-1].totals()
            accepted = 0 if totals is None else totals.accepted
            assert accepted >= shown
            shown = accepted
        elif what in ("kill", "end"):
            if what == "end":
                service.tell(worker.pid, worker.counted, question=0)
            service.hub.left(worker.pid)
            pid += 1
            workers[slot] = Worker(pid, slot)
            service.start(pid, slot)
