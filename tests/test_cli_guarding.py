"""The options of `deadlined proxy` and `deadlined run`, and what is said of wrong ones."""

from __future__ import annotations

import math
import re
from pathlib import Path

import click
import pytest

from deadlined.cli.guarding import proxy_command, run_command
from deadlined.service import ServeConfig, StartupError
from deadlined.service.config import PROXY, RUN, SETTINGS, Setting
from deadlined.service.config.conflicts import OF_HTTP
from tests.support.invoked import invoke

UVICORN = ("uvicorn", "app:app", "--uds", "{uds}")


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> list[ServeConfig]:
    """What the commands would guard with, instead of guarding."""
    configs: list[ServeConfig] = []

    def serve(config: ServeConfig, sources: object) -> int:
        configs.append(config)
        return 4

    monkeypatch.setattr("deadlined.cli.outcome.serve", serve)
    return configs


@pytest.mark.parametrize(("name", "made"), [(PROXY, proxy_command), (RUN, run_command)])
def test_a_command_has_the_flags_of_its_settings_and_no_others(name: str, made: click.Command) -> None:
    shown = [param for param in made.params if isinstance(param, click.Option) and not param.hidden]
    flags = [param.opts[0] for param in shown]
    of_settings = [setting.flag for setting in SETTINGS.values() if setting.is_flag and name in setting.commands]
    assert flags == [*of_settings, "--config", "--env-file"]
    assert all(option.envvar == f"DEADLINED_{option.name}".upper() for option in shown)


@pytest.mark.parametrize(
    ("name", "taught"),
    [
        (PROXY, ["deadlined proxy --upstream 127.0.0.1:9000\n", "--upstream-first-byte 20s", "502", "deadlined run"]),
        (
            PROXY,
            ["deadlined proxy --tcp --upstream 127.0.0.1:5432 --port 6432\n", "reset", "or with --tcp a connection"],
        ),
        (
            RUN,
            [
                "deadlined run -- uvicorn app:app --uds {uds} --forwarded-allow-ips '*'\n",
                "-- node server.js --port {port}",
                "deadlined proxy",
            ],
        ),
    ],
)
def test_the_help_teaches_with_examples(name: str, taught: list[str]) -> None:
    text = invoke(name, "--help").stdout
    for words in taught:
        assert words in text
    assert "Upstream:" in re.findall(r"^\S.*:$", text, re.MULTILINE)
    assert re.search(rf"^  {name} ", invoke("--help").stdout, re.MULTILINE)


def test_variables_of_the_server_behind_it_are_not_told(guarded: list[ServeConfig]) -> None:
    result = invoke(RUN, "--", *UVICORN, UVICORN_LIMIT_CONCURRENCY="2", FORWARDED_ALLOW_IPS="*")
    assert (result.exit_code, result.stderr) == (4, "")


@pytest.mark.parametrize(
    "arguments",
    [("--idle", "5s", "--", *UVICORN), ("--idle", "5s", *UVICORN), ("--idle=5s", "--", *UVICORN)],
    ids=["--", "no --", "="],
)
def test_what_follows_the_options_is_the_command(guarded: list[ServeConfig], arguments: tuple[str, ...]) -> None:
    assert invoke(RUN, *arguments).exit_code == 4
    assert [(config.command, config.uds, config.timeouts.idle) for config in guarded] == [(UVICORN, None, 5.0)]


def test_the_options_of_a_proxy(guarded: list[ServeConfig]) -> None:
    arguments = ("--upstream", "a:1", "--upstream", "unix:/b,[::1]:2", "--upstream-queue", "1s", "-w", "2", "-p", "80")
    assert invoke(PROXY, *arguments, DEADLINED_UPSTREAM_CONNECTIONS="5").exit_code == 4
    (config,) = guarded
    assert config.upstream == ("a:1", "unix:/b", "[::1]:2")
    assert (config.proxy_timeouts.upstream_queue, config.proxy_limits.upstream_connections) == (1.0, 5.0)
    assert (config.workers, config.port) == (2, 80)


def test_the_options_of_a_proxy_for_tcp(guarded: list[ServeConfig], tmp_path: Path) -> None:
    file = tmp_path / "guard.toml"
    file.write_text("tcp = true\nupstream = 'a:1'\nidle = '1h'\nhandshake = '5s'\nconnection_age = '1d'\n")
    # what is said of HTTP in the environment is meant for others; a default says nothing
    variables = {"DEADLINED_MAX_BODY": "1m", "DEADLINED_TRUSTED_PROXIES": "unix"}
    for arguments in (("--tcp", "--upstream", "a:1", "--read-header", "10s"), ("--config", str(file))):
        assert invoke(PROXY, *arguments, **variables).exit_code == 4
    assert invoke(PROXY, "--upstream", "a:1", DEADLINED_TCP="yes").exit_code == 4
    assert invoke(PROXY, "--upstream", "a:1", "--no-tcp", DEADLINED_TCP="yes", **variables).exit_code == 4
    assert [config.tcp for config in guarded] == [True, True, True, False]
    assert [config.limits.max_body for config in guarded] == [math.inf, math.inf, math.inf, 1024**2]


@pytest.mark.parametrize("setting", [SETTINGS[name] for name in OF_HTTP], ids=OF_HTTP)
def test_what_is_only_for_http_does_not_go_with_tcp(guarded: list[ServeConfig], setting: Setting) -> None:
    value = {"trusted_proxies": "unix", "forwarded_fields": "forwarded", "http": "h11"}.get(setting.name, "33")
    needed = ("--trusted-proxies", "unix") if setting.name == "forwarded_fields" else ()
    result = invoke(PROXY, "--tcp", "--upstream", "a:1", setting.flag, value)
    told = f"Error: {setting.flag} is for HTTP, of which --tcp reads nothing; leave one out"
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, told)
    assert invoke(PROXY, "--upstream", "a:1", setting.flag, value, *needed).exit_code == 4


def test_routes_do_not_go_with_tcp(guarded: list[ServeConfig], tmp_path: Path) -> None:
    file = tmp_path / "guard.toml"
    file.write_text("tcp = true\nupstream = 'a:1'\n[[route]]\npath = '/x'\nidle = '5s'\n")
    result = invoke(PROXY, "--config", str(file))
    assert (result.exit_code, guarded) == (2, [])
    assert result.stderr.endswith(
        "Error: [[route]] is for HTTP requests, of which --tcp reads nothing; leave the tables out\n"
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((PROXY, "--tcp"), "deadlined proxy needs --upstream"),
        ((RUN, "--tcp", *UVICORN), "there is no --tcp: it is for deadlined proxy"),
        (("serve", "--tcp", "a:b"), "there is no --tcp: it is for deadlined proxy"),
        ((PROXY,), "deadlined proxy needs --upstream"),
        ((PROXY, "--upstream", "9000"), "Invalid value for '--upstream': '9000' is not the address of an upstream"),
        ((PROXY, "--upstream", "unix:" + "é" * 60), "Invalid value for '--upstream': the path of a unix so"),
        ((PROXY, "--upstream", "a:1", "--factory"), "there is no --factory: it is for deadlined serve"),
        ((PROXY, "--upstream", "a:1", "--no-ws-compression"), "there is no --no-ws-compression: it is for deadlined s"),
        (
            (PROXY, "--upstream", "a:1", "--timeout-keep-alive", "5"),
            "there is no --timeout-keep-alive: here it is --id",
        ),
        ((PROXY, "--upstream", "a:1", "b:c"), "Got unexpected extra argument (b:c)"),
        ((RUN,), "deadlined run needs the command to start: deadlined run -- uvicorn app:app --uds {uds}"),
        ((RUN, "--", "uvicorn"), "COMMAND must contain {uds} or {port}"),
        ((RUN, "--upstream", "a:1", *UVICORN), "there is no --upstream: it is for deadlined proxy"),
        ((RUN, "--workers", "2", *UVICORN), "--workers is not for deadlined run, which starts one server"),
        ((RUN, "-w", "2", *UVICORN), "--workers is not for deadlined run, which starts one server"),
        (("serve", "a:b", "--upstream", "a:1"), "there is no --upstream: it is for deadlined proxy"),
        (
            ("serve", "--upstream-queue", "1s"),
            "there is no --upstream-queue: it is for deadlined proxy and deadlined r",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_wrong_is_one_line_and_2(guarded: list[ServeConfig], arguments: tuple[str, ...], told: str) -> None:
    result = invoke(*arguments)
    assert (result.exit_code, guarded) == (2, [])
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert line.startswith(f"Error: {told}")


def test_one_process_may_be_asked_for(guarded: list[ServeConfig]) -> None:
    assert invoke(RUN, "--workers", "1", *UVICORN).exit_code == 4
    assert invoke(RUN, *UVICORN, DEADLINED_WORKERS="3").exit_code == 4
    assert [config.workers for config in guarded] == [1, 1]


def test_a_failed_start_is_its_line_and_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def serve(config: ServeConfig, sources: object) -> int:
        raise StartupError("no place", 3)

    monkeypatch.setattr("deadlined.cli.outcome.serve", serve)
    result = invoke(RUN, *UVICORN)
    assert (result.exit_code, result.stderr) == (3, "Error: no place\n")


def test_config_show_knows_what_a_guard_has() -> None:
    result = invoke("config", "show", "--upstream", "a:1", "--upstream-idle", "5s", DEADLINED_COMMAND="")
    assert result.exit_code == 0
    for row in [
        'upstream = \\["a:1"\\] +# --upstream',
        'upstream_idle = "5s" +# --upstream-idle',
        "# command = +# not set",
    ]:
        assert re.search(f"^{row}$", result.stdout, re.MULTILINE), row
    assert invoke("config", "validate", DEADLINED_COMMAND="uvicorn app:app").exit_code == 2
