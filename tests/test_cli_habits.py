"""What users of uvicorn, gunicorn, hypercorn, granian and daphne expect: their options, or what to give instead."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from deadlined.cli import serve_command
from deadlined.cli.habits import answers, instead_of
from deadlined.service import ServeConfig
from tests.support.command import Starter, assert_one_line, run
from tests.support.invoked import invoke

# options of others


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--timeout-keep-alive", "5"], "there is no --timeout-keep-alive: here it is --idle"),
        (["--timeout-keep-alive=5"], "there is no --timeout-keep-alive: here it is --idle"),
        (["a:b", "--keep-alive", "5"], "there is no --keep-alive: here it is --idle"),
        (["--limit-concurrency", "5"], "there is no --limit-concurrency: here it is --max-running, which counts"),
        (["--ssl-keyfile", "k.pem"], "there is no --ssl-keyfile: here it is --keyfile"),
        (["--ssl-certfile", "c.pem"], "there is no --ssl-certfile: here it is --certfile"),
        (["--proxy-headers"], "there is no --proxy-headers: here it is --trusted-proxies, and nobody is believed"),
        (["--forwarded-allow-ips", "*"], "there is no --forwarded-allow-ips: here it is --trusted-proxies"),
        (["--graceful-timeout", "5"], "there is no --graceful-timeout: here it is --drain"),
        (
            ["--timeout-worker-healthcheck", "5"],
            "there is no --timeout-worker-healthcheck: here it is --worker-timeout",
        ),
        (["-k", "uvicorn.workers.UvicornWorker"], "there is no -k: here it is --loop"),
        (["--user", "www-data"], "there is no --user: let a service manager choose the user"),
        (["--check-config"], "there is no --check-config: here it is the command `deadlined config validate`"),
        (["--reuse-port"], "there is no --reuse-port: with --workers each worker process has a socket of its own"),
        (["--http2"], "there is no --http2: HTTP/1.1 is served"),
        (
            ["--umask", "007"],
            "there is no --umask: here it is --uds-mode, which says what is left of the permissions: 660",
        ),
        (["-m", "007"], "there is no -m: here it is --uds-mode, which says what is left of the permissions: 660"),
        (["--timeout", "120"], "there is no --timeout: here it is --worker-timeout, after which a worker process that"),
        (["-t120"], "there is no -t: here it is --worker-timeout, after which a worker process that hangs is killed"),
        (
            ["--limit-max-requests", "9"],
            "there is no --limit-max-requests: nothing replaces worker processes by itself",
        ),
        (["--chdir", "/srv"], "there is no --chdir: change the directory before the command"),
        (["--no-use-colors"], "there is no --no-use-colors: FORCE_COLOR=1 and NO_COLOR=1 in the environment switch"),
        (["--http1-header-read-timeout", "30000"], "there is no --http1-header-read-timeout: here it is --read-header"),
        (["--read-timeout", "10"], "there is no --read-timeout: a head has the time of --read-header, and a body"),
        (["--http2-max-frame-size", "9"], "there is no --http2-max-frame-size: HTTP/1.1 is served"),
        (["--no-http2-adaptive-window"], "there is no --no-http2-adaptive-window: HTTP/1.1 is served"),
        (["--static-path-mount", "s"], "there is no --static-path-mount: files are served by the application"),
        (["--no-ws"], "there is no --no-ws: websockets are served wherever the extra `websockets` is installed"),
        (["-e", "tcp:port=80"], "there is no -e: here it is --env-file, or a variable in front of the command; --bind"),
        (["--debug"], "there is no --debug: here it is --log-level debug"),
        (["--server-name", "a"], "there is no --server-name: the field Host is not compared"),
        (["--fd", "3"], "there is no --fd: here it is --bind fd://NUMBER"),
        (["--ssl-keyfile-password", "hunter2"], "there is no --ssl-keyfile-password: here it is --key-password-file"),
    ],
)
def test_an_option_of_another_server_says_what_it_is_here(
    arguments: list[str], told: str, chosen: list[ServeConfig]
) -> None:
    result = invoke("serve", *arguments)
    assert (result.exit_code, chosen) == (2, [])
    assert f"Error: {told}" in result.stderr
    assert "hunter2" not in result.output


@pytest.mark.parametrize("value", ["auto", "zuvloop"])
def test_a_value_of_another_server_says_what_to_write(value: str, chosen: list[ServeConfig]) -> None:
    result = invoke("serve", "a:b", "--loop", value)
    assert (result.exit_code, chosen) == (2, [])
    told = f"'{value}' is not known: choose one of trio, asyncio, uvloop; for an application that runs on asyncio write"
    assert f"Error: Invalid value for '--loop': {told} uvloop\n" in result.stderr


# of version 4.2
OF_DAPHNE = {
    *("-b", "--bind", "-p", "--port", "-u"),
    *("--unix-socket", "--fd", "-e", "--endpoint", "-t"),
    *("--http-timeout", "--websocket_timeout", "--websocket_connect_timeout", "--ping-interval", "--ping-timeout"),
    *(
        "--websocket-max-message-size",
        "--websocket-max-frame-size",
        "--application-close-timeout",
        "--root-path",
        "--proxy-headers",
    ),
    *("--proxy-headers-host", "--proxy-headers-port", "-s", "--server-name", "--no-server-name"),
    *("-v", "--verbosity", "--access-log", "--log-fmt"),
}


def test_each_option_of_daphne_is_one_here_or_has_its_answer() -> None:
    assert {name for name in OF_DAPHNE if instead_of(name) is None} <= options(serve_command)


def test_a_value_of_nobody_is_told_as_before() -> None:
    assert "choose one of trio, asyncio, uvloop\n" in invoke("serve", "a:b", "--loop", "gevent").stderr


def test_an_option_of_nobody_is_told_as_before() -> None:
    assert "No such option" in invoke("serve", "--no-such-option").stderr


def test_what_is_given_instead_exists_and_what_exists_is_not_explained() -> None:
    ours = options(serve_command)
    known = answers()
    assert len(known) > 100
    assert {option for option in ours if instead_of(option) is not None} == set()
    named = {flag for text in known.values() for flag in re.findall(r"--[a-z-]+", text)}
    assert named <= ours


def options(command: click.Command) -> set[str]:
    return {name for param in command.params for name in (*param.opts, *param.secondary_opts) if name.startswith("-")}


# files of variables


def test_the_file_of_variables_is_for_the_application_and_the_settings(start: Starter, tmp_path: Path) -> None:
    (tmp_path / "env").write_text(
        "# names\nexport SHOP_NAME='the shop'\nDEADLINED_DRAIN=7s\nGREETING=\"hello ${SHOP_NAME}\"\nTAKEN=no\n"
        "OF_TAKEN=${TAKEN}\n"
    )
    (tmp_path / "shop_site.py").write_text(
        "import os\n"
        "async def app(scope, receive, send):\n"
        "    if scope['type'] != 'http': raise NotImplementedError\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n"
        "    text = '|'.join(os.environ[name] for name in ('GREETING', 'TAKEN', 'OF_TAKEN'))\n"
        "    await send({'type': 'http.response.body', 'body': text.encode()})\n"
    )
    # python-dotenv's own switch is for files that nobody has named
    process = start("shop_site:app", "--env-file", "env", TAKEN="yes", PYTHON_DOTENV_DISABLED="1")
    assert process.get().endswith("\r\n\r\nhello the shop|yes|yes")
    process.signal()
    assert process.wait_for("draining")["seconds"] == 7.0


@pytest.fixture
def same_environment() -> Iterator[None]:
    """Undo what a file of variables has set."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.usefixtures("same_environment")
def test_a_flag_and_a_variable_beat_the_file_of_variables(tmp_path: Path, chosen: list[ServeConfig]) -> None:
    file = tmp_path / "env"
    file.write_text("DEADLINED_IDLE=1s\nDEADLINED_DRAIN=1s\nDEADLINED_READ=1s\n")
    variables = {"DEADLINED_DRAIN": "2s"}
    assert invoke("serve", "--env-file", str(file), "--idle", "3s", **variables).exit_code == 0
    (config,) = chosen
    assert (config.timeouts.idle, config.timeouts.drain, config.timeouts.read) == (3.0, 2.0, 1.0)


@pytest.mark.usefixtures("same_environment")
@pytest.mark.parametrize(
    ("arguments", "variables", "drain"),
    [
        ([], {}, 1.0),
        ([], {"DEADLINED_CONFIG": "variable.toml"}, 2.0),
        (["--config", "flag.toml"], {}, 3.0),
    ],
)
def test_the_file_of_variables_can_name_the_file_of_the_configuration(
    arguments: list[str],
    variables: dict[str, str],
    drain: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    chosen: list[ServeConfig],
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("named", "variable", "flag"), 1):
        Path(f"{name}.toml").write_text(f"drain = {number}\n")
    Path("env").write_text("DEADLINED_CONFIG=named.toml\n")
    assert invoke("serve", "--env-file", "env", *arguments, **variables).exit_code == 0
    assert [config.timeouts.drain for config in chosen] == [drain]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot read it: No such file or directory"),
        (b"A=1\n'B\n", ":2: this line is not NAME=value"),
        (b"\xff\xfe", "cannot read it: "),
        (b"A=x\0y", ":1: this line is not NAME=value"),
    ],
)
def test_a_file_of_variables_that_is_none_is_told(
    tmp_path: Path, content: bytes | None, told: str, chosen: list[ServeConfig]
) -> None:
    file = tmp_path / "env"
    if content is not None:
        file.write_bytes(content)
    result = invoke("serve", "--env-file", str(file))
    assert (result.exit_code, chosen) == (2, [])
    assert re.search(rf"^Error: --env-file {file}(: )?{re.escape(told)}", result.stderr, re.MULTILINE)


# the variable of platforms


@pytest.mark.parametrize(
    ("arguments", "variables", "workers"),
    [
        ([], {}, 3),
        (["-w", "2"], {}, 2),
        ([], {"DEADLINED_WORKERS": "4"}, 4),
        (["--config", "conf.toml"], {}, 5),
    ],
    ids=["alone", "flag", "variable", "file"],
)
def test_web_concurrency_is_the_default_of_the_number_of_worker_processes(
    arguments: list[str],
    variables: dict[str, str],
    workers: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    chosen: list[ServeConfig],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf.toml").write_text("workers = 5\n")
    result = invoke("serve", "a:b", *arguments, WEB_CONCURRENCY="3", **variables)
    assert (result.exit_code, result.stderr) == (0, "")
    assert [config.workers for config in chosen] == [workers]


def test_a_web_concurrency_that_cannot_be_used_is_told(chosen: list[ServeConfig]) -> None:
    result = invoke("serve", "a:b", WEB_CONCURRENCY="many")
    assert (result.exit_code, chosen) == (2, [])
    told = "WEB_CONCURRENCY: 'many' is not allowed: write 1 to 1000; --workers comes before it"
    assert f"Error: {told}\n" in result.stderr
    result = invoke("serve", "a:b", "--reload", WEB_CONCURRENCY="3")
    assert (result.exit_code, chosen[0].workers) == (0, 1)
    assert result.stderr == "Warning: WEB_CONCURRENCY is not used: --reload is for one process\n"


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("UVICORN_PORT", "9999", "set DEADLINED_PORT"),
        ("UVICORN_ROOT_PATH", "/shop", "set DEADLINED_ROOT_PATH"),
        ("UVICORN_APP", "shop:app", "set DEADLINED_APP"),
        ("UVICORN_TIMEOUT_KEEP_ALIVE", "5", "here it is --idle"),
        ("UVICORN_FORWARDED_ALLOW_IPS", "*", "set DEADLINED_TRUSTED_PROXIES=0.0.0.0/0,::/0"),
        ("FORWARDED_ALLOW_IPS", "*", "set DEADLINED_TRUSTED_PROXIES=0.0.0.0/0,::/0"),
        ("FORWARDED_ALLOW_IPS", "10.0.0.1", "set DEADLINED_TRUSTED_PROXIES"),
        ("GUNICORN_CMD_ARGS", "--timeout 5", "give deadlined serve its own options"),
    ],
)
def test_a_variable_of_another_server_says_what_to_set_here(
    name: str, value: str, told: str, chosen: list[ServeConfig]
) -> None:
    result = invoke("serve", **{name: value})
    assert (result.exit_code, result.stderr) == (0, f"Warning: {name} is not used: {told}\n")
    assert chosen == [ServeConfig()]


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["--port", "80"], {"UVICORN_PORT": "9999"}),
        (["--bind", "[::1]:80"], {"UVICORN_PORT": "9999", "UVICORN_HOST": "::1", "UVICORN_FD": "3"}),
        (["--idle", "5s"], {"UVICORN_TIMEOUT_KEEP_ALIVE": "5"}),
        ([], {"FORWARDED_ALLOW_IPS": "*", "DEADLINED_TRUSTED_PROXIES": "10.0.0.1"}),
        ([], {"UVICORN_PORT": "", "UVICORN_NO_SUCH_OPTION": "1"}),
        # of Kubernetes, for a Service called uvicorn
        ([], {"UVICORN_PORT": "tcp://10.0.0.1:80", "UVICORN_SERVICE_HOST": "10.0.0.1"}),
    ],
)
def test_a_variable_of_another_server_that_is_not_missed_is_not_told(
    arguments: list[str], variables: dict[str, str], chosen: list[ServeConfig]
) -> None:
    result = invoke("serve", *arguments, **variables)
    assert (result.exit_code, result.stderr, len(chosen)) == (0, "", 1)


# where the application is


def test_the_application_is_found_in_its_directory_before_the_current_one(start: Starter, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "apps.py").write_text((tmp_path / "apps.py").read_text().replace("shop", "store"))
    assert start("apps:store.app", "--app-dir", "src").get().endswith("\r\n\r\nstore")


def test_a_directory_that_is_not_there_ends_it_with_2(tmp_path: Path) -> None:
    assert_one_line(run("serve", "a:b", "--app-dir", "none", cwd=tmp_path), 2, "--app-dir none: there is no such")


def test_the_path_at_which_it_is_mounted_is_in_the_scope(start: Starter, tmp_path: Path) -> None:
    (tmp_path / "shop_site.py").write_text(
        "import json\n"
        "async def app(scope, receive, send):\n"
        "    if scope['type'] != 'http': raise NotImplementedError\n"
        "    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n"
        "    found = [scope['root_path'], scope['path'], scope['raw_path'].decode()]\n"
        "    await send({'type': 'http.response.body', 'body': json.dumps(found).encode()})\n"
    )
    answer = start("shop_site:app", "--root-path", "/my shop").get("/a%20b?c")
    assert json.loads(answer.partition("\r\n\r\n")[2]) == ["/my shop", "/my shop/a b", "/my%20shop/a%20b"]


@pytest.mark.parametrize("path", ["shop", "/", "/shop/", "http://a/b"])
def test_what_is_no_path_to_mount_at_is_told(path: str) -> None:
    result = invoke("serve", "--root-path", path)
    assert result.exit_code == 2
    assert f"'{path}' is not a path to mount at: write one like /shop" in result.stderr
