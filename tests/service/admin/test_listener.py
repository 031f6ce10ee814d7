"""The admin listener and clients that mean harm: slow ones, many of them, and some that ask without a pause."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
import trio
from trio.testing import MockClock

from deadlined.asgi.lifespan import LEAST_GRACE
from deadlined.service.admin.address import open_admin
from deadlined.service.admin.listener import MOST
from deadlined.service.admin.picture import MOST_SHOWN, Picture, Question
from deadlined.service.admin.service import Service
from deadlined.service.process.last_resort import MARGIN
from tests.support.admin import Asker, Still, answer, asking, everything, local, parsed, picture, samples
from tests.support.http import Site, only, serving

LIVEZ = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"


async def ends_after(admin: Asker, sent: bytes) -> tuple[bytes, float]:
    """Return what a client gets that sends this and waits, and after how many seconds it is cut."""
    async with await admin.connect() as stream:
        begun = trio.current_time()
        if sent:
            await stream.send_all(sent)
        return await everything(stream), trio.current_time() - begun


@pytest.mark.parametrize(
    ("sent", "status", "seconds"),
    [(b"", b"", 5.0), (LIVEZ[:9], b"408", 5.0), (LIVEZ, b"200", 11.0)],
    ids=["silent", "half a head", "idle"],
)
async def test_a_slow_client_is_cut(sent: bytes, status: bytes, seconds: float, autojump_clock: MockClock) -> None:
    async with asking(Still(picture(answer()))) as admin:
        received, after = await ends_after(admin, sent)
    assert received.partition(b" ")[2][:3] == status
    assert after == pytest.approx(seconds)


async def test_a_head_that_trickles_is_cut_in_the_same_time(autojump_clock: MockClock) -> None:
    async with asking(Still(picture(answer()))) as admin, await admin.connect() as stream:
        begun = trio.current_time()
        with pytest.raises(trio.BrokenResourceError):
            for byte in LIVEZ * 100:
                await stream.send_all(bytes([byte]))
                await trio.sleep(0.5)
        # and a lingering close of two seconds, which the client notices with its next bytes
        assert trio.current_time() - begun < 10


async def test_a_head_that_is_too_large_is_refused(autojump_clock: MockClock) -> None:
    async with asking(Still(picture(answer()))) as admin:
        received, _ = await ends_after(admin, LIVEZ[:-2] + b"x: " + b"a" * 8192)
    assert received.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(("length", "status"), [(1_000_000, b"413"), (1000, b"503")])
async def test_a_body_that_never_comes_is_not_waited_for(length: int, status: bytes, autojump_clock: MockClock) -> None:
    head = b"POST /reload HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % length
    async with asking(Still(picture(answer()))) as admin:
        received, after = await ends_after(admin, head)
    assert received.partition(b" ")[2][:3] == status
    assert after < 10


async def test_a_thousand_connections_are_bounded_and_the_service_is_asked_again_later(
    autojump_clock: MockClock,
) -> None:
    async with asking(Still(picture(answer()))) as admin:
        crowd = [await admin.connect() for _ in range(MOST)]
        await trio.sleep(0.1)
        for _ in range(1000 - MOST):
            async with await admin.connect() as stream:
                refused = parsed(await everything(stream))
        assert refused.status == 503
        assert str(MOST) in refused.detail
        assert admin.logged == ["admin listening", "the admin listener turns connections away"]
        # those that say nothing are cut, and there is room again
        await trio.sleep(6)
        assert (await admin.get("/livez")).status == 200
        for stream in crowd:
            await stream.aclose()


@pytest.mark.parametrize("sent", [LIVEZ[:9], b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n"])
async def test_a_client_that_is_slow_at_the_end_leaves_the_process_time(sent: bytes, autojump_clock: MockClock) -> None:
    """The listener is the last to end, and may come after a lifespan that has used up its least time."""
    async with asking(Counted(0.0, forever=True)) as admin:
        stream = await admin.connect()
        await stream.send_all(sent)
        await trio.sleep(0.1)
        begun = trio.current_time()
    assert trio.current_time() - begun < MARGIN - LEAST_GRACE
    await stream.aclose()


async def test_its_own_connections_are_not_in_what_it_shows(autojump_clock: MockClock) -> None:
    async with serving() as site, asking(local(site.server)) as admin:
        idle = [await admin.connect() for _ in range(5)]
        read = samples((await admin.get("/metrics")).body)
        shown = (await admin.get("/connections")).json
        for stream in idle:
            await stream.aclose()
    assert read["deadlined_connections_accepted_total"] == 0
    assert (shown["open"], shown["connections"]) == (0, [])


class Counted(Service):
    """A service that costs `seconds` to look at, by its own account. `forever`: it does not answer."""

    def __init__(self, seconds: float, forever: bool = False) -> None:
        self.asked: list[float] = []
        self._picture = picture(answer())
        self._seconds = seconds
        self._forever = forever

    async def ask(self, question: Question) -> Picture:
        self.asked.append(trio.current_time())
        if self._forever:
            await trio.sleep_forever()
        (worker,) = self._picture.workers
        assert worker.answer is not None
        gauges = msgspec.structs.replace(worker.answer.gauges, took=self._seconds)
        told = msgspec.structs.replace(worker.answer, gauges=gauges)
        return msgspec.structs.replace(self._picture, workers=[msgspec.structs.replace(worker, answer=told)])


async def test_a_scrape_every_10_ms_gets_each_answer_and_a_tenth_of_the_time(autojump_clock: MockClock) -> None:
    service = Counted(0.02)
    async with asking(service) as admin:
        for _ in range(20):
            assert (await admin.get("/metrics")).status == 200
            await trio.sleep(0.01)
    # a scrape that costs 20 ms is begun 5 times per second
    assert len(service.asked) == 20
    assert service.asked[-1] - service.asked[1] >= 18 * 0.2 * 0.99


async def test_a_crowd_that_asks_at_once_is_told_to_come_back(autojump_clock: MockClock) -> None:
    service = Counted(0.02)
    answers: list[int] = []

    async def scrape(admin: Asker) -> None:
        found = await admin.get("/metrics")
        answers.append(found.status)
        if found.status == 503:
            assert found.headers["retry-after"] == "1"
            assert "ask less often" in found.detail

    async with asking(service) as admin:
        await admin.get("/metrics")
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(scrape, admin)
        assert set(answers) == {200, 503}
        assert len(service.asked) == 1 + answers.count(200)
        # a probe does not wait for them
        assert (await admin.get("/readyz")).status == 200


async def test_open_pages_keep_no_scrape_from_its_answer(autojump_clock: MockClock) -> None:
    service = Counted(0.35)
    async with asking(service) as admin, AsyncExitStack() as stack:
        for _ in range(10):
            page = await stack.enter_async_context(await admin.connect())
            await page.send_all(b"GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n")
        for _ in range(10):
            await trio.sleep(10.0)
            asked = trio.current_time()
            assert (await admin.get("/metrics")).status == 200
            # a scrape of Prometheus gives up after ten
            assert trio.current_time() - asked < 9.0
        # and the pages have had events as well
        assert len(service.asked) > 20


async def test_ten_thousand_connections_are_counted_and_few_are_shown(autojump_clock: MockClock) -> None:
    async with serving(timeouts=only(idle=75.0)) as site, asking(local(site.server)) as admin:
        await pretend(site, 10_000)
        found = await admin.get("/connections?sort=left")
        assert (found.json["open"], found.json["matching"], len(found.json["connections"])) == (10_000, 10_000, 100)
        largest = await admin.get(f"/connections?limit={MOST_SHOWN}")
        assert len(largest.json["connections"]) == MOST_SHOWN
        assert len(largest.body) < 200 * MOST_SHOWN
        assert (await admin.get("/connections?limit=1001")).status == 400
        forget(site)


async def pretend(site: Site, number: int) -> None:
    """Let the server believe that it has as many connections: the same one, each time."""
    await (await site.connect()).get()
    connections = site.server._connections
    (one,) = connections
    site.server._connections = _Repeated(one, number)


def forget(site: Site) -> None:
    site.server._connections = set(site.server._connections)


class _Repeated(set):  # type: ignore[type-arg]
    """A set that contains one thing many times."""

    def __init__(self, one: object, number: int) -> None:
        super().__init__([one])
        self._number = number

    def __len__(self) -> int:
        return self._number

    def __iter__(self):  # type: ignore[no-untyped-def]
        (one,) = list(super().__iter__())
        return iter([one] * self._number)


async def test_an_answer_that_was_asked_for_comes_before_the_end(autojump_clock: MockClock) -> None:
    service = Counted(0.0)
    async with asking(service) as admin, await admin.connect() as stream:
        await stream.send_all(LIVEZ)
        await trio.sleep(0.1)
        admin.listener.shutdown()
        assert (await everything(stream)).startswith(b"HTTP/1.1 200 ")


async def test_a_public_listener_asks_for_its_token(tmp_path: Path, autojump_clock: MockClock) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret")
    async with asking(Still(picture(answer())), open_admin("0.0.0.0:0", str(file))) as admin:
        without = await admin.get("/config")
        wrong = await admin.get("/nothing", headers={"authorization": "Bearer wrong"})
        right = await admin.get("/config", headers={"authorization": "Bearer s3cret", "host": "admin.example"})
        probe = await admin.get("/livez", headers={"host": "10.0.0.1:9000"})
    assert (without.status, wrong.status, right.status, probe.status) == (401, 401, 200, 200)
    assert "www-authenticate" in without.headers
    assert b"s3cret" not in without.body + wrong.body
