"""What follows from flags, variables, a file and the defaults, and what is told of mistakes."""

from __future__ import annotations

import dataclasses
import math
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deadlined.http import Limits, Timeouts
from deadlined.net.sockets import longest_path
from deadlined.proxy import ProxyLimits, ProxyTimeouts
from deadlined.service.config import (
    COMMANDS,
    GROUPS,
    SERVE,
    SETTINGS,
    ConfigurationError,
    ServeConfig,
    Sources,
    resolve,
)
from deadlined.service.config.conflicts import conflicts
from deadlined.service.config.kinds import Flag
from deadlined.service.config.parts import PARTS
from deadlined.service.config.reference import page
from deadlined.service.config.showing import as_dictionary, as_toml
from tests.support.examples import examples

ROOT = Path(__file__).parents[3]


def problems(tmp_path: Path, toml: str = "", **sources: Any) -> list[str]:
    """Return what is wrong, with the file called F."""
    file = tmp_path / "conf.toml"
    file.write_text(toml)
    with pytest.raises(ConfigurationError) as caught:
        resolve(Sources(file=str(file), **sources))
    return [problem.replace(str(file), "F") for problem in caught.value.problems]


# the model


def test_every_field_is_a_setting_in_a_group_with_help() -> None:
    own = {field.name for field in msgspec.structs.fields(ServeConfig)} - {*PARTS, "routes"}
    kinds = (Timeouts, Limits, ProxyTimeouts, ProxyLimits)
    numbers = {field.name for kind in kinds for field in dataclasses.fields(kind)}
    assert set(SETTINGS) == own | numbers
    assert [name for name, setting in SETTINGS.items() if not setting.help.endswith(".")] == []
    assert {setting.group for setting in SETTINGS.values()} == set(GROUPS)
    assert all(setting.commands and set(setting.commands) <= set(COMMANDS) for setting in SETTINGS.values())


@pytest.mark.parametrize("name", SETTINGS)
def test_the_default_of_a_setting_is_that_of_the_model_and_reads_back(name: str) -> None:
    setting = SETTINGS[name]
    assert setting.value(ServeConfig()) == setting.default
    if setting.default is not None:
        assert setting.parse(setting.kind.text(setting.default)) == setting.default
        toml = tomllib.loads(f"x = {setting.kind.toml(setting.default)}")["x"]
        assert setting.accept(toml) == setting.default


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        ServeConfig().port = 1  # type: ignore[misc]


def test_the_reference_page_is_current() -> None:
    written = (ROOT / "docs" / "configuration.md").read_text()
    assert written == page(), "write it: python -m deadlined.service.config.reference > docs/configuration.md"


# precedence and origins


@pytest.mark.parametrize(
    ("flags", "environment", "toml", "idle", "origin"),
    [
        ({}, {}, "", 75.0, "default"),
        ({}, {}, "# x\nidle = '3m'", 180.0, "F:2"),
        ({}, {"DEADLINED_IDLE": ""}, "idle = 4.5", 4.5, "F:1"),
        ({}, {"DEADLINED_IDLE": "2m"}, "idle = '3m'", 120.0, "DEADLINED_IDLE"),
        ({"idle": math.inf}, {"DEADLINED_IDLE": "2m"}, "idle = '3m'", math.inf, "--idle"),
    ],
    ids=["default", "file", "empty variable", "variable", "flag"],
)
def test_a_flag_beats_a_variable_beats_the_file_beats_the_default(
    tmp_path: Path, flags: dict[str, Any], environment: dict[str, str], toml: str, idle: float, origin: str
) -> None:
    file = tmp_path / "conf.toml"
    file.write_text(toml)
    resolution = resolve(Sources(flags=flags, environment=environment, file=str(file)))
    assert resolution.config.timeouts.idle == idle
    assert resolution.origins["idle"].replace(str(file), "F") == origin
    assert resolution.warnings == ()


def test_a_file_is_read_anew_each_time(tmp_path: Path) -> None:
    file = tmp_path / "conf.toml"
    sources = Sources(file=str(file))
    for number in (1.0, 2.0):
        file.write_text(f"drain = {number}")
        assert resolve(sources).config.timeouts.drain == number


@pytest.mark.parametrize(("name", "setting"), [(n, s) for n, s in SETTINGS.items() if isinstance(s.kind, Flag)])
def test_a_switch_is_what_its_variable_says(name: str, setting: Any) -> None:
    for text, value in {"1": True, "Yes": True, "on": True, "0": False, "no": False, "OFF": False}.items():
        served = {"DEADLINED_APP": "a:b"} if SERVE in setting.commands else {"DEADLINED_UPSTREAM": "a:1"}
        given = {setting.variable: text, **served}
        assert setting.value(resolve(Sources(environment=given)).config) is value, text


@pytest.mark.parametrize("written", ["0", "'0'", "'0s'", "'off'", "inf"])
def test_no_timeout_of_worker_processes_is_written_as_off_or_0(tmp_path: Path, written: str) -> None:
    file = tmp_path / "conf.toml"
    file.write_text(f"worker_timeout = {written}")
    assert resolve(Sources(file=str(file))).config.worker_timeout == math.inf


# the variable of platforms


@pytest.mark.parametrize(
    ("command", "environment", "workers", "origin"),
    [
        ("serve", {"WEB_CONCURRENCY": "3"}, 3, "WEB_CONCURRENCY"),
        ("serve", {"WEB_CONCURRENCY": ""}, 1, "default"),
        (None, {"WEB_CONCURRENCY": "3"}, 3, "WEB_CONCURRENCY"),
        ("serve", {"WEB_CONCURRENCY": "3", "DEADLINED_WORKERS": "2"}, 2, "DEADLINED_WORKERS"),
        # what is not used is not judged
        ("serve", {"WEB_CONCURRENCY": "many", "DEADLINED_WORKERS": "2"}, 2, "DEADLINED_WORKERS"),
        # the server that is started reads it
        ("run", {"WEB_CONCURRENCY": "many", "DEADLINED_COMMAND": "x {uds}"}, 1, "default"),
        (None, {"WEB_CONCURRENCY": "3", "DEADLINED_COMMAND": "x {uds}"}, 1, "default"),
    ],
)
def test_what_other_servers_read_of_the_environment_comes_before_the_default(
    command: str | None, environment: dict[str, str], workers: int, origin: str
) -> None:
    resolution = resolve(Sources(command=command, environment=environment))
    assert (resolution.config.workers, resolution.origins["workers"]) == (workers, origin)
    assert resolution.warnings == ()


def test_it_comes_after_the_file_and_its_mistake_names_it(tmp_path: Path) -> None:
    file = tmp_path / "conf.toml"
    file.write_text("workers = 2")
    resolution = resolve(Sources(environment={"WEB_CONCURRENCY": "3"}, file=str(file)))
    assert resolution.origins["workers"] == f"{file}:1"
    assert problems(tmp_path, environment={"WEB_CONCURRENCY": "0"}) == [
        "WEB_CONCURRENCY: '0' is not allowed: write 1 to 1000; --workers comes before it"
    ]


@pytest.mark.parametrize(("number", "told"), [("3", 1), ("1", 0)])
def test_it_is_not_used_with_reload_which_is_told(number: str, told: int) -> None:
    resolution = resolve(Sources(flags={"reload": True, "app": "a:b"}, environment={"WEB_CONCURRENCY": number}))
    assert resolution.config.workers == 1
    assert resolution.warnings == ("WEB_CONCURRENCY is not used: --reload is for one process",)[:told]


# mistakes

RATES = "write a number of bytes per second, such as 500 or 16k; --body-grace off switches the check off"


@pytest.mark.parametrize(
    ("toml", "told"),
    [
        ("idle = 'soon'", "F:1: idle: 'soon' is not a duration: write 500ms, 10s"),
        ("idle = -1", "F:1: idle: -1 is not a duration"),
        ("idle = nan", "F:1: idle: nan is not a duration"),
        ("idle = true", "F:1: idle: true is not a duration"),
        ("idle = ['1s']", "F:1: idle: ['1s'] is not a duration"),
        ("idle = 1979-05-27", "F:1: idle: "),
        ("max_head = 1.5", "F:1: max_head: 1.5 is not an amount"),
        ("max_head = 0", "F:1: max_head: must be above 0; off"),
        ("body_min_rate = 0", "F:1: body_min_rate: body_min_rate must be greater than 0"),
        ("body_min_rate = 'off'", f"F:1: body_min_rate: cannot be off: {RATES}"),
        ("body_min_rate = inf", f"F:1: body_min_rate: cannot be off: {RATES}"),
        ("body_min_rate = 'low'", f"F:1: body_min_rate: 'low' is not a rate: {RATES}"),
        ("body_min_rate = true", f"F:1: body_min_rate: true is not a rate: {RATES}"),
        ("write_min_rate = 'off'", f"F:1: write_min_rate: cannot be off: {RATES.replace('body', 'write')}"),
        ("[[route]]\npath = '/'\nbody_min_rate = 'off'", f"F:3: route: body_min_rate: cannot be off: {RATES}"),
        ("ws_ping = 0", "F:1: ws_ping: must be above 0; off switches it off"),
        ("handler = 0", "F:1: handler: must be above 0; off switches it off"),
        ("read_header = '0s'", "F:1: read_header: must be above 0; off switches it off"),
        ("upstream_first_byte = 0", "F:1: upstream_first_byte: must be above 0; off switches it off"),
        ("[[route]]\npath = '/'\nwrite = 0", "F:3: route: write: must be above 0; off switches it off"),
        ("stall_log = 0", "F:1: stall_log: must be above 0; off switches it off"),
        ("port = '80'", "F:1: port: '80' is not allowed: write 0 to 65535"),
        ("port = 65536", "F:1: port: 65536 is not allowed: write 0 to 65535"),
        ("port = true", "F:1: port: true is not allowed"),
        ("workers = 0", "F:1: workers: 0 is not allowed: write 1 to 1000"),
        ("access_log_fields = ['a b']", "F:1: access_log_fields: 'a b' is not the name of a header field: write names"),
        ("access_log_fields = 'X-API-Key'", "F:1: access_log_fields: X-API-Key is never logged, because whoever reads"),
        ("access_log = 1", "F:1: access_log: 1 is neither true nor false"),
        ("access_log_lines = 'bad'", "F:1: access_log_lines: 'bad' is not known: choose one of all, errors"),
        ("tls_min = 1.2", 'F:1: tls_min: 1.2 is a number: write the text "1.2"'),
        ("tls_min = 1.1", "F:1: tls_min: 1.1 is not known: choose one of 1.2, 1.3"),
        ("tls_min = true", "F:1: tls_min: true is not known: choose one of 1.2, 1.3"),
        ("host = 1", 'F:1: host: 1 is a number: write the text "1"'),
        ("host = true", "F:1: host: true is not text: write a host"),
        ("loop = 'gevent'", "F:1: loop: 'gevent' is not known: choose one of trio, asyncio, uvloop"),
        ("lifespan = 'maybe'", "F:1: lifespan: 'maybe' is not known: choose one of auto, on, off"),
        ("lifespan = 'off'", "F:1: --lifespan needs APP"),
        (
            "forwarded_fields = 'x'",
            "F:1: forwarded_fields: 'x' is not known: choose one of both, forwarded, x-forwarded",
        ),
        ("forwarded_fields = 'x-forwarded'", "F:1: --forwarded-fields needs --trusted-proxies"),
        ("uds = ''", "F:1: uds: '' is not allowed: write a text that is not empty"),
        ("uds_mode = 0o660", 'F:1: uds_mode: 432 is a number, and may be octal or not: write a text, such as "660"'),
        ("uds_mode = 'rw'", "F:1: uds_mode: 'rw' is not a mode"),
        ("uds_mode = '007'", "F:1: uds_mode: '007' does not let the owner read and write: write three octal digits"),
        ("uds_mode = '577'", "F:1: uds_mode: '577' does not let the owner read and write"),
        ("uds_mode = '277'", "F:1: uds_mode: '277' does not let the owner read and write"),
        ("\nread_heder = 1", "F:2: read_heder: unknown key; did you mean read_header?"),
        ("read-header = 1", "F:1: read-header: unknown key; did you mean read_header?"),
        ("IDLE = 1", "F:1: IDLE: unknown key; did you mean idle?"),
        ("xyzzy = 1", "F:1: xyzzy: unknown key"),
        ("[timeouts]\nidle = 1", "F:1: timeouts: unknown key; settings are at the top of the file, in no table"),
        ("idle = 1\n[[routes]]\npath = '/'", "F:2: routes: unknown key; the tables are called [[route]]"),
        ("certfile = 'c.pem'\nkeyfile = 'k.pem'\nfactory = true", "F:3: --factory needs APP"),
        ("keyfile = 'k.pem'", "F:1: --keyfile needs --certfile"),
        ("certfile = 'c.pem'\nclient_crl = 'r.pem'", "F:2: --client-crl needs --client-ca"),
        ("certfile = 'c.pem'\nclient_certificate = 'optional'", "F:2: --client-certificate needs --client-ca"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_place(tmp_path: Path, toml: str, told: str) -> None:
    (problem,) = problems(tmp_path, toml)
    assert problem.startswith(told)


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"DEADLINED_IDLE": "soon"}, "DEADLINED_IDLE: 'soon' is not a duration"),
        ({"DEADLINED_PORT": "eighty"}, "DEADLINED_PORT: 'eighty' is not allowed: write 0 to 65535"),
        ({"DEADLINED_PORT": "tcp://10.0.0.1:80"}, "DEADLINED_PORT: 'tcp://10.0.0.1:80' is not allowed"),
        ({"DEADLINED_PRECISE": "maybe"}, "DEADLINED_PRECISE: 'maybe' is neither true nor false"),
    ],
)
def test_a_mistake_in_a_variable_is_told_with_its_name(tmp_path: Path, variables: dict[str, str], told: str) -> None:
    (problem,) = problems(tmp_path, environment=variables)
    assert problem.startswith(told)
    assert ("Kubernetes" in problem) == ("tcp:" in problem)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    found = problems(tmp_path, "port = -1\nidel = 2\n", environment={"DEADLINED_LOOP": "x", "DEADLINED_KEYFILE": "k"})
    assert [problem.split(": ")[0] for problem in found] == ["F:1", "F:2", "DEADLINED_LOOP"]


def test_a_file_that_is_not_there_is_one_mistake() -> None:
    with pytest.raises(ConfigurationError, match=r"^/no/such\.toml: cannot read it: No such file or directory$"):
        resolve(Sources(file="/no/such.toml"))


def test_the_value_of_an_unknown_key_is_not_repeated(tmp_path: Path) -> None:
    assert "hunter2" not in "".join(problems(tmp_path, "key_password = 'hunter2'\n[secrets]\na = 'hunter2'"))


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("DEADLINED_IDEL", "; did you mean DEADLINED_IDLE?"),
        ("DEADLINED_READ_HEADR", "; did you mean DEADLINED_READ_HEADER?"),
        ("DEADLINED_SERVICE_HOST", ""),
        ("DEADLINED_", ""),
    ],
)
def test_an_unknown_variable_is_told_and_changes_nothing(name: str, like: str) -> None:
    resolution = resolve(Sources(environment={name: "hunter2", "PATH": "x", "DEADLINED_DEBUG": "1"}))
    (warning,) = resolution.warnings
    assert warning.startswith(f"unknown variable {name}")
    assert warning.endswith(like)
    assert "hunter2" not in warning
    assert resolution.config == ServeConfig()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"DEADLINED_[A-Z_]+", (ROOT / "setup.py").read_text()))))
def test_a_variable_of_the_build_is_known(name: str) -> None:
    assert not resolve(Sources(environment={name: "0"})).warnings


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("reload_dir", "/My Projects/a,/b", ("/My Projects/a", "/b")),
        ("upstream", "unix:/Application Support/x.sock", ("unix:/Application Support/x.sock",)),
        ("trusted_proxies", "10.0.0.1, unix", ("10.0.0.1", "unix")),
        ("access_log_fields", "referer,\tuser-agent", ("referer", "user-agent")),
    ],
)
def test_a_list_is_separated_by_commas_alone(name: str, text: str, value: tuple[str, ...]) -> None:
    assert SETTINGS[name].parse(text) == value
    assert SETTINGS[name].accept(list(value)) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [("bind", "a:1 b:2"), ("upstream", "a:1 b:2"), ("trusted_proxies", "10.0.0.1 unix"), ("access_log_fields", "a b")],
)
def test_blanks_separate_nothing(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"'{text}' is not"):
        SETTINGS[name].parse(text)


# where to listen


@pytest.mark.parametrize(
    ("flags", "environment", "toml", "told"),
    [
        ({"bind": (":80",), "port": 80}, {}, "", "--bind and --port both say where to listen"),
        ({"uds": "x", "host": "y"}, {}, "", "--uds and --host both say where to listen"),
        ({}, {"DEADLINED_BIND": ":80", "DEADLINED_UDS": "x"}, "", "DEADLINED_BIND and DEADLINED_UDS both say"),
        ({}, {}, "bind = [':80']\nport = 80", "F:1 and F:2 both say where to listen; give all places with --bind"),
        ({"bind": (":80", ":80")}, {}, "", "--bind: :80 is given twice"),
        ({}, {}, "bind = ['80']", "F:1: bind: '80' is not a place to listen: write 127.0.0.1:8000, [::1]:8000, unix"),
        ({}, {}, "bind = 80", "F:1: bind: 80 is not a list of texts"),
        ({}, {}, "uds_owner = 'a b'", "F:1: uds_owner: 'a b' is not an owner: write user, user:group or :group"),
        ({}, {}, "uds_owner = 1000", "F:1: uds_owner: 1000 is a number: write the text"),
        ({}, {}, 'uds = "a\\u0000"', "F:1: --uds contains a null character"),
        ({}, {}, 'bind = ["unix:a", "unix:a\\u0000"]', "F:1: --bind contains a null character"),
        ({}, {}, 'uds_owner = "a\\u0000"', "F:1: --uds-owner contains a null character"),
        ({}, {}, 'admin = "unix:a\\u0000"', "F:1: --admin contains a null character"),
        ({}, {}, 'certfile = "a"\nciphers = "a\\u0000"', "F:2: --ciphers contains a null character"),
        ({}, {}, "trusted_proxies = '*'", "F:1: trusted_proxies: '*' is not a proxy: write an address"),
        ({}, {}, "admin = '9000'", "F:1: admin: '9000' is not an address: write HOST:PORT, [IPV6]:PORT or unix:PATH"),
        ({}, {"DEADLINED_ADMIN": "::1:9000"}, "", "DEADLINED_ADMIN: '::1:9000' is not an address"),
        ({}, {}, "admin = 'unix:'", f"F:1: admin: unix: needs a path of 1 to {longest_path()} b"),
        (
            {},
            {},
            "admin = ':9000'",
            "F:1: --admin: 0.0.0.0 is not a loopback address, so other machines could ask: add",
        ),
        ({}, {"DEADLINED_ADMIN": ":9000"}, "", "DEADLINED_ADMIN: --admin: 0.0.0.0 is not a loopback address"),
        ({"admin": "[fe80::1%eth0]:9000"}, {}, "", "--admin: fe80::1 is not a loopback address"),
    ],
)
def test_places_that_do_not_go_together_are_told(
    tmp_path: Path, flags: dict[str, Any], environment: dict[str, str], toml: str, told: str
) -> None:
    (problem,) = problems(tmp_path, toml, flags=flags, environment=environment)
    assert problem.startswith(told)


@pytest.mark.parametrize("place", ["127.0.0.1:9000", "[::1]:9000", "localhost:9000", "any.name:9000", "unix:/run/x"])
def test_the_admin_listener_needs_no_token_where_no_address_of_other_machines_is_given(place: str) -> None:
    assert resolve(Sources(flags={"admin": place})).config.admin == place


def test_a_program_is_told_of_a_malformed_place_of_the_admin_listener() -> None:
    (told,) = conflicts(ServeConfig(app="a:b", admin="9000"))
    assert told.startswith("--admin: '9000' is not an address")


def test_with_a_token_the_admin_listener_may_be_public() -> None:
    assert resolve(Sources(flags={"admin": ":9000", "admin_token_file": "x"})).config.admin == ":9000"


@pytest.mark.parametrize(
    ("flags", "environment", "toml", "places"),
    [
        ({"port": 81}, {"DEADLINED_UDS": "x"}, "bind = [':80']", ("127.0.0.1", 81, None, ())),
        ({"port": 81}, {"DEADLINED_HOST": "::1"}, "bind = [':80']", ("::1", 81, None, ())),
        ({"uds": "y"}, {"DEADLINED_PORT": "81"}, "host = '::1'", ("127.0.0.1", 8000, "y", ())),
        ({}, {"DEADLINED_BIND": "a:1, b:2"}, "uds = 'x'", ("127.0.0.1", 8000, None, ("a:1", "b:2"))),
        ({}, {"DEADLINED_BIND": " unix:/a b ,, c:3,"}, "", ("127.0.0.1", 8000, None, ("unix:/a b", "c:3"))),
        ({}, {}, "bind = 'a:1'", ("127.0.0.1", 8000, None, ("a:1",))),
        # as --bind "$BIND" without that variable, where an image says where to listen
        ({"bind": ()}, {"DEADLINED_HOST": "0.0.0.0", "DEADLINED_PORT": "81"}, "", ("0.0.0.0", 81, None, ())),
        ({"bind": (), "port": 81}, {}, "", ("127.0.0.1", 81, None, ())),
        ({}, {"DEADLINED_BIND": ","}, "uds = 'x'", ("127.0.0.1", 8000, "x", ())),
        ({}, {}, "bind = []\nport = 81", ("127.0.0.1", 81, None, ())),
        ({"bind": ()}, {}, "", ("127.0.0.1", 8000, None, ())),
    ],
)
def test_the_first_source_that_says_where_to_listen_counts(
    tmp_path: Path, flags: dict[str, Any], environment: dict[str, str], toml: str, places: Any
) -> None:
    file = tmp_path / "conf.toml"
    file.write_text(toml)
    resolution = resolve(Sources(flags=flags, environment=environment, file=str(file)))
    config = resolution.config
    assert (config.host, config.port, config.uds, config.bind) == places
    file.write_text(as_toml(resolution))
    assert resolve(Sources(file=str(file))).config == config


def test_an_empty_list_of_places_leaves_those_of_a_service_manager(tmp_path: Path) -> None:
    file = tmp_path / "conf.toml"
    file.write_text("bind = []")
    found = resolve(Sources(flags={"bind": ()}, file=str(file), sockets=1))
    assert (found.config.bind, found.warnings) == (("fd://3",), ())


@pytest.mark.parametrize(
    ("flags", "environment", "toml", "warnings"),
    [
        # as in an image
        (
            {},
            {"DEADLINED_HOST": "0.0.0.0"},
            "bind = ['unix:/x']",
            ["F:1: bind is not used: DEADLINED_HOST says where to listen"],
        ),
        ({"port": 81}, {}, "idle = 9\nuds = 'x'", ["F:2: uds is not used: --port says where to listen"]),
        (
            {"uds": "y"},
            {},
            "host = '::1'\nport = 82",
            ["F:1: host is not used: --uds says where to listen", "F:2: port is not used: --uds says where to listen"],
        ),
        # the same way, or none that was written into the file
        ({}, {"DEADLINED_HOST": "0.0.0.0"}, "host = '::1'\nport = 82", []),
        ({"uds": "y"}, {"DEADLINED_HOST": "0.0.0.0"}, "", []),
        ({}, {"DEADLINED_HOST": ""}, "bind = ['unix:/x']", []),
    ],
)
def test_a_file_that_says_in_vain_where_to_listen_is_told(
    tmp_path: Path, flags: dict[str, Any], environment: dict[str, str], toml: str, warnings: list[str]
) -> None:
    file = tmp_path / "conf.toml"
    file.write_text(toml)
    resolution = resolve(Sources(flags=flags, environment=environment, file=str(file)))
    assert [warning.replace(str(file), "F") for warning in resolution.warnings] == warnings


# what is shown


_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
_TEXTS = st.text(_CHARACTERS, min_size=1)


@settings(max_examples=examples(100))
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "host": st.sampled_from(["", "::1", "a.example"]),
            "port": st.integers(0, 65535),
            "app": _TEXTS,
            "certfile": _TEXTS,
            "trusted_proxies": st.just(("10.0.0.0/8", "unix")),
            "idle": st.floats(0, 1e6) | st.just(math.inf),
            "max_head": st.integers(1, 2**40).map(float) | st.just(math.inf),
            "uds_mode": st.integers(0, 0o777).map(lambda mode: mode | 0o600),
            "access_log": st.booleans(),
        },
    )
)
def test_what_is_shown_is_a_file_that_gives_the_same(tmp_path_factory: Any, flags: dict[str, Any]) -> None:
    shown = resolve(Sources(flags=flags))
    file = tmp_path_factory.mktemp("shown") / "conf.toml"
    file.write_text(as_toml(shown))
    again = resolve(Sources(file=str(file))).config
    assert again.timeouts.idle == pytest.approx(shown.config.timeouts.idle, rel=1e-12)
    exact = Timeouts()
    assert msgspec.structs.replace(again, timeouts=exact) == msgspec.structs.replace(shown.config, timeouts=exact)


def test_a_value_that_is_not_set_is_none_in_json() -> None:
    shown = as_dictionary(resolve(Sources(flags={"idle": 5.0})))
    assert shown["uds"] == {"value": None, "origin": "default", "commands": COMMANDS}
    assert shown["idle"] == {"value": "5s", "origin": "--idle", "commands": COMMANDS}
    assert shown["route"] == []
    assert list(shown) == [*SETTINGS, "route"]
