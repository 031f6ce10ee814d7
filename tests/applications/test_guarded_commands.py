"""The servers that docs/guard.md and the help tell readers to guard start that way, and the application is told of its
client as the page says."""

from __future__ import annotations

import re
import shlex
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme

from deadlined.cli.guarding import run_command
from tests.service.command.guards import Guard, guards
from tests.support.command import PATIENCE, read_all

PAGE = Path(__file__).parents[2] / "docs" / "guard.md"
PYTHONS = ("uvicorn", "gunicorn", "hypercorn")

# answers with the client and the scheme that it is told of
ASGI = """
async def app(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    told = f"{(scope['client'] or ('nobody',))[0]} {scope['scheme']}"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": told.encode()})
"""
FIXED = """
from hypercorn.middleware import ProxyFixMiddleware
from app import app as bare
app = ProxyFixMiddleware(bare, mode="legacy", trusted_hops=1)
"""
WSGI = """
def application(environ, start_response):
    start_response("200 OK", [])
    return [f"{environ['HTTP_X_FORWARDED_FOR']} {environ['wsgi.url_scheme']}".encode()]
"""


def commands(text: str) -> list[str]:
    """Return what follows `deadlined run ... --` where that is a server written in Python."""
    found = re.findall(r"^ *deadlined run(?: --\w\S* \S+)* -- ([^#\n]*[^#\s])", text, re.MULTILINE)
    return [command for command in found if command.startswith(PYTHONS)]


SHOWN = sorted({*commands(PAGE.read_text()), *commands(run_command.help or "")})


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[Guard]:
    for name, text in {"app": ASGI, "shop": ASGI, "fixed": FIXED, "mysite/wsgi": WSGI}.items():
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    with guards(tmp_path) as start:
        yield start


def test_the_commands_are_found() -> None:
    assert {command.partition(" ")[0] for command in SHOWN} == set(PYTHONS)
    assert len(SHOWN) > 4


@pytest.mark.parametrize("command", SHOWN)
def test_a_command_that_is_shown_is_guarded(command: str, guard: Guard) -> None:
    process = guard("run", "--", sys.executable, "-m", *shlex.split(command))
    with process.begin() as client:
        client.settimeout(PATIENCE)
        assert read_all(client).startswith("HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("uvicorn app:app --port {port}", "127.0.0.1 https"),
        ("uvicorn app:app --uds {uds} --forwarded-allow-ips '*'", "127.0.0.1 https"),
        ("uvicorn app:app --uds {uds}", "nobody http"),
        ("gunicorn mysite.wsgi --bind unix:{uds}", "127.0.0.1 https"),
        ("gunicorn mysite.wsgi --bind 127.0.0.1:{port}", "127.0.0.1 https"),
        ("gunicorn -k asgi app:app --bind unix:{uds}", "nobody https"),
        ("hypercorn app:app --bind unix:{uds}", "nobody http"),
        ("hypercorn fixed:app --bind unix:{uds}", "127.0.0.1 https"),
    ],
)
def test_an_application_is_told_of_its_client_as_far_as_its_server_believes_the_guard(
    command: str, told: str, guard: Guard, tmp_path: Path
) -> None:
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "tls.pem"))
    process = guard("run", "--certfile", "tls.pem", "--", sys.executable, "-m", *shlex.split(command))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with httpx.Client(verify=context, trust_env=False, timeout=PATIENCE) as client:
        assert client.get(f"https://127.0.0.1:{process.port}/").text == told
