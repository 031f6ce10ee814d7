"""`deadlined health`: a probe that is quick, bounded, and says in a line why it fails."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deadlined import health
from tests.support.command import COMMAND, Starter, environment, run
from tests.support.invoked import invoke

READY = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nready\n"
PROBLEM = (
    b'HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\n\r\n{"detail": "draining: wait"}'
)


@contextmanager
def answering(listener: socket.socket, answer: bytes, *, stays: bool = False) -> Iterator[list[bytes]]:
    """Answer each request on `listener`, and give the requests. `stays`: the connection is not closed."""
    requests: list[bytes] = []
    kept: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                client = listener.accept()[0]
            except OSError:
                return
            requests.append(client.recv(1000))
            client.sendall(answer)
            kept.append(client)
            if not stays:
                client.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield requests
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for one in (listener, *kept):
            one.close()


def tcp() -> tuple[socket.socket, str]:
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, f"127.0.0.1:{listener.getsockname()[1]}"


def unix(path: Path) -> tuple[socket.socket, str]:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener, f"unix:{path}"


@pytest.fixture(autouse=True)
def no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEADLINED_ADMIN", raising=False)


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """Wait for the threads of probes that were given up, which hold a connection."""
    yield
    for thread in threading.enumerate():
        if thread.name == "deadlined health":
            thread.join()


@pytest.mark.parametrize("form", ["{}", "http://{}", "http://{}/", "http://{}/readyz", "http://{}/other"])
def test_a_service_that_is_ready(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    listener, address = tcp()
    with answering(listener, READY) as requests:
        assert health.main([form.format(address)]) == 0
    assert capsys.readouterr() == ("ready\n", "")
    path = b"/other" if form.endswith("other") else b"/readyz"
    assert requests[0].startswith(b"GET %b HTTP/1.1\r\n" % path)


def test_live_asks_another_path() -> None:
    listener, address = tcp()
    with answering(listener, READY) as requests:
        assert health.main(["--live", address]) == 0
    assert requests[0].startswith(b"GET /livez ")


def test_a_unix_socket(tmp_path: Path) -> None:
    listener, address = unix(tmp_path / "admin.sock")
    with answering(listener, READY):
        assert health.main([address]) == 0


@pytest.mark.parametrize("host", ["0.0.0.0", ""], ids=["any", "empty"])
def test_the_address_of_the_server_comes_from_the_environment(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listener, address = tcp()
    monkeypatch.setenv("DEADLINED_ADMIN", f"{host}:{address.partition(':')[2]}")
    with answering(listener, READY):
        assert health.main([]) == 0


def test_the_argument_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEADLINED_ADMIN", "127.0.0.1:1")
    listener, address = tcp()
    with answering(listener, READY):
        assert health.main([address]) == 0


@pytest.mark.parametrize("status", [400, 404])
def test_another_listener_may_have_been_asked(status: int, capsys: pytest.CaptureFixture[str]) -> None:
    listener, address = tcp()
    with answering(listener, b"HTTP/1.1 %d No\r\n\r\nthis port speaks TLS: use https://" % status):
        assert health.main([address]) == 1
    why = f"{status} this port speaks TLS: use https://; is {address} the admin listener?"
    assert capsys.readouterr() == ("", f"deadlined health: {why}\n")


def test_a_service_that_is_not_ready_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    listener, address = tcp()
    with answering(listener, PROBLEM):
        assert health.main([address]) == 1
    assert capsys.readouterr() == ("", "deadlined health: 503 draining: wait\n")


@pytest.mark.parametrize(
    "answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", b"\0"]
)
def test_an_answer_that_is_none_is_a_failure(answer: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    listener, address = tcp()
    with answering(listener, answer):
        assert health.main([address]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nre"], ids=["silent", "half"])
def test_one_that_does_not_answer_in_time_is_a_failure(answer: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    listener, address = tcp()
    with answering(listener, answer, stays=True):
        assert health.main([address, "--timeout", "0.05"]) == 1
    assert "no answer in time" in capsys.readouterr().err


def refuse_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that has as many processes and threads as it may have."""

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)


@pytest.mark.parametrize("kind", ["tcp", "unix"])
@pytest.mark.parametrize(("answer", "code"), [(READY, 0), (b"", 1)], ids=["ready", "silent"])
def test_it_asks_where_there_can_be_no_more_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, answer: bytes, code: int
) -> None:
    listener, address = tcp() if kind == "tcp" else unix(tmp_path / "admin.sock")
    with answering(listener, answer, stays=True):
        refuse_threads(monkeypatch)
        assert health.main([address, "--timeout", "0.05" if code else "60"]) == code


def test_a_name_that_is_not_found_in_time_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    may_end = threading.Event()
    ended: list[bool] = []

    def look_up(*_: object) -> object:
        # no handler of a signal runs meanwhile, as in the system's function
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        ended.append(may_end.wait(20.0))
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    try:
        assert health.main(["name.invalid:1", "--timeout", "0.05"]) == 1
        assert ended == []
    finally:
        may_end.set()
    assert "no answer in time" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "no address"),
        (["127.0.0.1:1"], "refused"),
        (["unix:/no/such/socket"], "No such file"),
        (["https://127.0.0.1:1"], "plain HTTP"),
        (["127.0.0.1"], "write HOST:PORT"),
        (["9000"], "write HOST:PORT, [IPV6]:PORT or unix:PATH"),
        (["127.0.0.1:99999"], "99999"),
        (["[::1"], "::1"),
        (["unix:" + "x" * 200], "path too long"),
        (["a" * 64 + ":1"], "label"),
        (["127.0.0.1:1/\u00e9"], "ascii"),
    ],
)
def test_what_cannot_be_asked_is_named_in_a_line(
    arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert health.main(arguments) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert word in err


@pytest.mark.parametrize(
    "arguments", [["--timeout", "0"], ["--timeout", "nan"], ["--timeout", "x"], ["--no"], ["a", "b"]]
)
def test_wrong_arguments_exit_with_1_as_well(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        health.main(arguments)
    assert caught.value.code == 1
    assert "usage: deadlined health" in capsys.readouterr().err


def test_the_command_knows_it() -> None:
    assert "Ask a running service" in invoke("--help").stdout
    found = run("health", "--timeout", "1", "127.0.0.1:1")
    assert (found.returncode, "refused" in found.stderr) == (1, True)
    assert "--timeout SECONDS" in invoke("health", "--help").stdout


def test_it_loads_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; before = set(sys.modules); sys.argv = ['deadlined', 'health', '127.0.0.1:1']\n"
        "from deadlined.__main__ import run\n"
        "try:\n    run()\nexcept SystemExit as end:\n"
        "    others = {n for n in set(sys.modules) - before if n.partition('.')[0] not in sys.stdlib_module_names}\n"
        "    print(end.code, *sorted(others), 'asyncio' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert done.stdout == "1 deadlined deadlined.__main__ deadlined.freshness deadlined.health False\n"


@pytest.mark.parametrize(("encoding", "text"), [("ascii", rb"\u043e\u043a"), ("utf-8", rb"\ud800")])
def test_a_line_that_its_stream_has_no_characters_for_is_written_with_escapes(encoding: str, text: bytes) -> None:
    listener, address = tcp()
    body = b'{"detail": "%b"}' % text
    with answering(listener, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)):
        done = subprocess.run(
            [*COMMAND, "health", address],
            capture_output=True,
            env=environment() | {"PYTHONIOENCODING": encoding},
            check=False,
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, text + b"\n", b"")


@pytest.mark.parametrize(("answer", "code"), [(READY, 0), (PROBLEM, 1)], ids=["ready", "not ready"])
def test_a_line_that_cannot_be_written_changes_nothing(answer: bytes, code: int) -> None:
    """On a full disk, and without a reader."""
    listener, address = tcp()
    reader, writer = os.pipe()
    os.close(reader)
    with answering(listener, answer), Path("/dev/full").open("wb") as full, os.fdopen(writer, "wb") as gone:
        for stream in (full, gone):
            done = subprocess.run(
                [*COMMAND, "health", address], stdout=stream, stderr=stream, env=environment(), check=False
            )
            assert done.returncode == code


def test_the_installed_command_is_the_same() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert project["scripts"]["deadlined"] == "deadlined.__main__:run"


def test_a_probe_of_a_real_service(start: Starter) -> None:
    process = start("apps:endless", "--admin", "127.0.0.1:0")
    address = process.events("admin listening")[0]["url"]

    def probe(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [*COMMAND, "health", *arguments],
            capture_output=True,
            text=True,
            env=environment(DEADLINED_ADMIN=address),
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    assert probe() == (0, "ready\n")
    with process.begin():
        process.wait_until_busy()
        process.signal()
        process.wait_for("draining")
        code, said = probe(address)
        assert (code, "draining" in said) == (1, True)
        assert probe("--live") == (0, "alive\n")
        process.signal()
        assert process.end() == (4, "")
