"""The benchmarks of servers: their clients notice what is wrong, and a quick run measures real servers.

No figure is judged here. wrk and a C compiler are needed. Without them the tests that use them are skipped, unless
DEADLINED_REQUIRE_TOOLS=1: then they fail.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("rich", reason="the load test's extra is not installed: pip install .[bench]")

from loadtest.bench import builds, client, crowd, processes, runner, web_servers
from loadtest.bench.client import Requests, echoed
from loadtest.bench.contest import Benchmark, ContestantError
from loadtest.bench.web_servers import CASES, MAIN, Case
from loadtest.servers import ToolMissingError, Usage, deadlined_command, on_core, running

ECHO, WEB, DUEL, IDLE, PROXIED, CHURN = map(runner.load, ("echo", "http", "duel", "idle", "proxied", "churn"))
REQUIRED = os.environ.get("DEADLINED_REQUIRE_TOOLS") == "1"

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the clients poll with epoll, CPU time is read in /proc"
)

MESSAGE = 64

Reply = Callable[[list[bytes]], list[bytes] | None]


def need(program: str) -> None:
    if shutil.which(program) is None:
        missing = f"{program} is not installed"
        if REQUIRED:
            pytest.fail(missing)
        pytest.skip(missing)


def receive(connection: socket.socket) -> bytes:
    """One message; less at the end of the stream."""
    try:
        return connection.recv(MESSAGE, socket.MSG_WAITALL)
    except ConnectionError:
        return b""


@contextmanager
def answering(reply: Reply, connections: int = 1) -> Iterator[int]:
    """The port of a server that reads a message of each connection and sends what `reply` makes of them, again and
    again; None closes."""

    def serve() -> None:
        clients = [listening.accept()[0] for _ in range(connections)]
        try:
            while all(messages := [receive(connection) for connection in clients]):
                replies = reply(messages)
                if replies is None:
                    break
                for connection, data in zip(clients, replies, strict=True):
                    connection.sendall(data)
        except ConnectionError:
            return  # the client has seen enough
        finally:
            for connection in clients:
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            thread.join()


def exchange(reply: Reply, connections: int = 1, pause: float = 0.0) -> Requests:
    need("cc")
    with answering(reply, connections) as port:
        return client.exchange(port, os.getpid(), connections, 0.0, 0.1, pause)


def altered(messages: list[bytes]) -> list[bytes]:
    return [message[:-1] + bytes([message[-1] ^ 1]) for message in messages]


@pytest.mark.timed
def test_the_echo_client_counts_what_comes_back_and_the_servers_cpu_time() -> None:
    found = exchange(list, connections=3)
    assert found.number > 0
    assert found.seconds >= 0.1
    assert found.cpu > 0


@pytest.mark.timed
def test_the_echo_client_pauses_between_an_answer_and_the_next_message() -> None:
    found = exchange(list, pause=0.01)
    assert 0 < found.number <= found.seconds / 0.01 + 1


@pytest.mark.timed
def test_the_echo_client_takes_a_message_that_comes_in_pieces() -> None:
    need("cc")

    def in_pieces(listening: socket.socket) -> None:
        with listening.accept()[0] as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while message := receive(connection):
                try:
                    for start in range(0, MESSAGE, 20):
                        connection.sendall(message[start : start + 20])
                except ConnectionError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=in_pieces, args=(listening,))
        thread.start()
        found = client.exchange(listening.getsockname()[1], os.getpid(), 1, 0.0, 0.1, 0.0)
        thread.join()
    assert found.number > 0


@pytest.mark.timed
def test_the_echo_client_notices_a_single_wrong_bit() -> None:
    with pytest.raises(ContestantError, match="other bytes than it was sent"):
        exchange(altered)


@pytest.mark.timed
def test_the_echo_client_notices_answers_of_another_connection() -> None:
    with pytest.raises(ContestantError, match="other bytes than it was sent"):
        exchange(lambda messages: messages[::-1], connections=2)


@pytest.mark.timed
def test_the_echo_client_notices_a_message_that_is_sent_back_twice() -> None:
    with pytest.raises(ContestantError, match=r"more than it was sent|other bytes"):
        exchange(lambda messages: [message * 2 for message in messages])


@pytest.mark.timed
def test_the_echo_client_notices_a_server_that_closes() -> None:
    with pytest.raises(ContestantError, match="the server closed the connection"):
        exchange(lambda messages: None)


def test_the_echo_client_says_that_nobody_listens() -> None:
    need("cc")
    with pytest.raises(ContestantError, match="cannot connect to port"):
        client.exchange(web_servers.free_port(), os.getpid(), 1, 0.0, 0.1, 0.0)


def test_a_missing_compiler_is_a_missing_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissingError, match=r"cc is not installed .*gcc"):
        client.compiled(directory=tmp_path)


def test_an_edited_client_is_compiled_again(tmp_path: Path) -> None:
    need("cc")
    source = tmp_path / "probe.c"
    source.write_text("int main(void) { return 3; }\n")
    first = client.compiled(source, tmp_path)
    assert client.compiled(source, tmp_path) == first
    source.write_text("int main(void) { return 4; }\n")
    second = client.compiled(source, tmp_path)
    codes = [subprocess.run([path], check=False).returncode for path in (first, second)]
    assert codes == [3, 4]


def test_the_compiler_is_quoted_when_it_fails(tmp_path: Path) -> None:
    need("cc")
    source = tmp_path / "wrong.c"
    source.write_text("int main(void) { return nothing; }\n")
    with pytest.raises(ContestantError, match="nothing"):
        client.compiled(source, tmp_path)


WRK = """\
Running 3s test @ http://127.0.0.1:8000/
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     5.05ms    1.52ms  40.11ms   97.48%
    Req/Sec    12.83k   728.41    13.70k    87.10%
{done}{trouble}
Requests/sec:  12784.10
Transfer/sec:      1.59MB
"""
DONE = "  39567 requests in 3.10s, 4.91MB read\n"


def test_requests_and_seconds_are_read_from_wrk() -> None:
    assert Requests.parse(WRK.format(done=DONE, trouble="")) == Requests(39_567, 3.1)


@pytest.mark.parametrize(
    ("said", "seconds"), [("500.00ms", 0.5), ("1.00s", 1.0), ("2.00m", 120.0)], ids=["ms", "s", "m"]
)
def test_the_time_of_wrk_has_a_unit(said: str, seconds: float) -> None:
    done = f"  10 requests in {said}, 1.00KB read\n"
    assert Requests.parse(WRK.format(done=done, trouble="")).seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    "trouble",
    ["  Non-2xx or 3xx responses: 12\n", "  Socket errors: connect 0, read 7, write 0, timeout 0\n"],
    ids=["status", "socket"],
)
def test_trouble_seen_by_wrk_is_no_figure(trouble: str) -> None:
    with pytest.raises(ContestantError, match=trouble.strip()):
        Requests.parse(WRK.format(done=DONE, trouble=trouble))


@pytest.mark.parametrize("done", ["", "  0 requests in 3.10s, 0.00B read\n"], ids=["nothing said", "none"])
def test_no_request_is_no_figure(done: str) -> None:
    with pytest.raises(ContestantError, match="counted nothing"):
        Requests.parse(WRK.format(done=done, trouble=""))


def test_nothing_is_no_rate() -> None:
    with pytest.raises(ContestantError, match=r"nothing was answered in 3\.1 s"):
        Requests(0, 3.1)


def test_wrk_notices_a_server_that_closes_without_an_answer() -> None:
    need("wrk")
    stopping = threading.Event()

    def close_at_once(listening: socket.socket) -> None:
        while not stopping.is_set():
            listening.accept()[0].close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        thread = threading.Thread(target=close_at_once, args=(listening,))
        thread.start()
        try:
            with pytest.raises(ContestantError, match=r"Socket errors|counted nothing"):
                client.requested(f"http://127.0.0.1:{port}/", 1, 1)
        finally:
            stopping.set()
            socket.create_connection(("127.0.0.1", port)).close()
            thread.join()


def test_wrk_says_that_nobody_listens() -> None:
    need("wrk")
    with pytest.raises(ContestantError, match="unable to connect"):
        client.requested(f"http://127.0.0.1:{web_servers.free_port()}/", 1, 1)


def test_a_server_that_answers_another_page_is_not_measured() -> None:
    command = "deadlined serve loadtest.apps:hello --host 127.0.0.1 --port 0 --no-access-log"
    wrong, asked = web_servers.Entry("wrong", command), Case(path="/json")
    with pytest.raises(ContestantError, match=r"/json answers 13 bytes"), web_servers.serving(wrong, asked):
        pytest.fail("it was served")


NONSENSE = """
import socket
print("alas")
with socket.create_server(("127.0.0.1", 0)) as listening:
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    with listening.accept()[0] as connection:
        connection.recv(4096)
        connection.sendall(b"nonsense")
"""


def test_a_server_that_answers_no_http_is_told_with_its_output() -> None:
    with (
        pytest.raises(ContestantError, match="nonsense\nalas"),
        web_servers.answering(Case(), [sys.executable, "-c", NONSENSE]),
    ):
        pytest.fail("it was served")


@pytest.mark.parametrize(("limit", "connections"), [(100_000, 15_000), (1_600, 1_000), (800, 200)])
def test_as_many_connections_are_opened_as_there_are_descriptors_for(
    limit: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowd, "raise_file_limit", lambda wanted: min(wanted, limit))
    assert crowd.allowed(15_000) == connections


@pytest.mark.parametrize("limit", [799, 600, 400])
def test_too_few_descriptors_are_no_figure(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "raise_file_limit", lambda wanted: min(wanted, limit))
    with pytest.raises(RuntimeError, match=f"{limit} descriptors are too few for 200 connections"):
        IDLE.measure("deadlined h11", "idle")
    with pytest.raises(RuntimeError, match=f"{limit} descriptors are too few for 200 connections"):
        CHURN.measure("deadlined", "steady")


@pytest.mark.parametrize("name", web_servers.ENTRIES)
def test_the_allocator_is_told_the_same_for_all_or_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    told = builds.surroundings(name, neutral=True)
    assert {name: told[name] for name in told if name.startswith("MALLOC_")} == builds.KEEP_MEMORY
    assert not [name for name in builds.surroundings(name, neutral=False) if name.startswith("MALLOC_")]


def test_each_case_is_for_some_server_and_each_server_for_some_case() -> None:
    pairs = {(name, case) for name, entry in web_servers.ENTRIES.items() for case in CASES
             if entry.refuses(CASES[case]) is None}  # fmt: skip
    assert {name for name, _ in pairs} == set(web_servers.ENTRIES)
    assert {case for _, case in pairs} == set(CASES)
    assert ("Go net/http", "Starlette JSON") not in pairs
    assert ("deadlined h11", "hello, TLS") in pairs


@pytest.mark.parametrize("name", [name for name in web_servers.ENTRIES if not name.startswith("Go")])
def test_each_command_is_complete(name: str) -> None:
    command = web_servers.ENTRIES[name].start(Case())
    assert command[:2] == [sys.executable, "-m"]
    assert "loadtest.apps:web" in command
    assert not [word for word in command if "@" in word]


@pytest.mark.parametrize(("case", "program"), [("hello, TLS", "openssl"), ("websocket, 16 B", "cc"), ("hello", None)])
def test_a_case_whose_program_is_missing_is_left_out_with_the_reason(
    case: str, program: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert WEB.skips("deadlined httptools", case) == (program and f"{program} is not installed")


def test_every_case_asks_for_what_is_checked_before() -> None:
    uploads = {case.path for case in CASES.values() if case.script}
    assert uploads == {"/upload"}
    for case in CASES.values():
        assert case.path in {*web_servers.ANSWERS[case.app], *uploads} or case.speaks == "websocket"
        assert not case.script or (client.SOURCES / case.script).exists()


def test_a_process_is_on_its_core_from_the_start_and_its_starter_is_not() -> None:
    before = os.sched_getaffinity(0)
    core = max(before)
    with on_core(core):
        command = [sys.executable, "-c", "import os; print(*os.sched_getaffinity(0))"]
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert said.split() == [str(core)]
    assert os.sched_getaffinity(0) == before


def test_the_cores_are_those_that_this_process_may_use() -> None:
    core = max(os.sched_getaffinity(0))
    with on_core(core):
        code = "from loadtest.bench import processes; print(processes.SERVER_CORE, processes.CLIENT_CORE)"
        said = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert said.split() == [str(core)] * 2
    assert {processes.SERVER_CORE, processes.CLIENT_CORE} <= os.sched_getaffinity(0)
    assert processes.SERVER_CORE != processes.CLIENT_CORE or len(os.sched_getaffinity(0)) == 1


BUSY = """
import threading, time
done, end = threading.Barrier(2), threading.Event()
def burn():
    while time.thread_time() < 0.1: pass
    done.wait()
def stay():
    burn(); end.wait()
thread = threading.Thread(target=stay)
thread.start(); burn(); print("burnt", flush=True); input(); end.set()
"""


def test_the_use_of_threads_and_children_is_counted() -> None:
    before = Usage.of(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "burnt\n"
        with_child = Usage.of(os.getpid())
        alone = Usage.of(child.pid)
        child.communicate("\n")
    # a tick may be missing: the kernel counts a running thread when it is interrupted
    assert alone.cpu >= 0.18
    assert with_child.cpu - before.cpu >= 0.18
    assert with_child.resident > alone.resident > 0
    assert alone.switches > 0


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("deadlined httptools", "hello; Go net/http"),
        ("deadlined h11", "hello; uvicorn h11 asyncio"),
        ("deadlined httptools uvloop", "Starlette JSON; uvicorn httptools uvloop"),
        ("deadlined httptools", "hello, TLS; uvicorn httptools uvloop"),
        ("deadlined httptools uvloop", "websocket, 64 KiB; uvicorn websockets uvloop"),
    ],
)
@pytest.mark.timed
def test_a_quick_duel_is_between_real_servers(ours: str, theirs: str) -> None:
    need("wrk")
    quick = DUEL.quick()
    if (why := quick.skips(ours, theirs)) is not None:
        pytest.skip(why.partition(" is missing: ")[2])
    found = quick.measure(ours, theirs)
    assert found["requests"] > 0
    assert 0 < found["busy"] <= 110
    assert quick.saturates(theirs)


def test_a_quick_duel_is_with_everybody() -> None:
    assert DUEL.quick().cases() == [case for case in DUEL.cases() if case.startswith(f"{MAIN}; ")]


def test_a_duel_with_one_client_saturates_no_server() -> None:
    assert not DUEL.saturates("Starlette JSON, one connection; granian st")


def test_a_duel_is_with_a_rival_in_a_case_for_both() -> None:
    need("wrk")
    assert DUEL.skips("deadlined httptools", f"{MAIN}; hypercorn trio") == "compared with other servers"
    assert DUEL.skips("deadlined h11", f"{MAIN}; granian st") == "compared with other servers"
    assert "Starlette JSON; Go net/http" not in DUEL.cases()
    assert "websocket, 16 B; uvicorn httptools uvloop" not in DUEL.cases()


@pytest.mark.parametrize("app", [app for app in web_servers.ANSWERS if app.startswith("loadtest.peers.")])
@pytest.mark.timed
def test_the_applications_of_frameworks_answer_on_each_server(app: str) -> None:
    need("wrk")
    asked = Case(app, next(iter(web_servers.ANSWERS[app])), connections=4)
    for name in ("deadlined httptools", "deadlined httptools uvloop", "uvicorn httptools uvloop", "granian st"):
        found = web_servers.ENTRIES[name]
        if (why := found.contestant().missing) is not None and not name.startswith(builds.INSTALLED):
            pytest.skip(why)
        with web_servers.serving(found, asked) as server:
            done = web_servers.load(server, asked, 1)
            assert done.number > 0
            assert 0 < done.p50 <= done.p99
            assert done.wakes > 0
            for path in web_servers.ANSWERS[app]:
                web_servers.ask(server.port, Case(app, path))


LOGGED = [name for name, entry in web_servers.ENTRIES.items() if entry.access_log]


@pytest.mark.parametrize("name", LOGGED)
def test_a_server_writes_a_line_for_each_request_where_it_is_asked_to(name: str) -> None:
    found = web_servers.ENTRIES[name]
    if (why := found.contestant().missing) is not None and not name.startswith(builds.INSTALLED):
        pytest.skip(why)
    asked = Case(path="/json", access_log=True)
    with web_servers.serving(found, asked) as server:
        for _ in range(100):
            web_servers.ask(server.port, asked)
    # 20 bytes are fewer than a method, a path and a status
    assert server.dropped > 100 * 20
    assert len(server.records) + len(server.output) < 100


def test_a_server_that_writes_no_access_log_is_left_out_with_the_reason() -> None:
    why = WEB.skips("fastpysgi", "Starlette JSON, access log")
    assert why == "fastpysgi is not measured with an access log"


QUICK = [
    (ECHO, "deadlined (pure), both deadlines moved"),
    (ECHO, "trio, fail_after per operation"),
    (ECHO, "trio, one scope moved"),
    (ECHO, "uvloop, timeout per read"),
    (ECHO, "Go, both deadlines moved"),
    (WEB, "deadlined (pure) h11"),
    (WEB, "uvicorn h11 asyncio"),
    (WEB, "socketify"),
    (WEB, "Go net/http"),
    (IDLE, "deadlined (pure) h11"),
    (IDLE, "deadlined httptools uvloop"),
    (IDLE, "uvicorn h11 asyncio"),
    (IDLE, "uvicorn websockets uvloop"),
    (PROXIED, "deadlined proxy"),
    (PROXIED, "deadlined serve"),
    (PROXIED, "nginx"),
]


@pytest.mark.parametrize(
    ("benchmark", "contestant"), QUICK, ids=[f"{benchmark.name}: {name}" for benchmark, name in QUICK]
)
@pytest.mark.timed
def test_a_quick_run_measures_a_real_server(benchmark: Benchmark, contestant: str) -> None:
    need({"echo": "cc", "http": "wrk", "proxied": "nginx"}.get(benchmark.name, "openssl"))
    missing = {found.name: found.missing for found in benchmark.contestants()}
    # where nothing is compiled ours is measured all the same
    if missing[contestant] is not None and not contestant.startswith(builds.INSTALLED):
        pytest.skip(missing[contestant] or "")
    quick = benchmark.quick()
    measured = [case for case in quick.cases() if quick.skips(contestant, case) is None]
    assert measured
    for case in measured:
        figures = quick.measure(contestant, case)
        assert set(figures) <= set(benchmark.metrics)
        if benchmark is IDLE:
            assert figures["connections"] == 300
            assert figures["memory"] > 0
        else:
            assert figures["rate"] > 0
            assert figures["cpu"] > 0


def test_only_the_silent_without_tls_are_asked_of_every_server() -> None:
    refused = {
        case: {found.name for found in IDLE.contestants() if IDLE.skips(found.name, case)} for case in IDLE.cases()
    }
    assert refused["idle"] == {"uvicorn websockets uvloop", "granian websockets"}
    assert "Go net/http" in refused["idle, TLS"]
    assert refused["idle websockets"] == refused["idle websockets, compressed"]


@pytest.mark.parametrize("kind", ["text", "binary"])
@pytest.mark.timed
def test_the_client_of_websockets_counts_echoes(kind: str) -> None:
    need("cc")
    with running(deadlined_command("loadtest.apps:echo", "--loop", "asyncio")) as server:
        for size in (16, 200, 65536):
            assert echoed(server.port, 3, (size, kind), 0.05).number > 0


@pytest.mark.timed
def test_the_clients_of_websockets_refuse_what_is_no_websocket() -> None:
    need("cc")
    with running(deadlined_command("loadtest.apps:hello")) as server:
        with (
            crowd.Crowd(server.port, crowd.WEBSOCKET) as silent,
            pytest.raises(RuntimeError, match=r"something else is answered|closed before it"),
        ):
            silent.open(1)
        with pytest.raises(ContestantError, match="no websocket: HTTP"):
            echoed(server.port, 1, (16, "text"), 0.05)


@pytest.mark.parametrize(
    "echo", [b"\x81\x0307=", b"\x82\x0307>", b"\x81\x0307>7"], ids=["altered", "other-kind", "too-much"]
)
@pytest.mark.timed
def test_the_client_of_websockets_notices_a_wrong_echo(echo: bytes) -> None:
    need("cc")

    def serve(listening: socket.socket) -> None:
        with listening.accept()[0] as connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 101 x\r\n\r\n")
            connection.recv(4096)
            connection.sendall(echo)
            connection.recv(4096)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        with pytest.raises(ContestantError, match="something else than the echo"):
            echoed(listening.getsockname()[1], 1, (3, "text"), 0.5)
        thread.join()


@pytest.mark.parametrize("benchmark", [ECHO, WEB, DUEL, IDLE, PROXIED], ids=lambda benchmark: benchmark.name)
def test_every_target_names_contestants_and_cases_that_there_are(benchmark: Benchmark) -> None:
    need({"echo": "cc", "http": "wrk", "duel": "wrk", "proxied": "nginx"}.get(benchmark.name, "true"))
    names = {contestant.name for contestant in benchmark.contestants()} | {""}
    assert benchmark.targets
    for target in benchmark.targets:
        assert {target.ours, target.theirs} <= names
        assert target.case in benchmark.cases()
        assert target.metric in benchmark.metrics
