"""The live page: its files, and the stream of events that it shows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import deadlined.service.admin
from deadlined.http import Phase, Reason, Timeouts
from deadlined.service.admin.events import MOST
from deadlined.service.admin.picture import Picture
from tests.support.admin import Asker, Still, answer, asking, local, picture
from tests.support.http import GET, serving

FILES = Path(deadlined.service.admin.__file__).parent / "page"
SCRIPT = (FILES / "page.js").read_text()


class Stream:
    """An open stream of events."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._received = b""

    async def until(self, mark: bytes) -> bytes:
        """Return what comes up to `mark`; fail if the end comes first."""
        while mark not in self._received:
            data = await self._stream.receive_some()
            assert data, self._received
            self._received += data
        found, _, self._received = self._received.partition(mark)
        return found

    async def event(self) -> dict[str, Any]:
        """Return the data of the next event. An event is one chunk."""
        await self.until(b"data: ")
        found: dict[str, Any] = json.loads(await self.until(b"\n\n"))
        return found

    async def rest(self) -> bytes:
        async for data in self._stream:
            self._received += data
        return self._received

    async def aclose(self) -> None:
        await self._stream.aclose()


async def events(admin: Asker, query: str = "") -> Stream:
    stream = await admin.connect()
    await stream.send_all(f"GET /events{query} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
    found = Stream(stream)
    head = await found.until(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"content-type: text/event-stream" in head
    return found


@pytest.mark.parametrize(
    ("path", "kind", "file"),
    [
        ("/", "text/html", "index.html"),
        ("/page.css", "text/css", "page.css"),
        ("/page.js", "text/javascript", "page.js"),
    ],
)
async def test_its_files_are_served_under_a_strict_policy(
    path: str, kind: str, file: str, autojump_clock: MockClock
) -> None:
    async with asking(Still(picture(answer()))) as admin:
        found = await admin.get(path)
    assert found.body == (FILES / file).read_bytes()
    assert found.headers["content-type"] == f"{kind}; charset=utf-8"
    policy = dict(part.strip().split(" ", 1) for part in found.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert policy["frame-ancestors"] == "'none'"


@pytest.mark.parametrize("file", sorted(FILES.iterdir()), ids=lambda file: file.name)
def test_they_load_nothing_from_elsewhere_and_have_nothing_that_the_policy_forbids(file: Path) -> None:
    text = file.read_text()
    assert "://" not in text
    assert not re.search(r"\sstyle=|\son\w+=|<style|<script>|innerHTML|eval\(", text)


def test_each_reason_has_a_sentence_and_each_phase_its_limit() -> None:
    sentences = dict(re.findall(r"^  (\w+): \"(.+)\",$", SCRIPT.partition("REASONS = {")[2], re.MULTILINE))
    assert set(sentences) == {reason.value for reason in Reason}
    limits = dict(re.findall(r"(\w+): (?:\"(\w+)\"|null)", SCRIPT.partition("LIMITS = {")[2].partition("}")[0]))
    assert set(limits) == {phase.value for phase in Phase}
    assert {phase for phase, name in limits.items() if not name} == {Phase.CLOSING}
    assert all(hasattr(Timeouts(), name) for name in limits.values() if name)


def test_timers_are_named_by_their_state() -> None:
    shown = re.findall(r'"(\w+) timers", number\(now\.timers\.(\w+)\)', SCRIPT)
    assert shown == [("armed", "armed"), ("zombie", "zombie")]


async def test_an_event_a_second_shows_the_service_and_the_connections_that_were_asked_for(
    autojump_clock: MockClock,
) -> None:
    async with serving() as site, asking(local(site.server)) as admin:
        stream = await events(admin, "?phase=idle&limit=1")
        first = await stream.event()
        for _ in range(2):
            await (await site.connect()).get(GET)
        at = trio.current_time()
        second = await stream.event()
        assert trio.current_time() - at <= 1.5
        await stream.aclose()
    assert [event["connections"]["matching"] for event in (first, second)] == [0, 2]
    assert len(second["connections"]["connections"]) == 1
    assert second["statistics"]["phases"]["idle"] == 2


async def test_a_service_that_takes_its_time_to_answer_is_shown_each_second_too(autojump_clock: MockClock) -> None:
    class Slow(Still):
        async def ask(self, question: object) -> Picture:
            await trio.sleep(0.4)
            return self.picture

    async with asking(Slow(picture(answer()))) as admin:
        stream = await events(admin)
        await stream.event()
        begun = trio.current_time()
        for _ in range(10):
            await stream.event()
        took = trio.current_time() - begun
        await stream.aclose()
    assert took == pytest.approx(10.0, abs=0.3)


async def test_a_query_that_makes_no_sense_is_refused(autojump_clock: MockClock) -> None:
    async with asking(Still(picture(answer()))) as admin:
        assert (await admin.get("/events?sort=peer")).status == 400


async def test_head_does_not_open_a_stream(autojump_clock: MockClock) -> None:
    async with asking(Still(picture(answer()))) as admin:
        found = await admin.get("/events", "HEAD")
    assert (found.status, found.body) == (200, b"")


async def test_there_are_so_many_streams_and_one_that_is_closed_makes_room(autojump_clock: MockClock) -> None:
    async with asking(Still(picture(answer()))) as admin:
        streams = [await events(admin) for _ in range(MOST)]
        assert (await admin.get("/events")).status == 503
        await streams.pop().aclose()
        await trio.sleep(3)
        streams.append(await events(admin))
        for stream in streams:
            await stream.aclose()


async def test_a_stream_lasts_for_days(autojump_clock: MockClock) -> None:
    async with asking(Still(picture(answer()))) as admin:
        stream = await events(admin)
        for _ in range(300):
            await stream.event()
        assert trio.current_time() > 250
        await stream.aclose()


async def test_one_that_does_not_read_is_cut(autojump_clock: MockClock) -> None:
    shown = picture(answer())
    large = picture(*[answer()] * 3000)
    service = Still(large)
    async with asking(service) as admin:
        stream = await events(admin)
        begun = trio.current_time()
        await trio.sleep(120)
        with pytest.raises(trio.BrokenResourceError):
            await stream.rest()
        assert trio.current_time() - begun < 130
        await stream.aclose()
        service.picture = shown
        assert (await admin.get("/livez")).status == 200


async def test_a_shutdown_ends_a_stream_in_order(autojump_clock: MockClock) -> None:
    async with asking(Still(picture(answer()))) as admin:
        stream = await events(admin)
        await stream.event()
        admin.listener.shutdown()
        rest = await stream.rest()
        await stream.aclose()
    assert rest.endswith(b"0\r\n\r\n")
