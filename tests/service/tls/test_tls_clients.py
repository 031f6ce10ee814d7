"""`deadlined serve` over TLS, asked by curl and by `openssl s_client`."""

from __future__ import annotations

import shutil
import signal
import ssl
import subprocess
from pathlib import Path
from threading import Thread
from typing import Self

import pytest
import trustme

from tests.support.command import PATIENCE, Process, Starter
from tests.support.parsers import PARSERS
from tests.support.revoked import revoked

NAME = "server.example"
ALPN = "ALPN: server accepted http/1.1"

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="the openssl command is not installed")

parsers = pytest.mark.parametrize("http", PARSERS)


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    """Make an authority, and the server's and a client's certificate in the server's directory."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    authority.issue_cert(NAME).private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    authority.issue_cert("client.example").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "client.pem"))
    stranger = trustme.CA().issue_cert("stranger.example")
    stranger.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "stranger.pem"))
    return authority


def serve(start: Starter, *options: str, http: str = "h11") -> Process:
    return start("--certfile", "server.pem", "--http", http, "--log-level", "debug", *options)


def curl(process: Process, directory: Path, *options: str, times: int = 1) -> subprocess.CompletedProcess[str]:
    url = f"https://{NAME}:{process.port}/"
    resolve = f"{NAME}:{process.port}:127.0.0.1"
    urls = [url] * times
    command = ["curl", "-sv", "--cacert", "ca.pem", "--resolve", resolve, "-w", "%{http_code} %{num_connects}\n"]
    outputs = [word for _ in urls for word in ("-o", "/dev/null")]
    return subprocess.run(
        [*command, *options, *outputs, *urls],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@needs_curl
@parsers
@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_curl_asks_twice_over_one_connection(
    http: str, version: str, start: Starter, tmp_path: Path, authority: trustme.CA
) -> None:
    done = curl(serve(start, http=http), tmp_path, "--tls-max", version, times=2)
    assert done.stdout.split("\n")[:2] == ["200 1", "200 0"]
    assert f"SSL connection using TLSv{version}" in done.stderr
    assert ALPN in done.stderr


@needs_curl
@parsers
def test_curl_is_asked_for_a_certificate(http: str, start: Starter, tmp_path: Path, authority: trustme.CA) -> None:
    process = serve(start, "--client-ca", "ca.pem", http=http)
    assert curl(process, tmp_path, "--cert", "client.pem").stdout.startswith("200 ")
    for version in ("1.2", "1.3"):
        without = curl(process, tmp_path, "--tls-max", version)
        stranger = curl(process, tmp_path, "--tls-max", version, "--cert", "stranger.pem")
        assert without.returncode != 0
        assert stranger.returncode != 0
        assert "alert" in without.stderr + stranger.stderr
    assert curl(process, tmp_path, "--cert", "client.pem").stdout.startswith("200 ")
    process.signal()
    process.end()
    said = " ".join(line.get("message", line["event"]) for line in process.lines)
    assert said.count("no TLS with 127.0.0.1:") == 4
    assert said.count("the peer has sent no certificate, and one is required") == 2
    assert said.count("the peer's certificate is not accepted: ") == 2
    reasons = [line["reason"] for line in process.events("connection")]
    assert (reasons.count("protocol_error"), reasons.count("client_closed")) == (4, 2)


@needs_curl
@parsers
def test_curl_may_do_without_a_certificate_where_it_is_optional(
    http: str, start: Starter, tmp_path: Path, authority: trustme.CA
) -> None:
    process = serve(start, "--client-ca", "ca.pem", "--client-certificate", "optional", http=http)
    assert curl(process, tmp_path).stdout.startswith("200 ")
    assert curl(process, tmp_path, "--cert", "client.pem").stdout.startswith("200 ")
    assert curl(process, tmp_path, "--cert", "stranger.pem").returncode != 0


@needs_curl
@pytest.mark.parametrize("which", ["required", "optional"])
def test_a_certificate_that_is_revoked_is_refused_from_the_next_reload_on(
    which: str, start: Starter, tmp_path: Path, authority: trustme.CA
) -> None:
    other = authority.issue_cert("other.example")
    other.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "other.pem"))
    listed = tmp_path / "crl.pem"
    listed.write_bytes(revoked(authority))
    process = serve(start, *("--client-ca", "ca.pem", "--client-crl", "crl.pem", "--client-certificate", which))
    for certificate in ("client.pem", "other.pem"):
        assert curl(process, tmp_path, "--cert", certificate).stdout.startswith("200 ")
    listed.write_bytes(revoked(authority, other))
    process.signal(signal.SIGHUP)
    process.wait_for("reloaded")
    assert curl(process, tmp_path, "--cert", "client.pem").stdout.startswith("200 ")
    assert curl(process, tmp_path, "--cert", "other.pem").returncode != 0
    process.signal()
    process.end()
    said = " ".join(line.get("message", line["event"]) for line in process.lines)
    assert "the peer's certificate is not accepted: certificate revoked" in said


@needs_curl
def test_a_version_that_is_too_old_is_refused(start: Starter, tmp_path: Path, authority: trustme.CA) -> None:
    process = serve(start, "--tls-min", "1.3")
    assert curl(process, tmp_path, "--tls-max", "1.2").returncode != 0
    assert curl(process, tmp_path).stdout.startswith("200 ")


@needs_curl
def test_curl_sends_and_receives_a_large_body(start: Starter, tmp_path: Path, authority: trustme.CA) -> None:
    (tmp_path / "echo.py").write_text(
        "async def app(scope, receive, send):\n"
        "    if scope['type'] != 'http':\n"
        "        raise NotImplementedError\n"
        "    body, more = b'', True\n"
        "    while more:\n"
        "        message = await receive()\n"
        "        body += message['body']\n"
        "        more = message['more_body']\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n"
        "    await send({'type': 'http.response.body', 'body': body})\n"
    )
    body = bytes(range(256)) * 8192
    (tmp_path / "body").write_bytes(body)
    process = serve(start, "echo:app")
    done = subprocess.run(
        ["curl", "-sk", "--data-binary", "@body", "-o", "answer", f"https://127.0.0.1:{process.port}/"],
        cwd=tmp_path, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert (tmp_path / "answer").read_bytes() == body


class SClient:
    """A running `openssl s_client`, whose output is read as it comes."""

    def __init__(self, process: Process, *options: str) -> None:
        self._process = subprocess.Popen(
            ["openssl", "s_client", "-crlf", "-connect", f"127.0.0.1:{process.port}", *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.output = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def type(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def read_until(self, words: bytes) -> None:
        assert self._process.stdout is not None
        while words not in self.output:
            piece = self._process.stdout.read1(65536)  # type: ignore[attr-defined]
            assert piece, self.output.decode(errors="replace")
            self.output += piece

    def end(self) -> str:
        """Close its input, and return all it has said."""
        rest, _ = self._process.communicate(timeout=PATIENCE)
        return (self.output + rest).decode(errors="replace")


@needs_openssl
@parsers
def test_a_renegotiation_is_refused(http: str, start: Starter, authority: trustme.CA) -> None:
    process = serve(start, http=http)
    with SClient(process, "-tls1_2") as client:
        client.read_until(b"Verify return code")
        client.type("R")
        said = client.end()
    assert "RENEGOTIATING" in said
    assert "no renegotiation" in said
    assert process.wait_for("connection")["reason"] in ("client_reset", "client_closed")
    with SClient(process, "-tls1_2", "-ign_eof") as second:
        second.type("GET / HTTP/1.0\n")
        assert "HTTP/1.1 200 OK" in second.end()


@needs_openssl
@parsers
def test_keys_are_updated_in_the_middle_of_a_connection(http: str, start: Starter, authority: trustme.CA) -> None:
    process = serve(start, http=http)
    with SClient(process, "-tls1_3") as client:
        client.read_until(b"Verify return code")
        for _ in range(3):
            for command in ("K", "k"):
                client.type(command)
                client.read_until(b"KEYUPDATE")
                client.output = b""
            client.type("GET / HTTP/1.1\nhost: x\n")
            client.read_until(b"HTTP/1.1 200 OK")
            client.output = b""
        client.type("Q")
        client.end()
    assert process.wait_for("connection")["requests"] == 3


@needs_openssl
def test_http_11_is_chosen_by_alpn(start: Starter, authority: trustme.CA) -> None:
    with SClient(serve(start), "-alpn", "h2,http/1.1", "-ign_eof") as client:
        client.type("GET / HTTP/1.0\n")
        said = client.end()
    assert "ALPN protocol: http/1.1" in said
    assert "HTTP/1.1 200 OK" in said


@parsers
def test_plain_http_is_answered_in_the_clear(http: str, start: Starter, authority: trustme.CA) -> None:
    process = serve(start, http=http)
    assert process.get().startswith("HTTP/1.1 400 Bad Request\r\n")


@parsers
def test_python_is_a_client_in_a_thread(http: str, start: Starter, authority: trustme.CA) -> None:
    process = serve(start, http=http)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    found: list[bytes] = []

    def ask() -> None:
        with process.connect() as raw, context.wrap_socket(raw, server_hostname=NAME) as client:
            for last in (b"", b"connection: close\r\n"):
                client.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n" + last + b"\r\n")
                found.append(client.recv(65536)[:15])
            while client.recv(65536):
                pass
            # raises if the server has not sent its close_notify
            client.unwrap()

    threads = [Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert found == [b"HTTP/1.1 200 OK"] * 8
