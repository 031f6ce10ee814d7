"""A reload: what it takes over, and what it refuses without harm to the service."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme

from deadlined.service.config import ServeConfig, Sources, rereading
from deadlined.service.config.rereading import Configuration

Line = tuple[str, dict[str, Any]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "shop.toml"
    found.write_text("idle = '5s'\n")
    return found


def reread(file: Path, **flags: object) -> tuple[Configuration, rereading.Reloaded, list[Line]]:
    """Read a configuration again that was the default one; return what is logged, too."""
    lines: list[Line] = []
    configuration = Configuration(ServeConfig(), Sources(command="serve", flags=flags, file=str(file)))
    done = configuration.reread("SIGHUP", lambda event, **fields: lines.append((event, fields)))
    return configuration, done, lines


def test_what_has_changed_is_in_use(file: Path) -> None:
    configuration, done, lines = reread(file)
    assert (done.status, done.changed) == ("reloaded", {"idle": ("75s", "5s")})
    assert configuration.config.timeouts.idle == 5.0
    assert lines == [("reloaded", {"level": "info", "by": "SIGHUP", "changed": done.changed, "needs_restart": []})]


@pytest.mark.parametrize("step", ["resolve", "context_of", "changes"])
@pytest.mark.parametrize("error", [OSError("lost"), RecursionError("lost"), UnicodeError("lost")], ids=repr)
def test_an_error_that_nobody_has_thought_of_refuses_it(
    step: str, error: Exception, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(rereading, step, fail)
    configuration, done, lines = reread(file)
    told = f"{type(error).__name__}: lost"
    assert (done.status, done.problems) == ("refused", [told])
    assert configuration.config == ServeConfig()
    assert lines == [("reload refused", {"level": "error", "by": "SIGHUP", "why": told})]


def test_files_are_where_they_were_at_the_start(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = file.with_name("cert.pem")
    trustme.CA().issue_cert("shop").private_key_and_cert_chain_pem.write_to_path(whole)
    monkeypatch.chdir(file.parent)
    sources = Sources(command="serve", flags={"certfile": "cert.pem"}, file="shop.toml")
    configuration = Configuration(ServeConfig(certfile="cert.pem", client_ca=str(whole)), sources)
    assert (configuration.config.certfile, configuration.config.client_ca) == (str(whole), str(whole))
    monkeypatch.chdir("/")
    done = configuration.reread("SIGHUP", lambda *_, **__: None)
    assert (done.status, done.changed["idle"], "certfile" in done.changed) == ("reloaded", ("75s", "5s"), False)
    assert configuration.config.certfile == str(whole)


def test_a_directory_that_was_renamed_is_said_by_its_name_at_the_start(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = file.parent / "start"
    start.mkdir()
    monkeypatch.chdir(start)
    file.rename(start / file.name)
    configuration = Configuration(ServeConfig(), Sources(command="serve", file=file.name))
    start.rename(file.parent / "later")
    done = configuration.reread("SIGHUP", lambda *_, **__: None)
    assert done.problems == [f"{start / file.name}: cannot read it: No such file or directory"]
    # as of a release that is put in its place
    start.mkdir()
    (start / file.name).write_text("idle = '6s'\n")
    done = configuration.reread("SIGHUP", lambda *_, **__: None)
    assert (done.status, done.changed) == ("reloaded", {"idle": ("75s", "6s")})


def test_without_a_directory_paths_stay_as_they_are(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = tmp_path / "lost"
    lost.mkdir()
    monkeypatch.chdir(lost)
    lost.rmdir()
    configuration = Configuration(ServeConfig(certfile="cert.pem"), Sources(command="serve", file=str(file)))
    assert configuration.config.certfile == "cert.pem"
    assert configuration.reread("SIGHUP", lambda *_, **__: None).status == "reloaded"


def test_below_a_directory_that_may_not_be_searched_paths_stay_as_they_are(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "cwd", lambda: file.parent / "nobody sees this")
    configuration = Configuration(ServeConfig(certfile="cert.pem"), Sources(command="serve", file=str(file)))
    assert configuration.config.certfile == "cert.pem"


def test_the_names_of_files_may_have_bytes_that_are_not_utf8(file: Path) -> None:
    _, done, _ = reread(file, certfile=os.fsdecode(b"/lost\xff.pem"))
    assert done.problems == [r"--certfile /lost\udcff.pem: cannot read it: No such file or directory"]
    assert msgspec.json.decode(msgspec.json.encode(done), type=rereading.Reloaded) == done
