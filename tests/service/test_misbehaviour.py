"""Applications that misbehave as processes do, under `deadlined serve` on each event loop: the next client is served,
and the process ends as it should."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from deadlined.runtime import LOOPS
from tests.support.command import (
    COMMAND,
    PATIENCE,
    Process,
    Starter,
    assert_error,
    assert_one_line,
    launched,
    read_all,
    rest_of,
    run,
    wait_until_starting,
)

ASYNCIO = [name for name in LOOPS if name != "trio"]

BAD = """
import asyncio, atexit, concurrent.futures, contextlib, multiprocessing, os, resource, socket, sys, threading, time
import trio

async def sleep(seconds):
    await (trio.sleep(seconds) if trio.lowlevel.in_trio_task() else asyncio.sleep(seconds))

async def answer(send, body=b"fine"):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})

async def fine(send):
    await answer(send)

async def leave_a_thread(send):
    threading.Thread(target=threading.Event().wait, name="left over").start()
    await answer(send)

async def leave_an_executor(send):
    executor = concurrent.futures.ThreadPoolExecutor(1, "executor")
    # its thread is a daemon, as the one that starts it
    use = threading.Thread(target=executor.submit, args=(threading.Event().wait,), daemon=True)
    use.start()
    use.join()
    await answer(send)

async def stay():
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)

async def leave_a_task(send):
    KEPT.append(asyncio.create_task(stay(), name="left task"))
    await answer(send)

async def leave_many_tasks(send):
    KEPT.extend(asyncio.create_task(stay(), name=f"left\\n{letter}") for letter in 2 * "abcdefghijkl")
    await answer(send)

KEPT = []

async def leave_a_process(send):
    CHILDREN.Process(target=outlive, name="left child").start()
    await answer(send)

async def block_at_exit(send):
    await leave_a_process(send)
    # before Python waits for that
    atexit.register(block_now)

async def leave_a_thread_and_wait(send):
    threading.Thread(target=threading.Event().wait, name="left over").start()
    await endless(send)

async def pid(send):
    await answer(send, b"%d" % os.getpid())

async def busy(send):
    print("busy", file=sys.stderr, flush=True)
    await sleep(0.5)
    await answer(send)

async def endless(send):
    print("busy", file=sys.stderr, flush=True)
    await sleep(3600)

async def endure(send):
    print("busy", file=sys.stderr, flush=True)
    with trio.CancelScope(shield=True):
        await trio.sleep(3600)

def block_now():
    time.sleep(20)

async def block(send):
    print("busy", file=sys.stderr, flush=True)
    # in steps: a signal that comes just before the system call is seen at its end
    for _ in range(600):
        time.sleep(0.1)

# children

async def fork_and_return(send):
    os.fork()
    await answer(send)

async def fork_and_wait(send):
    if not os.fork():
        await sleep(0.01)
    await answer(send)

async def fork_and_exit(send):
    if not os.fork():
        sys.exit()
    await answer(send)

async def fork_in_a_thread(send):
    def fork():
        pid = os.fork()
        if not pid:
            os._exit(7)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    run = trio.to_thread.run_sync if trio.lowlevel.in_trio_task() else asyncio.to_thread
    await answer(send, b"%d" % await run(fork))

CHILDREN = multiprocessing.get_context("fork")

async def terminate_a_child(send):
    child = CHILDREN.Process(target=time.sleep, args=(60,), daemon=True)
    child.start()
    child.terminate()
    child.join(10)
    await answer(send, b"%s" % str(child.exitcode).encode())

async def leave_a_child(send):
    CHILDREN.Process(target=time.sleep, args=(60,), daemon=True).start()
    await answer(send)

def outlive():
    # what reads its parent's output must not wait for it
    for name in os.listdir("/proc/self/fd"):
        if "pipe:" in os.path.realpath(f"/proc/self/fd/{name}"):
            os.close(int(name))
    time.sleep(60)

# descriptors that are not the application's

def connections():
    for name in os.listdir("/proc/self/fd"):
        try:
            found = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        with found:
            inet = found.family == socket.AF_INET
            if inet and not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                yield int(name)

async def close_connections(send):
    for fd in list(connections()):
        os.close(fd)
    await answer(send)

async def replace_connections(send):
    for fd in list(connections()):
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, fd)
        os.close(null)
    await answer(send)

async def close_the_listener(send):
    for name in os.listdir("/proc/self/fd"):
        try:
            found = socket.socket(fileno=int(name))
            listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except OSError:
            continue
        if listens and found.family == socket.AF_INET:
            found.close()
        else:
            found.detach()
    await answer(send)

async def use_up_descriptors(send):
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    taken = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        print("busy", file=sys.stderr, flush=True)
    await sleep(0.3)
    for fd in taken:
        os.close(fd)
    await answer(send)

# the process

async def allow_no_threads(send):
    def refuse(_):
        raise RuntimeError("can't start new thread")
    threading.Thread.start = refuse
    await answer(send)

async def be_process_1(send):
    os.getpid = lambda: 1
    await answer(send)

async def exit_in_a_task(send):
    async def leave():
        sys.exit(4)
    global kept
    kept = asyncio.ensure_future(leave())
    await answer(send)

async def app(scope, receive, send):
    if scope["type"] == "http":
        await globals()[scope["path"][1:]](send)
        return
    await receive()
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return
    if os.environ.get("STARTUP") == "hang":
        print("starting", file=sys.stderr, flush=True)
        await sleep(3600)
    if os.environ.get("STARTUP") == "leave a child":
        CHILDREN.Process(target=outlive).start()
    if os.environ.get("STARTUP") == "fork":
        os.fork()
    if os.environ.get("STARTUP") == "exit":
        sys.exit("no database")
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})
"""


UPGRADE = (
    b"GET / HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.fixture(autouse=True)
def module(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(BAD)


def body(process: Process, path: str) -> str:
    """Return the body of a response with status 200, received to the end of the connection."""
    head, _, received = process.get(f"/{path}").partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 "), head
    return received


def assert_ends_well(process: Process, *said: str) -> None:
    """Check that it serves, drains upon a signal, and has said these on stderr."""
    assert [body(process, "fine") for _ in range(3)] == ["fine"] * 3
    process.signal()
    code, err = process.end()
    assert code == 0, err
    assert [line for line in err.splitlines() if not any(text in line for text in said)] == []
    for text in said:
        assert text in err


# children


@pytest.mark.parametrize("loop", LOOPS)
def test_a_child_that_returns_into_the_loop_is_ended_and_answers_nothing(start: Starter, loop: str) -> None:
    process = start("bad:app", "--loop", loop, "--drain", "1s")
    for path in ("fork_and_return", "fork_and_wait", "fork_and_exit"):
        # one answer, not two, and nothing after it
        assert body(process, path) == "fine"
        assert body(process, "fine") == "fine"
    assert_ends_well(process, "a forked child has returned into its parent's event loop")


@pytest.mark.parametrize("loop", LOOPS)
def test_a_child_of_another_thread_runs_undisturbed(start: Starter, loop: str) -> None:
    process = start("bad:app", "--loop", loop)
    assert body(process, "fork_in_a_thread") == "7"
    assert_ends_well(process)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_child_holds_no_connection_and_ends_by_a_signal(start: Starter, loop: str) -> None:
    process = start("bad:app", "--loop", loop)
    assert body(process, "terminate_a_child") == "-15"
    # the child lives, and the connection ends nevertheless
    assert body(process, "leave_a_child") == "fine"
    assert_ends_well(process)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_child_of_the_startup_does_not_hold_the_port(start: Starter, loop: str) -> None:
    killed = start("bad:app", "--loop", loop, STARTUP="leave a child")
    killed.signal(signal.SIGKILL)
    killed.end()
    assert_ends_well(start("bad:app", "--loop", loop, "--port", str(killed.port)))


@pytest.mark.parametrize("loop", LOOPS)
def test_a_child_of_the_startup_that_returns_into_the_loop_is_ended(start: Starter, loop: str) -> None:
    process = start("bad:app", "--loop", loop, "--drain", "1s", STARTUP="fork")
    assert_ends_well(process, "a forked child has returned into its parent's event loop")


# descriptors


@pytest.mark.parametrize("loop", LOOPS)
def test_connections_that_are_closed_by_number_end_alone(start: Starter, loop: str) -> None:
    process = start("bad:app", "--loop", loop, "--drain", "1s")
    for path in ("close_connections", "replace_connections"):
        assert process.get(f"/{path}") == ""
        # until then the number of its descriptor may be the next client's
        process.wait_for("connection")
    assert_ends_well(process)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_that_comes_while_there_are_no_descriptors_waits(start: Starter, loop: str) -> None:
    process = start("bad:app", "--loop", loop)
    with process.begin("/use_up_descriptors") as client:
        process.wait_until_busy()
        assert body(process, "fine") == "fine"
        assert read_all(client).endswith("fine")
    assert_ends_well(process)
    assert any("cannot accept a connection" in line["event"] for line in process.lines)


@pytest.mark.parametrize("loop", LOOPS)
def test_the_first_websocket_needs_no_descriptors(start: Starter, loop: str) -> None:
    process = start("bad:app", "--loop", loop)
    with process.connect() as client, process.begin("/use_up_descriptors") as other:
        process.wait_until_busy()
        client.sendall(UPGRADE)
        assert client.recv(65536).startswith(b"HTTP/1.1 101 ")
        assert read_all(other).endswith("fine")
    assert_ends_well(process)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_listener_that_is_closed_by_number_ends_the_server(start: Starter, loop: str) -> None:
    process = start("bad:app", "--loop", loop)
    assert body(process, "close_the_listener") == "fine"
    # trio's may not notice it by itself
    process.signal()
    assert process.end()[0] in (0, 1, -signal.SIGTERM)


# the process


@pytest.mark.parametrize("loop", LOOPS)
def test_a_process_without_threads_drains(start: Starter, loop: str) -> None:
    process = start("bad:app", "--loop", loop)
    assert body(process, "allow_no_threads") == "fine"
    assert_ends_well(process)


def test_a_process_without_threads_is_ended_when_its_drain_does_not_end(start: Starter) -> None:
    process = start("bad:app", "--drain", "10ms")
    assert body(process, "allow_no_threads") == "fine"
    with process.begin("/block"):
        process.wait_until_busy()
        process.signal()
        assert process.end() == (-signal.SIGALRM, "")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_thread_that_is_left_does_not_hold_the_end_for_the_whole_drain(start: Starter, workers: str) -> None:
    process = start("bad:app", "--drain", "1h", "--workers", workers)
    assert body(process, "leave_a_thread") == "fine"
    process.signal()
    code, err = process.end()
    assert (code, err.count("it has waited for the threads left over")) == (0, 1)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("leave_an_executor", "it has waited for the threads executor_0"),
        ("leave_a_process", "it has waited for the processes left child"),
        ("block_at_exit", "in block_now"),
    ],
)
def test_what_holds_the_end_is_named(start: Starter, path: str, why: str) -> None:
    process = start("bad:app", "--drain", "1h")
    assert body(process, path) == "fine"
    process.signal()
    code, err = process.end()
    assert (code, err.count(why)) == (0, 1)


MANY = ", ".join(rf"2 times left\n{letter} (stay)" for letter in "abcdefghij") + " and 2 more"


@pytest.mark.parametrize("loop", ASYNCIO)
@pytest.mark.parametrize(("path", "named"), [("leave_a_task", "left task (stay)"), ("leave_many_tasks", MANY)])
def test_a_task_that_swallows_its_cancellation_is_named(start: Starter, loop: str, path: str, named: str) -> None:
    process = start("bad:app", "--loop", loop, "--drain", "1h")
    assert body(process, path) == "fine"
    process.signal()
    code, err = process.end()
    assert (code, err.count(f"it has waited for the cancelled tasks {named}\n")) == (0, 1)


def test_the_script_that_runs_the_command_is_not_what_holds_the_end(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("from deadlined.__main__ import run\nrun()\n")
    command = [sys.executable, "script.py", "serve", "--port", "0"]
    with launched("bad:app", "--loop", "trio", "--drain", "10ms", command=command, cwd=tmp_path) as started:
        process = Process(started)
        with process.begin("/endure"):
            process.wait_until_busy()
            process.signal()
            assert process.end() == (1, "deadlined: the process did not end within the drain of 0.01 s; ending it\n")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_nor_does_it_change_the_exit_code_of_a_drain_that_a_second_signal_cuts(start: Starter, workers: str) -> None:
    process = start("bad:app", "--drain", "1h", "--workers", workers)
    with process.begin("/leave_a_thread_and_wait"):
        process.wait_until_busy()
        process.signal()
        process.wait_for("draining")
        process.signal_later()
        code, err = process.end()
    assert (code, err.count("it has waited for the threads left over")) == (4, 1)


def test_process_1_without_threads_is_ended_when_its_drain_does_not_end(start: Starter) -> None:
    """To the kernel it is not process 1, which a signal without a handler would not end."""
    process = start("bad:app", "--drain", "10ms")
    for path in ("allow_no_threads", "be_process_1"):
        assert body(process, path) == "fine"
    with process.begin("/block"):
        process.wait_until_busy()
        process.signal()
        code, err = process.end()
    assert (code, "did not end within the drain" in err) == (1, True)


@pytest.mark.parametrize("loop", ASYNCIO)
def test_a_task_that_exits_ends_the_process_with_a_reason(start: Starter, loop: str) -> None:
    process = start("bad:app", "--loop", loop)
    assert body(process, "exit_in_a_task") == "fine"
    assert process.end() == (4, "")
    (line,) = process.events("a task or a callback has raised SystemExit in the event loop; it ends")
    assert "sys.exit(4)" in line["exception"]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_startup_that_exits_is_an_error(tmp_path: Path, loop: str) -> None:
    completed = run("serve", "bad:app", "--port", "0", "--loop", loop, cwd=tmp_path, STARTUP="exit")
    assert_error(completed, 1, "the application failed to start", "no database")


@pytest.mark.parametrize("loop", LOOPS)
def test_debug_modes_and_warnings_as_errors_change_nothing(start: Starter, loop: str) -> None:
    modes = {"PYTHONASYNCIODEBUG": "1", "PYTHONDEVMODE": "1", "PYTHONWARNINGS": "error"}
    process = start("bad:app", "--loop", loop, "--no-access-log", **modes)
    assert body(process, "busy") == "fine"
    process.wait_until_busy()
    assert_ends_well(process)


def test_a_loop_that_is_not_installed_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "uvloop.py").write_text("raise ImportError('none here')")
    path = f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"
    completed = run("serve", "bad:app", "--loop", "uvloop", cwd=tmp_path, PYTHONPATH=path)
    assert_one_line(completed, 2, "--loop uvloop: uvloop is not installed", "pip install", "--loop asyncio")


# signals


@pytest.mark.parametrize("loop", LOOPS)
def test_ctrl_c_during_the_startup_ends_it_without_a_traceback(tmp_path: Path, loop: str) -> None:
    # its application does not complete its startup
    arguments = ("serve", "bad:app", "--port", "0", "--loop", loop)
    with launched(*arguments, cwd=tmp_path, variables={"STARTUP": "hang"}) as process:
        wait_until_starting(process)
        process.send_signal(signal.SIGINT)
        _, err = rest_of(process)
    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize("loop", LOOPS)
def test_ctrl_c_during_a_request_lets_it_finish_and_a_second_one_cuts(start: Starter, loop: str) -> None:
    process = start("bad:app", "--loop", loop, "--drain", "1h")
    with process.begin("/busy") as finished, process.begin("/endless") as cut:
        process.wait_until_busy()
        process.wait_until_busy()
        process.signal(signal.SIGINT)
        process.wait_for("draining")
        assert read_all(finished).endswith("fine")
        process.signal_later(signal.SIGINT)
        assert read_all(cut) == ""
    assert process.end() == (4, "")
    assert process.events("draining")[0]["signal"] == "SIGINT"


@pytest.mark.parametrize("loop", ASYNCIO)
def test_workers_are_replaced_and_end(start: Starter, loop: str) -> None:
    process = start("bad:app", "--loop", loop, "--workers", "2", "--drain", "1h")
    process.wait_for("listening")
    for number in (signal.SIGKILL, signal.SIGHUP, signal.SIGTERM):
        victim = process.events("listening")[-1]["pid"]
        os.kill(victim, number)
        process.wait_for_all("worker ended", "listening")
        assert process.events("worker ended")[-1]["pid"] == victim
        assert int(body(process, "pid")) != victim
    with process.begin("/endless") as client:
        process.wait_until_busy()
        process.signal()
        process.wait_for("draining")
        process.wait_for("draining")
        process.signal_later()
        assert read_all(client) == ""
    assert process.end() == (4, "")


# output


@pytest.mark.parametrize(("loop", "full"), [(name, True) for name in LOOPS] + [("asyncio", False)])
def test_output_that_cannot_be_written_costs_log_lines_only(tmp_path: Path, loop: str, full: bool) -> None:
    where = tmp_path / "socket"
    output = ">/dev/full 2>&1" if full else ">&- 2>&-"
    command = ["sh", "-c", f'exec "$@" {output}', "sh", *COMMAND, "serve", "bad:app"]
    with launched("--uds", str(where), "--loop", loop, cwd=tmp_path, command=command) as process:
        for _ in range(3):
            assert ask(where).endswith(b"fine")
        process.terminate()
        assert process.wait(PATIENCE) == 0


def ask(where: Path) -> bytes:
    """Ask a server on a unix socket, once it is there."""
    until = time.monotonic() + PATIENCE
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE)
        while True:
            try:
                client.connect(str(where))
                break
            except (FileNotFoundError, ConnectionRefusedError):
                assert time.monotonic() < until, "it does not listen"
                time.sleep(0.02)
        client.sendall(b"GET /fine HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        received = b""
        while data := client.recv(65536):
            received += data
    return received


# logging

SILENCING = """
import logging.config
logging.config.dictConfig({
    "version": 1,
    "handlers": {"err": {"class": "logging.StreamHandler", "stream": "ext://sys.stderr"}},
    "root": {"handlers": ["err"], "level": "INFO"},
})

async def app(scope, receive, send):
    assert scope["type"] == "http"
    raise ValueError("told to everybody")
"""


@pytest.mark.parametrize("loop", LOOPS)
def test_an_application_that_disables_all_loggers_does_not_hide_its_own_failures(
    start: Starter, tmp_path: Path, loop: str
) -> None:
    (tmp_path / "silencing.py").write_text(SILENCING)
    process = start("silencing:app", "--loop", loop)
    assert process.get().startswith("HTTP/1.1 500 ")
    process.signal()
    code, err = process.end()
    assert code == 0
    assert "the application is served without a lifespan" in err
    assert "GET / failed" in err
    assert "ValueError: told to everybody" in err
