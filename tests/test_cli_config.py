"""The commands `config show` and `config validate`, and the file and the variables of `serve`."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import trustme

from deadlined.service import ServeConfig
from deadlined.service.config import GROUPS, SERVE, SETTINGS
from deadlined.service.config.kinds import Flag
from tests.support.command import COMMAND, PATIENCE
from tests.support.invoked import invoke


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.toml"
    path.write_text('app = "shop.web:app"\nidle = "2m"\n')
    return path


def test_show_prints_a_file_with_the_origin_of_each_value(file: Path) -> None:
    result = invoke("config", "show", "--config", str(file), "--drain", "5s", DEADLINED_PORT="80")
    assert result.exit_code == 0
    values = tomllib.loads(result.stdout)
    assert (values["app"], values["idle"], values["drain"], values["port"]) == ("shop.web:app", "120s", "5s", 80)
    for row in [
        rf'idle = "120s" +# {file}:2',
        rf'app = "shop.web:app" +# {file}:1',
        'drain = "5s" +# --drain',
        "port = 80 +# DEADLINED_PORT",
        "workers = 1 +# default",
        "# uds = +# not set",
    ]:
        assert re.search(f"^{row}$", result.stdout, re.MULTILINE), row


def test_show_prints_json(file: Path) -> None:
    shown = json.loads(invoke("config", "show", "--json", DEADLINED_CONFIG=str(file)).stdout)
    assert shown["idle"] == {"value": "120s", "origin": f"{file}:2", "commands": ["serve", "proxy", "run"]}
    assert list(shown) == [*SETTINGS, "route"]


def test_show_never_prints_what_is_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2")
    result = invoke("config", "show", "--certfile", "c.pem", "--key-password-file", str(tmp_path / "password"))
    assert result.exit_code == 0
    assert "hunter2" not in result.output


def test_a_full_disk_is_told() -> None:
    with Path("/dev/full").open("w") as full:
        command = [*COMMAND, "config", "show"]
        completed = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False
        )
    assert (completed.returncode, completed.stderr) == (1, "Error: cannot write: No space left on device\n")


def test_a_valid_configuration_ends_validate_with_0(file: Path) -> None:
    result = invoke("config", "validate", "--config", str(file))
    assert (result.exit_code, result.output) == (0, "the configuration is valid\n")


@pytest.mark.parametrize("admin", ["9000", "0.0.0.0:9000"])
def test_validate_looks_at_the_place_of_the_admin_listener(admin: str) -> None:
    result = invoke("config", "validate", "--admin", admin)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--admin" in result.stderr


def test_each_mistake_is_a_line_and_ends_validate_with_2(file: Path) -> None:
    file.write_text("drian = 1\nidle = 'soon'\n")
    result = invoke("config", "validate", "--config", str(file))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"Error: {file}:1: drian: unknown key; did you mean drain?",
        f"Error: {file}:2: idle: 'soon' is not a duration: write 500ms, 10s, 2m, 1m30s, 1h, 1d, a number of seconds, "
        "or off",
    ]


@pytest.mark.parametrize("content", ["idle =", None], ids=["no TOML", "not there"])
def test_serve_says_what_is_wrong_with_its_file(file: Path, chosen: list[ServeConfig], content: str | None) -> None:
    file.unlink()
    if content is not None:
        file.write_text(content)
    result = invoke("serve", "--config", str(file))
    assert (result.exit_code, chosen) == (2, [])
    assert result.stderr.startswith(f"Error: {file}: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["show", "validate"])
@pytest.mark.parametrize(
    ("given", "instead"),
    [
        ("shop.toml", "did you mean --config shop.toml?"),
        ("not_there.toml", "did you mean --config not_there.toml?"),
        ("the shop.conf", "did you mean --config 'the shop.conf'?"),
        ("shop.py", "did you mean 'shop:app'?"),
    ],
)
def test_a_file_in_the_place_of_the_application_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch, command: str, given: str, instead: str
) -> None:
    monkeypatch.chdir(file.parent)
    for name in ("the shop.conf", "shop.py"):
        Path(name).touch()
    result = invoke("config", command, given)
    why = f"Error: cannot load the application {given!r}: {given!r} is a file, not a module; {instead}\n"
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", why)


@pytest.mark.parametrize("given", ["shop", "shop.web", "shop.toml:app"])
def test_a_module_need_not_exist_and_may_be_named_like_a_file(
    file: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.chdir(file.parent)
    Path("shop").touch()
    assert invoke("config", "validate", given).exit_code == 0


def test_validate_looks_at_the_certificate_and_its_key(tmp_path: Path) -> None:
    one, other = (trustme.CA().issue_cert("a.example") for _ in range(2))
    one.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    other.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    files = ("--certfile", str(tmp_path / "cert.pem"), "--keyfile", str(tmp_path / "key.pem"))
    result = invoke("config", "validate", *files)
    assert result.exit_code == 2
    assert "this private key is not the one of the certificate" in result.stderr


def test_serve_takes_the_application_and_the_rest_from_the_file(file: Path, chosen: list[ServeConfig]) -> None:
    assert invoke("serve", "--config", str(file)).exit_code == 0
    assert invoke("serve", "other:app", "--idle", "1m30s", DEADLINED_CONFIG=str(file)).exit_code == 0
    assert [(config.app, config.timeouts.idle) for config in chosen] == [("shop.web:app", 120.0), ("other:app", 90.0)]


@pytest.mark.parametrize(
    "name", [name for name, setting in SETTINGS.items() if isinstance(setting.kind, Flag) and SERVE in setting.commands]
)
def test_a_switch_can_be_turned_on_and_off_against_the_variable(name: str, chosen: list[ServeConfig]) -> None:
    setting = SETTINGS[name]
    assert invoke("serve", "a:b", setting.flag, **{setting.variable: "no"}).exit_code == 0
    assert invoke("serve", "a:b", f"--no-{setting.flag[2:]}", **{setting.variable: "yes"}).exit_code == 0
    assert [setting.value(config) for config in chosen] == [True, False]


def test_short_flags_are_those_of_other_servers(chosen: list[ServeConfig]) -> None:
    assert invoke("serve", "-p", "80", "-w", "3").exit_code == 0
    assert [(config.port, config.workers) for config in chosen] == [(80, 3)]


def test_an_unknown_variable_is_one_line_on_stderr(chosen: list[ServeConfig]) -> None:
    result = invoke("serve", DEADLINED_IDEL="5s")
    assert result.exit_code == 0
    assert result.stderr == "Warning: unknown variable DEADLINED_IDEL; did you mean DEADLINED_IDLE?\n"
    assert chosen == [ServeConfig()]


def test_the_help_has_the_groups_in_their_order_and_what_is_rarely_needed_last() -> None:
    text = invoke("serve", "--help").stdout
    titles = re.findall(r"^(\S.*):$", text, re.MULTILINE)
    assert titles == [*(group for group in GROUPS if group != "Upstream"), "Other options"]
    flags = re.findall(r"^  (?:-\w, )?(--[\w-]+)", text.partition(f"{GROUPS[0]}:")[2], re.MULTILINE)
    of_settings = [setting.flag for setting in SETTINGS.values() if setting.is_flag and SERVE in setting.commands]
    assert [flag for flag in flags if flag in of_settings] == of_settings
    assert of_settings[-2:] == ["--queue", "--precise"]
