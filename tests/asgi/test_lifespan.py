"""The lifespan: startup before the first connection, shutdown after the last, within its grace."""

from __future__ import annotations

import logging
import math

import pytest
import trio
from trio.testing import MockClock

from deadlined.asgi import Lifespan, LifespanFailed
from deadlined.asgi.handler import Receive, Scope, Send
from deadlined.asgi.lifespan import LEAST_GRACE
from tests.support.interrupts import interrupted_at
from tests.support.serving import GET, hello, say, serving


class Told:
    """An application that records its lifespan messages and answers them."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self.events.append(f"request of {scope['state']['owner']}")
            await say(send)
            return
        assert scope["type"] == "lifespan"
        assert scope["asgi"]["version"] == "3.0"
        for _ in range(2):
            kind = (await receive())["type"]
            self.events.append(kind)
            scope["state"]["owner"] = "the lifespan"
            await send({"type": kind + ".complete"})


async def test_requests_come_between_startup_and_shutdown_and_see_the_state() -> None:
    app = Told()
    async with Lifespan(app) as state:
        assert app.events == ["lifespan.startup"]
        async with serving(app, state=state) as served:
            await served.ask(GET)
    assert app.events == ["lifespan.startup", "request of the lifespan", "lifespan.shutdown"]


async def test_nothing_is_served_before_a_slow_startup_is_complete(autojump_clock: MockClock) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await trio.sleep(10)
        await send({"type": "lifespan.startup.complete"})
        await receive()

    begun = trio.current_time()
    async with Lifespan(app):
        assert trio.current_time() == begun + 10


@pytest.mark.parametrize("then", ["returns", "raises", "goes on"])
async def test_a_startup_that_is_reported_as_failed_is_an_error(then: str, caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})
        if then == "raises":
            raise RuntimeError("no database")
        if then == "goes on":
            await trio.sleep_forever()

    caplog.set_level(logging.INFO)
    with pytest.raises(LifespanFailed, match=r"^no database$"):
        async with Lifespan(app):
            pytest.fail("it was served")
    assert not caplog.records


async def test_a_failed_startup_without_a_message_has_one() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "lifespan.startup.failed"})

    with pytest.raises(LifespanFailed, match="reported a failed startup"):
        async with Lifespan(app):
            pytest.fail("it was served")


async def raises(scope: Scope, receive: Receive, send: Send) -> None:
    raise NotImplementedError(scope["type"])


async def asserts(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    assert scope["type"] == "http"


async def returns(scope: Scope, receive: Receive, send: Send) -> None:
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("app", [raises, asserts, returns])
async def test_an_application_without_a_lifespan_is_served_with_an_empty_state(app: object) -> None:
    async with Lifespan(app) as state:  # type: ignore[arg-type]
        assert state == {}


async def test_a_shutdown_that_hangs_is_cut_by_the_grace(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await trio.sleep_forever()

    async with Lifespan(app, grace=7.0):
        begun = trio.current_time()
    assert trio.current_time() == begun + 7
    assert "did not finish its lifespan shutdown within 7 s" in caplog.text


@pytest.mark.parametrize(
    ("does", "grace", "waited"),
    [("goes on", 5.0, 1.0), ("goes on", 0.5, 0.5), ("receives", 5.0, 0.0), ("closes", 5.0, 0.25)],
)
async def test_what_is_around_the_application_has_a_second_to_close_unless_it_waits_for_a_message(
    does: str, grace: float, waited: float, autojump_clock: MockClock
) -> None:
    async def middleware(scope: Scope, receive: Receive, send: Send) -> None:
        await Told()(scope, receive, send)
        if does == "receives":
            await receive()
        await trio.sleep(0.25 if does == "closes" else 100)

    async with Lifespan(middleware, grace):
        begun = trio.current_time()
    assert trio.current_time() == begun + waited


async def test_the_grace_can_be_changed_while_it_runs(autojump_clock: MockClock) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await trio.sleep_forever()

    lifespan = Lifespan(app)
    async with lifespan:
        lifespan.grace = 2.0
        begun = trio.current_time()
    assert trio.current_time() == begun + 2


async def test_its_deadline_may_move_while_the_application_shuts_down(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await trio.sleep_forever()

    lifespan = Lifespan(app)
    async with lifespan, trio.open_nursery() as nursery:
        begun = trio.current_time()
        ends = math.inf
        nursery.start_soon(lifespan.shut_down, lambda: ends)
        await trio.sleep(3600)
        ends = begun + 3601.5
    # it is not told again at the end of the block
    assert 3601.5 <= trio.current_time() - begun <= 3601.6
    assert [record.getMessage() for record in caplog.records] == [
        "the application did not finish its lifespan shutdown within 3601.5 s"
    ]


async def test_a_failed_shutdown_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.failed", "message": "half saved"})

    async with Lifespan(app):
        pass
    assert "half saved" in caplog.text


async def test_a_lifespan_that_fails_while_serving_is_logged_and_serving_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failed = trio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        failed.set()
        raise LookupError("lost")

    async with Lifespan(app) as state, serving(hello, state=state) as served:
        await failed.wait()
        assert (await served.ask(GET)).body == b"hello"
    (record,) = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], LookupError)


async def test_an_unknown_message_is_raised_in_the_application() -> None:
    raised: list[RuntimeError] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "lifespan.poem"})
        except RuntimeError as error:
            raised.append(error)
            raise

    async with Lifespan(app):
        assert "lifespan.poem" in str(raised[0])


async def test_an_error_inside_the_block_passes_through_and_shuts_the_application_down() -> None:
    app = Told()
    with pytest.RaisesGroup(LookupError):
        async with Lifespan(app):
            raise LookupError
    assert app.events == ["lifespan.startup", "lifespan.shutdown"]


@pytest.mark.parametrize(("grace", "seconds"), [(5.0, LEAST_GRACE), (0.5, 0.5)])
async def test_which_has_a_second_at_most(grace: float, seconds: float, autojump_clock: MockClock) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await trio.sleep_forever()

    with pytest.RaisesGroup(LookupError):
        async with Lifespan(app, grace):
            raise LookupError
    assert trio.current_time() == seconds


async def test_a_startup_that_hangs_can_be_cancelled(autojump_clock: MockClock) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await trio.sleep_forever()

    with trio.move_on_after(3) as scope:
        async with Lifespan(app):
            pytest.fail("it was served")
    assert scope.cancelled_caught


async def test_ctrl_c_in_the_startup_does_not_begin_to_serve() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        raise KeyboardInterrupt

    served = False
    with pytest.raises(BaseExceptionGroup) as caught:
        async with Lifespan(app):
            served = True
    assert caught.value.subgroup(KeyboardInterrupt) is not None
    assert not served


def test_ctrl_c_at_any_line_of_the_startup_undoes_it() -> None:
    steps: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        steps.append("begins")
        try:
            await trio.sleep_forever()
        finally:
            steps.append("undone")

    async def main(step: int, reached: list[str]) -> None:
        lifespan = Lifespan(app)
        with interrupted_at(step, reached), trio.move_on_after(1):
            await lifespan.__aenter__()
        await trio.lowlevel.checkpoint()

    step = 0
    reached = ["first"]
    while reached:
        reached, steps[:] = [], []
        try:
            trio.run(main, step, reached, clock=MockClock(autojump_threshold=0))
            assert not reached
        except (KeyboardInterrupt, BaseExceptionGroup) as error:
            interrupts = error.subgroup(KeyboardInterrupt) if isinstance(error, BaseExceptionGroup) else error
            assert interrupts is not None
        assert steps in ([], ["begins", "undone"]), reached
        step += 1
    assert step > 10, "the trace has not seen it"
