"""What is served, and which command has which setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deadlined.service.config import (
    PROXY,
    RUN,
    SERVE,
    SETTINGS,
    ConfigurationError,
    Resolution,
    Sources,
    resolve,
)
from deadlined.service.config.showing import as_dictionary, as_toml

UVICORN = ("uvicorn", "app:app", "--uds", "{uds}")
RUNS = f"command = {list(UVICORN)}\n".replace("'", '"')


def resolved(tmp_path: Path, command: str | None, toml: str = "", **sources: Any) -> Resolution:
    file = tmp_path / "conf.toml"
    file.write_text(toml)
    return resolve(Sources(command=command, file=str(file), **sources))


def problem(tmp_path: Path, command: str | None, toml: str = "", **sources: Any) -> str:
    """Return the one thing that is wrong, with the file called F."""
    with pytest.raises(ConfigurationError) as caught:
        resolved(tmp_path, command, toml, **sources)
    (found,) = caught.value.problems
    return found.replace(str(tmp_path / "conf.toml"), "F")


# which command has what


def test_an_application_is_for_serve_and_upstreams_are_not() -> None:
    of_applications = {name for name, setting in SETTINGS.items() if setting.commands == (SERVE,)}
    assert of_applications == {
        *("app", "factory", "app_dir", "root_path", "lifespan", "cancel_on_disconnect", "trust_deadline_headers"),
        "pathsend",
        *("ws_ping", "ws_pong", "ws_close", "max_message", "max_frame", "ws_compression", "reload", "reload_dir"),
        *("request_queue", "max_running", "max_waiting"),
    }
    of_guards = {name for name, setting in SETTINGS.items() if SERVE not in setting.commands}
    assert of_guards == {name for name in SETTINGS if name.startswith("upstream")} | {"command", "tcp"}
    assert SETTINGS["tcp"].commands == (PROXY,)
    assert SETTINGS["upstream"].commands == (PROXY,)
    assert SETTINGS["command"].commands == (RUN,)
    assert SETTINGS["workers"].commands == (SERVE, PROXY)


# from all sources


@pytest.mark.parametrize(
    ("toml", "sources", "origin"),
    [
        ('upstream = ["a:1", "unix:/b"]', {}, "F:1"),
        ("", {"environment": {"DEADLINED_UPSTREAM": "a:1,unix:/b"}}, "DEADLINED_UPSTREAM"),
        ("upstream = 'c:1'", {"flags": {"upstream": ("a:1", "unix:/b")}}, "--upstream"),
    ],
)
def test_upstreams_come_from_all_sources(tmp_path: Path, toml: str, sources: Any, origin: str) -> None:
    found = resolved(tmp_path, PROXY, toml, **sources)
    assert found.config.upstream == ("a:1", "unix:/b")
    assert found.origins["upstream"].replace(str(tmp_path / "conf.toml"), "F") == origin


@pytest.mark.parametrize(
    ("toml", "sources", "origin"),
    [
        (RUNS, {}, "F:1"),
        ("", {"environment": {"DEADLINED_COMMAND": "uvicorn 'app:app' --uds {uds}"}}, "DEADLINED_COMMAND"),
        ("command = ['x', '{port}']", {"flags": {"command": UVICORN}}, "COMMAND"),
    ],
)
def test_a_command_comes_from_all_sources(tmp_path: Path, toml: str, sources: Any, origin: str) -> None:
    found = resolved(tmp_path, RUN, toml, **sources)
    assert found.config.command == UVICORN
    assert found.origins["command"].replace(str(tmp_path / "conf.toml"), "F") == origin


def test_deadlines_and_limits_of_upstreams_are_settings_as_the_others(tmp_path: Path) -> None:
    variables = {"DEADLINED_UPSTREAM_CONNECT": "500ms", "DEADLINED_UPSTREAM": "a:1"}
    flags = {"upstream_connections": 4.0}
    config = resolved(tmp_path, PROXY, "upstream_queue = '2m'", environment=variables, flags=flags).config
    assert (config.proxy_timeouts.upstream_connect, config.proxy_timeouts.upstream_queue) == (0.5, 120.0)
    assert config.proxy_limits.upstream_connections == 4.0


# what is wrong


@pytest.mark.parametrize(
    ("command", "toml", "told"),
    [
        (PROXY, "", "deadlined proxy needs --upstream, where the server listens that it guards: deadlined proxy --ups"),
        (RUN, "", "deadlined run needs the command to start: deadlined run -- uvicorn app:app --uds {uds}"),
        (RUN, "command = ['x']", "F:1: COMMAND must contain {uds} or {port}, where the server is to listen: dead"),
        (RUN, "command = ['x', '{uds}', '{port}']", "F:1: COMMAND contains both {uds} and {port}, but is to listen"),
        (RUN, "command = ['{uds}', '\\u0000']".replace("'", '"'), "F:1: COMMAND contains a null character"),
        (RUN, "command = 'uvicorn {uds}'", "F:1: command: 'uvicorn {uds}' is not a command: write a list of texts"),
        (PROXY, "upstream = 'a'", "F:1: upstream: 'a' is not the address of an upstream; write host:port, [address]"),
        (PROXY, "upstream = ['a:1', 'a:1']", "F:1: --upstream: a:1 is given twice"),
        (PROXY, "upstream = 'a:1'\nupstream_queue = -1", "F:2: upstream_queue: -1 is not a duration"),
        (PROXY, "upstream = 'a:1'\nupstream_connections = 0", "F:2: upstream_connections: must be above 0"),
        (PROXY, "app = 'a:b'\nupstream = 'a:1'", "F:1: app is for deadlined serve, and not used by deadlined proxy"),
        (SERVE, "upstream = 'a:1'", "F:1: upstream is for deadlined proxy, and not used by deadlined serve"),
        (RUN, RUNS + "app = 'a:b'", "F:2: app is for deadlined serve, and not used by deadlined run"),
        (None, "upstream = 'a:1'\napp = 'a:b'", "F:2 (app) and F:1 (upstream) both say what to serve; leave one out"),
        (None, RUNS + "workers = 2", "F:2: --workers is not for deadlined run, which starts one server"),
    ],
)
def test_what_does_not_go_together_is_told(tmp_path: Path, command: str | None, toml: str, told: str) -> None:
    assert problem(tmp_path, command, toml).startswith(told)


def test_a_variable_that_is_no_command_is_told(tmp_path: Path) -> None:
    told = problem(tmp_path, RUN, environment={"DEADLINED_COMMAND": "uvicorn '{uds}"})
    assert told == 'DEADLINED_COMMAND: "uvicorn \'{uds}" is not a command: No closing quotation'


def test_more_than_one_process_is_refused_where_a_command_is_started(tmp_path: Path) -> None:
    assert problem(tmp_path, RUN, RUNS, flags={"workers": 2}).startswith("--workers is not for deadlined run")
    assert resolved(tmp_path, RUN, RUNS, flags={"workers": 1}).config.workers == 1


# what a command does not use


def test_variables_of_other_commands_mean_nothing(tmp_path: Path) -> None:
    shared = {
        "DEADLINED_APP": "a:b",
        "DEADLINED_FACTORY": "yes",
        "DEADLINED_UPSTREAM": "a:1",
        "DEADLINED_COMMAND": "x {port}",
        "DEADLINED_WORKERS": "3",
        "DEADLINED_WS_PING": "soon",
        "DEADLINED_IDLE": "1s",
    }
    configs = {name: resolved(tmp_path, name, environment=shared) for name in (PROXY, RUN)}
    assert all(found.warnings == () and found.config.timeouts.idle == 1.0 for found in configs.values())
    subjects = {name: (one.config.app, one.config.upstream, one.config.command) for name, one in configs.items()}
    assert subjects == {PROXY: (None, ("a:1",), ()), RUN: (None, (), ("x", "{port}"))}
    assert (configs[PROXY].config.workers, configs[RUN].config.workers) == (3, 1)


def test_a_key_of_the_file_for_another_command_is_a_warning(tmp_path: Path) -> None:
    found = resolved(tmp_path, PROXY, "upstream = 'a:1'\nfactory = true\nws_ping = '1s'")
    assert [line.replace(str(tmp_path / "conf.toml"), "F") for line in found.warnings] == [
        "F:2: factory is for deadlined serve, and not used by deadlined proxy",
        "F:3: ws_ping is for deadlined serve, and not used by deadlined proxy",
    ]
    assert (found.config.factory, found.config.timeouts.ws_ping) == (False, 20.0)
    assert found.origins["factory"] == "default"


def test_for_any_command_the_first_source_says_what_is_served(tmp_path: Path) -> None:
    found = resolved(tmp_path, None, RUNS, environment={"DEADLINED_UPSTREAM": "a:1"}, flags={"app": "a:b"})
    assert (found.config.app, found.config.upstream, found.config.command) == ("a:b", (), ())


# what is shown


@pytest.mark.parametrize("toml", ["upstream = ['a:1', '[::1]:2']", RUNS, "command = ['a b', '--port={port}', '']"])
def test_what_is_shown_is_a_file_that_gives_the_same(tmp_path: Path, toml: str) -> None:
    shown = resolved(tmp_path, None, toml)
    assert resolved(tmp_path, None, as_toml(shown)).config == shown.config


def test_it_is_shown_for_which_commands_a_setting_is(tmp_path: Path) -> None:
    found = resolved(tmp_path, None, RUNS)
    headings = [line for line in as_toml(found).splitlines() if line.startswith("# ") and "=" not in line]
    assert "# Application, for deadlined serve" in headings
    assert "# Upstream, for deadlined run" in headings
    assert "# Upstream, for deadlined proxy and deadlined run" in headings
    assert headings.count("# Deadlines") == headings.count("# Deadlines, for deadlined serve") == 1
    shown = as_dictionary(found)
    assert shown["command"]["commands"] == (RUN,)
    assert shown["command"]["value"] == "uvicorn app:app --uds '{uds}'"
