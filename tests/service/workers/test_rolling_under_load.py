"""Worker processes that are replaced, killed, added and removed while clients ask without pause. Counts, not times."""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

from tests.support.command import Process, Starter
from tests.support.load import Load

KEPT, FRESH = 6, 6


def serving(start: Starter, workers: int, *arguments: str) -> Process:
    process = start("apps:pid", "--workers", str(workers), "--no-access-log", *arguments)
    for _ in range(workers - 1):
        process.wait_for("listening")
    return process


def load_of(process: Process) -> Load:
    return Load(("127.0.0.1", process.port), KEPT, FRESH)


def late(client: HTTPConnection) -> HTTPResponse:
    client.request("GET", "/late")
    return client.getresponse()


@pytest.mark.parametrize("loop", ["trio", "asyncio", "uvloop"])
def test_no_request_fails_while_all_are_replaced_again_and_again(start: Starter, loop: str) -> None:
    process = serving(start, 2, "--loop", loop)
    with load_of(process).running() as load:
        for _ in range(3):
            load.wait_for_more(200)
            process.signal(signal.SIGHUP)
            process.wait_for("workers replaced")
        load.wait_for_more(200)
    assert load.failures == {}
    # both of each generation have answered
    assert len(load.answers) == 8
    process.signal()
    assert process.end() == (0, "")


def test_those_that_are_replaced_are_told_that_they_have_time(start: Starter) -> None:
    """SIGHUP comes before SIGTERM, which alone means that somebody waits."""
    process = serving(start, 3)
    process.signal(signal.SIGTTOU)
    process.wait_for("worker ended")
    process.signal(signal.SIGHUP)
    process.wait_for("workers replaced")
    process.signal()
    assert process.end() == (0, "")
    assert Counter(line["signal"] for line in process.events("draining")) == {"SIGHUP": 3, "SIGTERM": 2}


def test_a_stop_does_not_wait_as_long_for_them_as_a_reload(start: Starter) -> None:
    """An idle client of a process that is being replaced is kept for 1.5 s after the stop, and would be for 4.5 s
    without it: the process ends before its replacement, which has a response of 3 s to finish."""
    process = serving(start, 2)
    replaced = {line["pid"] for line in process.events("listening")}
    with (
        closing(HTTPConnection("127.0.0.1", process.port)) as idle,
        closing(HTTPConnection("127.0.0.1", process.port)) as busy,
    ):
        idle.request("GET", "/")
        old = int(idle.getresponse().read())
        process.signal(signal.SIGHUP)
        process.wait_for_all("draining", "draining", "workers replaced")
        # one that drains accepts what has come until it closes its listeners, just after it says so
        while (new := int((response := late(busy)).read1())) in replaced:
            busy.close()
        process.signal()
        assert process.end() == (0, "")
        assert response.read() == b""
    ended = [line["process"] for line in process.events("stopped")]
    assert ended.index(old) < ended.index(new)


def test_nor_on_a_unix_socket(start: Starter, tmp_path: Path) -> None:
    process = serving(start, 2, "--uds", "socket")
    with Load(str(tmp_path / "socket"), KEPT, FRESH).running() as load:
        load.wait_for_more(200)
        process.signal(signal.SIGHUP)
        process.wait_for("workers replaced")
        load.wait_for_more(200)
    assert load.failures == {}
    process.signal()
    assert process.end() == (0, "")
    assert not (tmp_path / "socket").exists()


def test_nor_while_their_number_changes(start: Starter) -> None:
    process = serving(start, 2)
    with load_of(process).running() as load:
        for number, wanted in ((signal.SIGTTIN, 3), (signal.SIGTTOU, 2), (signal.SIGTTOU, 1), (signal.SIGTTIN, 2)):
            load.wait_for_more(200)
            process.signal(number)
            assert process.wait_for("number of workers")["workers"] == wanted
            process.wait_for("listening" if number == signal.SIGTTIN else "worker ended")
        load.wait_for_more(200)
        # one is left at least
        process.signal(signal.SIGTTOU)
        process.wait_for("number of workers")
        process.signal(signal.SIGTTOU)
        load.wait_for_more(200)
    assert load.failures == {}
    process.signal()
    assert process.end() == (0, "")
    assert len(process.events("number of workers")) == 5


def test_one_that_is_killed_takes_only_its_own_connections_along(start: Starter) -> None:
    process = serving(start, 3)
    with load_of(process).running() as load:
        for _ in range(3):
            load.wait_for_more(300)
            victim = process.events("listening")[-1]
            os.kill(victim["pid"], signal.SIGKILL)
            # what its replacement waits for, which is most of the second that it may take: see test_backoff.py
            assert process.wait_for("worker ended")["replaced_in"] <= 0.4
            # nothing else comes between
            successor = process.next_line()
            while successor["event"] != "listening":
                assert successor["worker"] == victim["worker"]
                successor = process.next_line()
            assert successor["worker"] == victim["worker"]
        load.wait_for_more(300)
    assert process.events("worker ended")[0]["replaced_in"] == 0.1
    # nothing is refused, and a client loses what it had with the dead one: one connection each at most
    assert not [what for what in load.failures if "refused" in what]
    assert load.failures.total() <= 3 * (KEPT + FRESH)
    process.signal()
    assert process.end() == (0, "")


def test_connections_are_accepted_while_the_only_one_that_may_is_replaced(start: Starter) -> None:
    """A dead one is replaced by and by, and the other one accepts what would wait for it."""
    process = serving(start, 2)
    victim, other = (line["pid"] for line in process.events("listening"))
    os.kill(victim, signal.SIGKILL)
    process.wait_for("worker ended")
    answers = [int(process.get().rpartition("\r\n\r\n")[2]) for _ in range(50)]
    assert other in answers
    assert victim not in answers


def test_one_that_hangs_is_replaced_by_a_reload(start: Starter) -> None:
    process = serving(start, 2, "--drain", "1s")
    victim, _ = (line["pid"] for line in process.events("listening"))
    os.kill(victim, signal.SIGSTOP)
    process.signal(signal.SIGHUP)
    process.wait_for("workers replaced")
    assert victim not in {int(process.get().rpartition("\r\n\r\n")[2]) for _ in range(50)}
    assert process.wait_for("workers did not end in time: killed")["pids"] == [victim]
    while process.wait_for("worker ended")["pid"] != victim:
        continue
    process.signal()
    assert process.end() == (0, "")


def test_a_replacement_of_a_dead_one_that_hangs_in_its_startup_is_replaced_by_a_reload(
    start: Starter, tmp_path: Path
) -> None:
    app = tmp_path / "shop.py"
    app.write_text("from apps import pid as app\n")
    process = start("shop:app", "--workers", "2")
    process.wait_for("listening")
    victim, _ = (line["pid"] for line in process.events("listening"))
    app.write_text("from apps import hesitant as app\n")
    os.kill(victim, signal.SIGKILL)
    process.wait_until("starting")
    app.write_text("from apps import pid as app\n# mended\n")
    process.signal(signal.SIGHUP)
    process.wait_for("workers replaced")
    process.signal()
    assert process.end() == (0, "")
    assert len(process.events("stopped before it served")) == 1


def test_a_storm_of_hangups_ends_with_the_last_code(start: Starter, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(f"from apps import answer\nSAID = b'one'\n{APP}")
    process = start("shop:app", "--workers", "2", "--no-access-log")
    with load_of(process).running() as load:
        for number in range(30):
            # at once, because a new process may be reading it
            (tmp_path / "new").write_text(f"from apps import answer\nSAID = b'{number}'\n# {'x' * number}\n{APP}")
            (tmp_path / "new").rename(tmp_path / "shop.py")
            process.signal(signal.SIGHUP)
            load.wait_for_more(20)
        process.wait_for("workers replaced")
        load.wait_for_more(200)
    assert load.failures == {}
    assert process.get().endswith("\r\n\r\n29")
    process.signal()
    assert process.end() == (0, "")


APP = """
async def app(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    await answer(send, SAID)
"""


@pytest.mark.parametrize("broken", ["1 / 0\n", "import os\nos._exit(3)\n", "app = 5\n"])
def test_new_code_that_does_not_start_leaves_the_old_ones(start: Starter, tmp_path: Path, broken: str) -> None:
    (tmp_path / "shop.py").write_text("from apps import pid as app\n")
    process = start("shop:app", "--workers", "2", "--no-access-log")
    process.wait_for("listening")
    old = {line["pid"] for line in process.events("listening")}
    with load_of(process).running() as load:
        (tmp_path / "shop.py").write_text(broken)
        process.signal(signal.SIGHUP)
        failed = process.wait_for("workers not replaced: the new one did not start, the others stay")
        assert failed["level"] == "error"
        load.wait_for_more(200)
        assert {int(pid) for pid in load.answers} == old
        # and it can be mended
        (tmp_path / "shop.py").write_text("from apps import pid as app\n# mended\n")
        process.signal(signal.SIGHUP)
        process.wait_for("workers replaced")
        load.wait_for_more(200)
    assert load.failures == {}
    assert len({int(pid) for pid in load.answers} - old) == 2
    process.signal()
    assert process.end()[0] == 0
