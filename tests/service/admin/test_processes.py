"""The admin listener of real processes: one that serves, and a supervisor with several."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.admin import AdminClient, admin_of, checked_by_promtool
from tests.support.command import (
    APPS,
    PATIENCE,
    Process,
    Starter,
    assert_one_line,
    environment,
    launched,
    read_all,
    run,
)

LOCAL = ("--admin", "127.0.0.1:0")
GET_200 = 'deadlined_requests_total{code="200",method="GET"}'


def until(true: object, what: str = "it") -> None:
    """Wait until `true()` holds."""
    end = time.monotonic() + PATIENCE
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.01)


def exists(pid: int) -> bool:
    """Return True if there is such a process, and it has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def workers(admin: AdminClient) -> dict[int, int]:
    """Return the pids of the worker processes by their numbers."""
    return {worker["worker"]: worker["pid"] for worker in admin.get("/statistics").json["workers"]}


def all_serve(admin: AdminClient) -> bool:
    return admin.get("/readyz").body == b"ready\n"


def with_workers(start: Starter, number: int, *arguments: str) -> tuple[Process, AdminClient]:
    """Start a service whose worker processes all serve."""
    process = start("apps:pid", "--workers", str(number), *(arguments or LOCAL))
    admin = admin_of(process)
    until(lambda: all_serve(admin), "readyz")
    return process, admin


def went_back(before: dict[str, float], after: dict[str, float]) -> set[str]:
    """Return the counters that are smaller, or gone."""
    counted = {name for name in before if re.search(r"_(total|bucket|count|sum)(\{|$)", name)}
    assert len(counted) > 30
    return {name for name in counted if after.get(name, -1.0) < before[name]}


def test_a_process_tells_of_itself_until_its_drain_has_ended(start: Starter) -> None:
    process = start("apps:endless", *LOCAL)
    admin = admin_of(process)
    assert (admin.get("/livez").status, admin.get("/readyz").status) == (200, 200)
    client = process.begin()
    process.wait_until_busy()
    assert admin.metrics()['deadlined_connections_open{phase="handler"}'] == 1
    assert admin.get("/config").json["app"] == "apps:endless"
    assert admin.get("/drain", "POST").json == {"status": "draining"}
    process.wait_for("draining")
    draining = admin.get("/readyz")
    assert (draining.status, admin.get("/livez").status) == (503, 200)
    assert admin.metrics()["deadlined_draining"] == 1
    # again, and as an orchestrator does whose hook has asked for it: nothing is cut short
    assert admin.get("/drain", "POST").status == 202
    process.signal()
    process.wait_for("still draining")
    assert admin.metrics()['deadlined_connections_open{phase="handler"}'] == 1
    process.signal_later()
    with client:
        assert read_all(client) == ""
    assert process.end() == (4, "")
    assert [line["signal"] for line in process.events("draining")] == ["POST /drain"]


def test_a_client_that_is_slow_when_the_drain_ends_does_not_change_the_exit_code(start: Starter) -> None:
    process = start("apps:endless", "--drain", "0s", *LOCAL)
    address = process.events("admin listening")[0]["url"].rpartition("/")[2].split(":")
    with process.begin(), socket.create_connection((address[0], int(address[1]))) as slow:
        process.wait_until_busy()
        slow.sendall(b"GET /livez HTTP/1.1\r\n")
        process.signal()
        assert process.end() == (4, "")


def test_one_that_is_starting_is_alive_and_not_ready(tmp_path: Path) -> None:
    (tmp_path / "apps.py").write_text(APPS)
    path = tmp_path / "admin.sock"
    with launched("serve", "apps:hesitant", "--port", "0", "--admin", f"unix:{path}", cwd=tmp_path) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["url"] == f"unix:{path}"
        admin = AdminClient(f"unix:{path}")
        assert (admin.get("/livez").status, admin.get("/readyz").status) == (200, 503)
        assert admin.get("/metrics").status == 200


def test_worker_processes_are_summed(start: Starter) -> None:
    process, admin = with_workers(start, 3)
    for _ in range(30):
        process.get()
    found = admin.metrics()
    assert found[GET_200] == 30
    assert [found[f'deadlined_worker_up{{worker="{number}"}}'] for number in (1, 2, 3)] == [1, 1, 1]
    assert checked_by_promtool(admin.get("/metrics").body) == ""
    # the process that serves the listener is none of them
    assert set(workers(admin).values()) < set(children(process.pid))
    process.signal()
    assert process.end() == (0, "")


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("number", [1, 2])
def test_on_the_other_event_loops_it_is_the_same(loop: str, number: int, start: Starter) -> None:
    process, admin = with_workers(start, number, *LOCAL, "--loop", loop)
    for _ in range(5):
        process.get()
    found = admin.metrics()
    assert found[GET_200] == 5
    assert sum(value for name, value in found.items() if name.startswith("deadlined_worker_up{")) == number
    assert admin.get("/connections").status == 200
    assert admin.get("/drain", "POST").status == 202
    assert process.end() == (0, "")


def test_a_blocked_event_loop_is_counted(start: Starter, tmp_path: Path) -> None:
    (tmp_path / "blocks.py").write_text(
        "import time\nfrom apps import answer\nasync def app(scope, receive, send):\n"
        "    if scope['type'] != 'http':\n        raise NotImplementedError\n"
        "    time.sleep(0.5)\n    await answer(send, b'late')\n"
    )
    process = start("blocks:app", *LOCAL, "--stall-log", "100ms")
    assert process.get().endswith("late")
    assert admin_of(process).metrics()["deadlined_event_loop_stalls_total"] >= 1


def test_one_that_is_killed_is_replaced_and_what_it_has_counted_stays(start: Starter) -> None:
    process, admin = with_workers(start, 2)
    for _ in range(20):
        process.get()
    before = admin.metrics()
    victim = workers(admin)[1]
    os.kill(victim, signal.SIGKILL)
    process.wait_for("worker ended")
    probes = [admin.get("/readyz")]
    while probes[-1].body != b"ready\n":
        probes.append(admin.get("/readyz"))
    # the other one serves meanwhile
    assert {(one.status, one.body) for one in probes} <= {
        (200, b"ready\n"),
        (200, b"ready: 1 of 2 processes serve\n"),
    }
    after = admin.metrics()
    assert went_back(before, after) == set()
    assert (after[GET_200], after["deadlined_worker_restarts_total"]) == (20, 1)
    assert workers(admin)[1] != victim
    process.signal()
    assert process.end() == (0, "")


def test_one_that_drains_in_order_tells_its_last_counts(start: Starter) -> None:
    process, admin = with_workers(start, 2)
    for _ in range(20):
        process.get()
    # nobody has asked for the counts before
    process.wait_for("listening")
    first, second = (line["pid"] for line in process.events("listening"))
    for pid in (first, second):
        os.kill(pid, signal.SIGHUP)
        assert process.wait_for("worker ended")["pid"] == pid
    until(lambda: all_serve(admin), "readyz")
    found = admin.metrics()
    assert (found[GET_200], found["deadlined_worker_restarts_total"]) == (20, 2)
    process.signal()
    assert process.end() == (0, "")


def test_one_that_hangs_does_not_hold_a_scrape(start: Starter) -> None:
    process, admin = with_workers(start, 2)
    for _ in range(20):
        process.get()
    before = admin.metrics()
    victim = workers(admin)[2]
    os.kill(victim, signal.SIGSTOP)
    for _ in range(3):
        found = admin.metrics()
        assert (found['deadlined_worker_up{worker="1"}'], found['deadlined_worker_up{worker="2"}']) == (1, 0)
        assert went_back(before, found) == set()
    assert admin.get("/connections").status == 200
    os.kill(victim, signal.SIGCONT)
    until(lambda: admin.metrics()['deadlined_worker_up{worker="2"}'] == 1, "an answer")
    process.signal()
    assert process.end() == (0, "")


def test_processes_that_are_killed_while_they_are_asked_break_no_scrape(start: Starter) -> None:
    process, admin = with_workers(start, 2)
    scraped: list[dict[str, float]] = []
    done = threading.Event()

    def scrape() -> None:
        while not done.is_set():
            scraped.append(admin.metrics())

    scraper = threading.Thread(target=scrape)
    scraper.start()
    for _ in range(3):
        process.get()
        for pid in workers(admin).values():
            os.kill(pid, signal.SIGKILL)
            process.wait_for("worker ended")
        until(lambda: all_serve(admin), "readyz")
    done.set()
    scraper.join()
    assert len(scraped) > 3
    for before, after in itertools.pairwise(scraped):
        assert went_back(before, after) == set()
    process.signal()
    assert process.end() == (0, "")


def test_the_admin_process_is_replaced_and_remembers(start: Starter) -> None:
    process, admin = with_workers(start, 2, "--admin", "127.0.0.1:0")
    for _ in range(5):
        process.get()
    before = admin.metrics()
    (victim,) = set(children(process.pid)) - set(workers(admin).values())
    os.kill(victim, signal.SIGKILL)
    process.wait_for("admin process ended")
    # its socket is the supervisor's: who connects meanwhile is answered later
    assert went_back(before, admin.metrics()) == set()
    assert exists(process.pid)
    process.signal()
    assert process.end() == (0, "")


def test_a_drain_of_all_is_begun_by_a_post_and_ends_everything(start: Starter, tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    process, admin = with_workers(start, 2, "--admin", f"unix:{path}")
    pids = children(process.pid)
    assert admin.get("/drain", "POST").json == {"status": "draining"}
    assert process.end() == (0, "")
    assert process.events("stopping the workers")[0]["signal"] == "POST /drain"
    assert not path.exists()
    assert [pid for pid in pids if exists(pid)] == []


def test_a_signal_after_the_post_cuts_nothing_and_the_second_one_does(start: Starter) -> None:
    process = start("apps:endless", "--workers", "2", *LOCAL)
    admin = admin_of(process)
    until(lambda: all_serve(admin), "readyz")
    with process.begin() as client:
        process.wait_until_busy()
        assert admin.get("/drain", "POST").json == {"status": "draining"}
        process.signal()
        process.wait_for("still draining")
        assert admin.metrics()['deadlined_connections_open{phase="handler"}'] == 1
        process.signal_later()
        assert read_all(client) == ""
    assert process.end() == (4, "")


def test_a_service_manager_that_signals_every_process_changes_nothing(start: Starter) -> None:
    process, admin = with_workers(start, 2)
    assert admin.get("/readyz").status == 200
    os.killpg(process.pid, signal.SIGTERM)
    assert process.end() == (0, "")
    assert process.events("admin process ended") == []


def test_the_admin_process_does_not_outlive_its_supervisor(start: Starter) -> None:
    process, _ = with_workers(start, 2)
    pids = children(process.pid)
    assert len(pids) == 3
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: not any(map(exists, pids)), "their end")
    process.end()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--admin", "0.0.0.0:0"], ["0.0.0.0", "--admin-token-file"]),
        (["--admin", "9000"], ["HOST:PORT"]),
        (["--admin", "127.0.0.1:0", "--admin-token-file", "/no/such/file"], ["/no/such/file", "No such file"]),
        (["--admin-token-file", "token"], ["needs --admin"]),
    ],
    ids=["public", "malformed", "no token file", "token alone"],
)
@pytest.mark.parametrize("processes", ["1", "2"])
def test_wrong_arguments_are_one_line(arguments: list[str], words: list[str], processes: str) -> None:
    assert_one_line(run("serve", "--port", "0", "--workers", processes, *arguments), 2, *words)


def test_a_directory_that_does_not_exist_is_named() -> None:
    assert_one_line(run("serve", "--port", "0", "--admin", "unix:/no/such/admin.sock"), 3, "/no/such/admin.sock")


def test_an_application_that_cannot_start_ends_the_listener_as_well(tmp_path: Path) -> None:
    (tmp_path / "apps.py").write_text(APPS)
    for processes in ("1", "2"):
        done = run("serve", "apps:broken", "--port", "0", "--workers", processes, *LOCAL, cwd=tmp_path)
        assert (done.returncode, "no database" in done.stderr) == (1, True)


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize("app", ["apps:none", "apps:broken"], ids=["no such application", "failed startup"])
def test_a_start_that_fails_leaves_no_socket_behind(app: str, processes: str, tmp_path: Path) -> None:
    (tmp_path / "apps.py").write_text(APPS)
    path = tmp_path / "admin.sock"
    done = run("serve", app, "--port", "0", "--workers", processes, "--admin", f"unix:{path}", cwd=tmp_path)
    assert done.returncode != 0
    assert not path.exists()


def test_without_the_option_nothing_is_loaded_for_it(start: Starter, tmp_path: Path) -> None:
    (tmp_path / "modules.py").write_text(
        "import sys\nfrom apps import answer\nasync def app(scope, receive, send):\n"
        "    if scope['type'] != 'http':\n        raise NotImplementedError\n"
        "    loaded = sys.modules.keys() & {'deadlined.service.admin', 'prometheus_client'}\n"
        "    await answer(send, ' '.join(sorted(loaded)).encode())\n"
    )
    without, with_ = start("modules:app"), start("modules:app", *LOCAL)
    assert without.get().rpartition("\r\n\r\n")[2] == ""
    assert with_.get().rpartition("\r\n\r\n")[2] == "deadlined.service.admin prometheus_client"


def test_the_library_does_not_load_it() -> None:
    code = "import sys, deadlined, deadlined.http; print({'msgspec', 'prometheus_client'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert done.stdout == "set()\n"
