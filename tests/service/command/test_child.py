"""The command that `deadlined run` keeps running, on each event loop."""

from __future__ import annotations

import errno
import math
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deadlined.asgi.lifespan import LEAST_GRACE
from deadlined.runtime import LOOPS, Event, current_time, open_group
from deadlined.runtime import run as run_loop
from deadlined.service.command.child import TRIES, Child
from deadlined.service.command.place import Place, place_in
from deadlined.service.errors import StartupError
from deadlined.service.process.file_limit import raise_file_limit
from deadlined.service.process.signals import OUT_OF_MEMORY
from tests.service.command.guards import ending
from tests.support.command import PATIENCE, environment
from tests.support.limits import low_file_limit

# It refuses a file that is left, as many servers do. {before} is done before it listens, {first} once it does,
# {signalled} at SIGTERM.
SERVER = """
import os, signal, socket, sys
def signalled(*_):
    {signalled}
signal.signal(signal.SIGTERM, signalled)
{before}
path = sys.argv[1]
if path.isdigit():
    listener = socket.create_server(("127.0.0.1", int(path)))
else:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
{first}
while True:
    listener.accept()[0].close()
"""


def server(first: str = "pass", signalled: str = "sys.exit()", place: str = "{uds}", before: str = "pass") -> list[str]:
    return [sys.executable, "-S", "-c", SERVER.format(before=before, first=first, signalled=signalled), place]


class Story:
    """The log of a child and what it says of being available, in their order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self._news = Event()

    def log(self, event: str, **fields: Any) -> None:
        self.told.append((event, fields))
        self._news.set()

    def note(self, available: bool) -> None:
        self.log("available" if available else "not available")

    @property
    def events(self) -> list[str]:
        return [event for event, _ in self.told]

    def fields(self, event: str) -> dict[str, Any]:
        """Return the fields of the latest such event."""
        return next(fields for each, fields in reversed(self.told) if each == event)

    async def until(self, event: str, times: int = 1) -> dict[str, Any]:
        """Wait until such an event has come so often."""
        while self.events.count(event) < times:
            self._news = Event()
            await self._news.wait()
        return self.fields(event)


@contextmanager
def kept(command: list[str], story: Story) -> Iterator[Child]:
    """Give a child of which nothing is left at the end."""
    place = place_in(command)
    child = Child(place, command, story.log, story.note)
    try:
        yield child
    finally:
        child.abort()
        place.close()


Test = Callable[[Child, Story], Awaitable[object]]


def told(command: list[str], test: Test, loop: str = "trio") -> Story:
    """Run `test(child, story)` in an event loop, and return the story."""

    async def main() -> Story:
        story = Story()
        with kept(command, story) as child:
            await test(child, story)
        return story

    return run_loop(loop, main)


def never() -> float:
    return math.inf


def pid_of(story: Story) -> int:
    return int(story.fields("command started")["pid"])


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# it runs


@pytest.mark.parametrize("place", ["{uds}", "{port}"])
@pytest.mark.parametrize("loop", LOOPS)
def test_it_is_started_and_available_once_it_accepts_and_ended_with_sigterm(loop: str, place: str) -> None:
    async def test(child: Child, story: Story) -> None:
        await child.start()
        await child.stop(never)
        assert not is_there(pid_of(story))

    story = told(server(place=place), test, loop)
    assert story.events == [
        "command started",
        "available",
        "command accepts connections",
        "stopping the command",
        "command ended",
    ]
    assert (story.fields("command ended")["code"], "again_in" in story.fields("command ended")) == (0, False)


@pytest.mark.parametrize("loop", LOOPS)
def test_one_that_is_killed_is_not_available_and_started_again(loop: str) -> None:
    async def test(child: Child, story: Story) -> None:
        await child.start()
        first = pid_of(story)
        async with open_group() as group:
            group.start_soon(child.keep)
            os.kill(first, signal.SIGKILL)
            await story.until("command accepts connections", 2)
            assert pid_of(story) != first
            await child.stop(never)

    story = told(server(), test, loop)
    again = story.events[3:7]
    assert again == ["not available", "command ended", "command started", "available"]
    ended = next(fields for event, fields in story.told if event == "command ended")
    assert (ended["signal"], ended["level"], ended["again_in"] > 0) == ("SIGKILL", "warning", True)
    assert ended["hint"] == OUT_OF_MEMORY


@pytest.mark.parametrize("loop", LOOPS)
def test_one_that_refuses_connections_is_not_available_until_it_accepts_them_again(loop: str) -> None:
    async def test(child: Child, story: Story) -> None:
        await child.start()
        async with open_group() as group:
            group.start_soon(child.keep)
            for times in (2, 3):
                child.refused()
                child.refused()
                await story.until("command accepts connections", times)
            await child.stop(never)

    story = told(server(), test, loop)
    once = ["not available", "the command refuses connections", "available", "command accepts connections"]
    assert story.events[3:11] == 2 * once
    assert story.fields("the command refuses connections") == {"level": "warning", "pid": pid_of(story)}


def test_one_that_refuses_connections_and_ends_is_started_again() -> None:
    async def test(child: Child, story: Story) -> None:
        await child.start()
        async with open_group() as group:
            group.start_soon(child.keep)
            os.kill(pid_of(story), signal.SIGUSR1)
            while await child._accepts():
                pass
            child.refused()
            assert story.events[3:] == ["not available", "the command refuses connections"]
            os.kill(pid_of(story), signal.SIGKILL)
            await story.until("available", 2)
            await child.stop(never)

    stops_listening = "lambda *_: (listener.shutdown(socket.SHUT_RDWR), signal.pause())"
    story = told(server(f"signal.signal(signal.SIGUSR1, {stops_listening})"), test)
    assert story.events[5:9] == ["not available", "command ended", "command started", "available"]


def test_it_has_a_session_of_its_own_so_that_a_terminal_does_not_signal_it() -> None:
    async def test(child: Child, story: Story) -> None:
        await child.start()
        pid = pid_of(story)
        assert (os.getsid(pid), os.getpgid(pid)) == (pid, pid)

    told(server(), test)


def test_it_has_the_standard_streams_of_this_process(capfd: pytest.CaptureFixture[str]) -> None:
    async def test(child: Child, _: Story) -> None:
        await child.start()

    told(server(first="print(sys.argv[1], flush=True); print('there', file=sys.stderr, flush=True)"), test)
    out, err = capfd.readouterr()
    assert (Path(out.strip()).name, err) == ("socket", "there\n")


def test_it_has_the_limit_of_open_files_that_this_process_had_before_it_raised_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def test(child: Child, _: Story) -> None:
        await child.start()

    limit = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], flush=True)"
    with low_file_limit(256):
        raise_file_limit()
        told(server(first=limit), test)
    assert capfd.readouterr().out == "256\n"


# it ends


def test_one_that_does_not_end_is_killed_at_the_deadline_which_may_move() -> None:
    deadline = [math.inf]

    async def test(child: Child, story: Story) -> None:
        await child.start()
        begun = current_time()
        async with open_group() as group:
            group.start_soon(child.stop, lambda: deadline[0])
            await story.until("stopping the command")
            # in the past: it is left the least
            deadline[0] = 0.0
            await story.until("command ended")
            assert current_time() - begun >= LEAST_GRACE

    story = told(server(signalled="pass"), test)
    assert story.events[-3:] == ["stopping the command", "the command did not end in time: killed", "command ended"]
    assert story.fields("command ended")["signal"] == "SIGKILL"
    assert "hint" not in story.fields("command ended")


@pytest.mark.skipif(sys.platform != "linux", reason="the end of a process that is no child is seen on Linux")
def test_what_it_leaves_of_its_group_ends_with_it(tmp_path: Path) -> None:
    left = "pid = os.fork()\nif not pid: signal.pause()\nwith open(sys.argv[2], 'w') as file: file.write(str(pid))"
    command = [*server(before=left, signalled="os._exit(0)"), str(tmp_path / "pid")]

    async def test(child: Child, story: Story) -> None:
        await child.start()
        with ending(int((tmp_path / "pid").read_text())):
            await child.stop(never)

    told(command, test)


def test_a_stop_while_it_waits_to_be_started_again_leaves_nothing() -> None:
    async def test(child: Child, story: Story) -> None:
        await child.start()
        async with open_group() as group:
            group.start_soon(child.keep)
            os.kill(pid_of(story), signal.SIGKILL)
            await story.until("command ended")
            await child.stop(never)

    assert told(server(), test).events.count("command started") == 1


def test_what_ends_the_block_ends_it_at_once() -> None:
    async def test(child: Child, story: Story) -> None:
        await child.start()
        child.abort()
        assert not is_there(pid_of(story))

    story = told(server(), test)
    assert story.events[-1] == "command ended"
    assert told(server(signalled="pass"), test).fields("command ended")["signal"] == "SIGKILL"


def test_a_process_that_ends_without_its_event_loop_takes_it_along() -> None:
    program = f"""
import sys
from deadlined.runtime import run
from deadlined.service.command.child import Child
from deadlined.service.process.last_resort import exit_now
from deadlined.service.command.place import place_in
command = {server(signalled="pass")!r}
place = place_in(command)
async def main():
    await Child(place, command, lambda *_, **__: None, lambda _: None).start()
    place.close()
    exit_now(7)
run("trio", main)
"""
    # its standard output is open for as long as the command exists
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment(), timeout=PATIENCE, check=False
    )
    assert done.returncode == 7


# it does not start


@pytest.mark.parametrize("loop", LOOPS)
def test_one_that_always_ends_is_given_up(loop: str) -> None:
    command = [sys.executable, "-S", "-c", "import sys; sys.exit(7)", "{uds}"]

    async def test(child: Child, _: Story) -> None:
        with pytest.raises(StartupError) as caught:
            await child.start()
        assert caught.value.exit_code == 1
        (place,) = [word for word in str(caught.value).split() if word.startswith("unix:")]
        assert str(caught.value) == (
            f"the command has ended 3 times without accepting a connection at {place} lastly with code 7: "
            f"{shlex.quote(sys.executable)} -S -c 'import sys; sys.exit(7)' '{{uds}}'"
        )

    story = told(command, test, loop)
    assert story.events == ["command started", "command ended"] * TRIES
    assert [fields.get("again_in", 0) > 0 for event, fields in story.told if event == "command ended"] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("program", "hint"),
    [
        ("no-such-program", "No such file or directory; is it installed, and on PATH?"),
        ("./plain", "Permission denied; is it a file that may be executed?"),
        ("./garbage", "Exec format error"),
    ],
)
def test_one_that_cannot_be_started_is_a_wrong_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, hint: str
) -> None:
    (tmp_path / "plain").write_text("")
    (tmp_path / "garbage").write_bytes(b"\x00\x01")
    (tmp_path / "garbage").chmod(0o755)
    monkeypatch.chdir(tmp_path)

    async def test(child: Child, _: Story) -> None:
        with pytest.raises(StartupError) as caught:
            await child.start()
        assert (str(caught.value), caught.value.exit_code) == (f"cannot start {program}: {hint}", 2)

    assert told([program, "{uds}"], test).events == []


def test_one_for_which_the_system_has_no_room_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be over at the next start, which a wrong argument is not."""

    def full(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    async def test(child: Child, _: Story) -> None:
        with pytest.raises(StartupError, match="cannot start true: Resource temporarily unavailable") as caught:
            await child.start()
        assert caught.value.exit_code == 1

    monkeypatch.setattr(subprocess, "Popen", full)
    assert told(["true", "{uds}"], test).events == []


def test_one_that_cannot_be_started_again_is_tried_until_it_can(tmp_path: Path) -> None:
    program = tmp_path / "server"

    def write() -> None:
        # not Python's path after #!, which would end at a blank
        program.write_text(f'#!/bin/sh\nexec {shlex.join(server()[:-1])} "$@"\n')
        program.chmod(0o755)

    async def test(child: Child, story: Story) -> None:
        await child.start()
        program.unlink()
        async with open_group() as group:
            group.start_soon(child.keep)
            os.kill(pid_of(story), signal.SIGKILL)
            failed = await story.until("cannot start the command")
            assert (failed["why"], failed["again_in"] > 0) == ("No such file or directory", True)
            write()
            await story.until("command accepts connections", 2)
            await child.stop(never)

    write()
    told([str(program), "{uds}"], test)


def test_one_that_is_slow_is_told_of_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("deadlined.service.command.child.SLOW", 0.0)
    go = tmp_path / "go"
    waits = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
    command = server()
    command[3] = waits + command[3]

    async def test(child: Child, story: Story) -> None:
        async with open_group() as group:
            group.start_soon(child.start)
            told = await story.until("the command does not accept connections yet")
            assert told["address"].startswith("unix:")
            go.touch()

    assert told(command, test).events.count("the command does not accept connections yet") == 1


class NoPlace(Place):
    """A place at which nobody can listen."""

    value = address = name = "nowhere"

    async def connect(self, deadline: float) -> Any:
        raise OSError("nobody")


def test_an_interrupted_start_leaves_nothing() -> None:
    story = Story()
    command = [sys.executable, "-S", "-c", "import signal; signal.pause()"]

    async def main() -> None:
        child = Child(NoPlace(), command, story.log, story.note)
        async with open_group() as group:
            group.start_soon(child.start)
            await story.until("command started")
            group.cancel()
        child.abort()

    run_loop("trio", main)
    assert story.events == ["command started", "command ended"]
    assert not is_there(pid_of(story))
