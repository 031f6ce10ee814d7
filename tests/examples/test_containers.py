"""The images and the example of Compose: of one mind with the server, and true of what they start. `.ci/image` builds
and runs them."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from deadlined.cli import serve_command
from deadlined.service.config import SETTINGS
from tests.applications.daemons import found
from tests.support.admin import admin_of
from tests.support.command import APPS, COMMAND, PATIENCE, Process, Starter, environment
from tests.support.deployment import (
    DOCKERFILE,
    EXAMPLES,
    LATEST,
    ROOT,
    SHOP,
    documents,
    duration,
    image_variables,
    instruction,
    with_any_port,
)

DERIVED = EXAMPLES / "docker" / "Dockerfile"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
(COMPOSE,) = documents(EXAMPLES / "compose.yaml")
SERVICE = COMPOSE["services"]["shop"]
PROMETHEUS = COMPOSE["services"]["prometheus"]


def exec_form(name: str, dockerfile: Path = DOCKERFILE) -> list[str]:
    """Return the words of an instruction that is a JSON list, and so needs no shell."""
    words: list[str] = json.loads(instruction(name, dockerfile))
    return words


def health_check() -> list[str]:
    """Return the words of the image's probe."""
    words: list[str] = json.loads(instruction("HEALTHCHECK").partition("CMD ")[2])
    return words


def test_the_image_runs_without_a_shell_and_without_root() -> None:
    for dockerfile in (DOCKERFILE, DERIVED):
        uid, gid = map(int, instruction("USER", dockerfile).split(":"))
        assert min(uid, gid) > 0
        assert exec_form("CMD", dockerfile)[0] == "serve"
    assert exec_form("ENTRYPOINT") == health_check()[:1] == ["deadlined"]
    assert "deadlined" in PROJECT["project"]["scripts"]
    assert instruction("STOPSIGNAL") == "SIGTERM"


def test_the_command_understands_what_the_images_tell_it() -> None:
    for dockerfile in (DOCKERFILE, DERIVED):
        serve_command.make_context("serve", exec_form("CMD", dockerfile)[1:])
    known = {setting.variable for setting in SETTINGS.values()}
    assert {name for name in image_variables() if name.startswith("DEADLINED_")} <= known


def test_the_image_is_made_of_all_that_a_wheel_is_made_of() -> None:
    """Both lists, or the build finds less than a checkout has."""
    copied = re.findall(r"^COPY (?!--)(.*) \S+$", DOCKERFILE.read_text(), re.MULTILINE)
    sources = {word.rstrip("/") for words in copied for word in shlex.split(words)}
    roots = PROJECT["tool"]["setuptools"].get("package-dir", {})
    packages = {name.partition(".")[0] for name in PROJECT["tool"]["setuptools"]["packages"]}
    # the load test is no part of the image
    packages.discard("deadlined_loadtest")
    needed = {roots.get(name, name) for name in packages} | {"pyproject.toml", "setup.py", PROJECT["project"]["readme"]}
    assert needed | set(PROJECT["project"]["license-files"]) == sources
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    assert {line.removeprefix("!") for line in lines if line.startswith("!")} == sources


def as_in_the_image(start: Starter, *arguments: str, **variables: str) -> Process:
    """Start what the container starts, on other ports."""
    said = image_variables() | {"DEADLINED_ADMIN": with_any_port(image_variables()["DEADLINED_ADMIN"])} | variables
    return start(*arguments, **said)


def probe(address: str) -> subprocess.CompletedProcess[str]:
    """Run the image's probe, as beside a server whose admin listener has this address, and with more patience."""
    command = [*COMMAND, *health_check()[1:], f"--timeout={PATIENCE}"]
    variables = environment(DEADLINED_ADMIN=address)
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_the_probe_asks_the_server_and_not_the_application(start: Starter) -> None:
    process = as_in_the_image(start, *exec_form("CMD", DERIVED)[1:], "--app-dir", str(SHOP))
    admin_of(process)
    address = process.events("admin listening")[0]["url"].removeprefix("http://")
    assert address.startswith("127.0.0.1:")
    # the application knows no such path
    assert process.get("/").startswith("HTTP/1.1 404 ")
    done = probe(address)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "")
    process.signal()
    assert process.end()[0] == 0
    assert probe(address).returncode == 1


def test_the_probe_gives_up_before_the_engine_does() -> None:
    timeout = re.findall(r"--timeout=(\S+)", instruction("HEALTHCHECK"))[0]
    done = subprocess.run([*COMMAND, "health", "--help"], capture_output=True, text=True, check=False)
    own = re.findall(r"\(default:\s+(\d+)\)", done.stdout)[0]
    assert float(own) < duration(timeout)


def test_compose_kills_nothing_before_its_drain_has_ended() -> None:
    drain = duration(SERVICE["environment"]["DEADLINED_DRAIN"])
    assert drain + LATEST < duration(SERVICE["stop_grace_period"])


def test_compose_publishes_the_port_of_the_server_on_this_machine_only() -> None:
    assert SERVICE["ports"] == [f"127.0.0.1:8000:{instruction('EXPOSE')}"]
    # the admin listener is for the other services
    assert SERVICE["environment"]["DEADLINED_ADMIN"].partition(":")[0] == "0.0.0.0"


def test_compose_shuts_the_server_in() -> None:
    assert SERVICE["read_only"] is True
    assert SERVICE["cap_drop"] == ["ALL"]
    assert SERVICE["security_opt"] == ["no-new-privileges:true"]
    assert (EXAMPLES / SERVICE["build"]).resolve() == DERIVED.parent
    assert "healthcheck" not in SERVICE


def test_prometheus_and_the_server_have_the_same_token() -> None:
    config = yaml.safe_load(COMPOSE["configs"]["prometheus"]["content"])
    (job,) = config["scrape_configs"]
    file = SERVICE["environment"]["DEADLINED_ADMIN_TOKEN_FILE"]
    assert job["authorization"] == {"credentials_file": file}
    (secret,) = COMPOSE["secrets"]
    assert SERVICE["secrets"] == PROMETHEUS["secrets"] == [secret]
    assert file == f"/run/secrets/{secret}"
    port = SERVICE["environment"]["DEADLINED_ADMIN"].partition(":")[2]
    assert job["static_configs"] == [{"targets": [f"shop:{port}"]}]


def test_the_configuration_of_prometheus_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "prometheus.yml"
    file.write_text(COMPOSE["configs"]["prometheus"]["content"])
    command = [found("promtool"), "check", "config", "--syntax-only", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_others_than_the_container_need_a_token(start: Starter, tmp_path: Path, address: str) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret")
    process = as_in_the_image(start, DEADLINED_ADMIN=address, DEADLINED_ADMIN_TOKEN_FILE=str(token))
    admin = admin_of(process)
    assert admin.get("/metrics").status == 401
    assert admin.get("/readyz").status == 200


# what the command does before it starts the application, in a module that takes its place
LOADING = """
import sys, time, types
def main(prog_name):
    print("starting", file=sys.stderr, flush=True)
    # in steps: a signal that comes just before the system call is seen at its end
    while True:
        time.sleep(0.1)
sys.modules["deadlined.cli"] = types.SimpleNamespace(main=main)
"""


@pytest.mark.parametrize(
    ("before", "code"), [("", 0), (LOADING, 128 + signal.SIGTERM)], ids=["the application", "the command"]
)
def test_process_1_can_be_ended_while_it_starts(tmp_path: Path, before: str, code: int) -> None:
    """To the kernel it is not process 1, so that without a handler it would end by the signal itself."""
    (tmp_path / "apps.py").write_text(APPS)
    program = before + "import os; os.getpid = lambda: 1; from deadlined.__main__ import run; run()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "serve", "apps:hesitant", "--port", "0"],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        assert process.stderr.readline() == "starting\n"
        process.terminate()
        assert process.wait(PATIENCE) == code
