"""What a program gives wrongly to the fields of a ServeConfig."""

from __future__ import annotations

from typing import Any

import pytest

from deadlined.service import ServeConfig, StartupError, serve
from deadlined.service.config.checking import wrong_values
from deadlined.service.config.settings import SETTINGS


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"port": "8000"}, "port: '8000' is not allowed: write 0 to 65535"),
        ({"workers": 0}, "workers: 0 is not allowed: write 1 to 1000"),
        ({"workers": 1001}, "workers: 1001 is not allowed: write 1 to 1000"),
        ({"log_level": "INFO"}, "log_level: 'INFO' is not known: choose one of debug, info"),
        ({"loop": "uvlop"}, "loop: 'uvlop' is not known: choose one of trio, asyncio, uvloop"),
        ({"trusted_proxies": "127.0.0.1"}, "trusted_proxies: '127.0.0.1' is how a file has it: write ('127.0.0.1',)"),
        ({"stall_log": "2s"}, "stall_log: '2s' is how a file has it: write 2.0"),
        ({"worker_timeout": 0}, "worker_timeout: 0 is how a file has it: write inf"),
        ({"trusted_proxies": ("nginx",)}, "trusted_proxies: 'nginx' is not a proxy: write an address"),
        ({"bind": ("8000",)}, "bind: '8000' is not a place to listen: write 127.0.0.1:8000"),
        ({"uds_mode": 0o077}, "uds_mode: '077' does not let the owner read and write"),
        ({"factory": 1}, "factory: 1 is neither true nor false: write true or false"),
    ],
)
def test_a_wrong_value_is_one_line_and_not_an_error_of_what_it_breaks(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(StartupError) as caught:
        serve(ServeConfig(app="shop:app", **fields))
    assert str(caught.value).startswith(told)
    assert caught.value.exit_code == 2


def test_what_is_no_configuration_is_told_how_to_make_one() -> None:
    with pytest.raises(TypeError, match=r"serve\(ServeConfig\(app='package.module:app'\)\)"):
        serve("shop:app")  # type: ignore[arg-type]


def test_values_that_the_command_makes_are_right() -> None:
    given = {"uds_mode": "660", "bind": "127.0.0.1:1,unix:/x", "worker_timeout": "0", "stall_log": "off", "port": "80"}
    values = {name: SETTINGS[name].parse(text) for name, text in given.items()}
    assert wrong_values(ServeConfig(app="shop:app", access_log_fields=("referer",), **values)) == []
