"""What is installed of the load test: complete in itself, without the extra a clear line, and never the wrong build."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("hdrh", reason="the load test's extra is not installed: pip install .[bench]")

from loadtest import command as command_line
from loadtest import installed
from loadtest.bench.contest import Contestant

ROOT = Path(__file__).parents[2]
LOADTEST = ROOT / "loadtest"


def shipped() -> dict[str, Path]:
    """The modules that a wheel has, by their names in the package, as setup.py and pyproject.toml have them."""
    setup = ast.parse((ROOT / "setup.py").read_text())
    (modules,) = [
        ast.literal_eval(node.value)
        for node in setup.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "INSTALLED"
    ]
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    found = {"" if name == "__init__" else name: LOADTEST / f"{name}.py" for name in modules}
    for package in (name.partition(".")[2] for name in packages if name.startswith("deadlined_loadtest.")):
        for path in (LOADTEST / package).glob("*.py"):
            found[package if path.stem == "__init__" else f"{package}.{path.stem}"] = path
    return found


def relative_imports(name: str, path: Path) -> Iterator[str]:
    """The modules of the load test that one of them imports, by their names in it."""
    parent = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*parent[: len(parent) - node.level + 1], *(node.module or "").split(".")]
            module = ".".join(filter(None, base))
            yield module
            yield from (f"{module}.{one.name}".strip(".") for one in node.names if is_module(module, one.name))


def is_module(package: str, name: str) -> bool:
    folder = LOADTEST / package.replace(".", "/")
    return (folder / f"{name}.py").exists() or (folder / name / "__init__.py").exists()


def test_what_is_installed_imports_nothing_that_is_not() -> None:
    modules = shipped()
    missing = {
        f"{name} imports {wanted}"
        for name, path in modules.items()
        for wanted in relative_imports(name, path)
        if wanted not in modules
    }
    assert missing == set()
    assert all(path.exists() for path in modules.values())


def test_what_the_tools_read_is_installed() -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    for package in ("check", "churn", "openloop"):
        there = {path.name for path in (LOADTEST / package).iterdir() if path.is_file() and path.suffix != ".py"}
        assert there == set(data.get(f"deadlined_loadtest.{package}", []))


def test_the_benchmarks_are_not_installed() -> None:
    assert {name.partition(".")[0] for name in shipped()}.isdisjoint({"bench", "clients", "peers"})
    assert "bench.runner" in set(relative_imports("command", LOADTEST / "command.py")), "the finder finds"


def test_the_command_has_the_tools_and_says_its_own_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for command, text in (("check", "grade it from A to F"), ("http", "fixed rate"), ("churn", "fall silent")):
        monkeypatch.setattr(sys, "argv", ["deadlined-loadtest", command, "--help"])
        with pytest.raises(SystemExit) as end:
            installed.main()
        told = capsys.readouterr().out
        assert end.value.code == 0
        assert text in " ".join(told.split())
        assert f"deadlined-loadtest {command} " in told
        assert "python -m loadtest" not in told


def test_it_says_where_the_file_for_locust_is() -> None:
    done = CliRunner().invoke(installed.group, ["locustfile"])
    assert Path(done.output.strip()) == LOADTEST / "locustfile.py"


@pytest.mark.parametrize("main", ["loadtest.installed import main", "loadtest.__main__ import run as main"])
@pytest.mark.parametrize("module", ["rich", "hdrh.histogram", "httptools"])
def test_without_the_extra_it_says_what_to_install(module: str, main: str) -> None:
    program = f"import sys; sys.modules[{module!r}] = None; from {main}; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "--help"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"Error: {module}")
    assert "pip install 'deadlined[loadtest]'" in done.stderr
    assert "Traceback" not in done.stderr


# Which build is measured.


@pytest.mark.parametrize(("flags", "variables"), [(["--compiled"], {}), ([], {"DEADLINED_REQUIRE_COMPILED": "1"})])
def test_what_is_not_compiled_is_not_measured_in_place_of_what_is(
    flags: list[str], variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_line, "COMPILED", False)
    done = CliRunner().invoke(command_line.main, ["bench", *flags, "--quick"], env=variables)
    assert done.exit_code == 2
    told = " ".join(done.output.split())
    assert "a compiled deadlined was asked for" in told
    assert "is not compiled: pip install -e ." in told


def test_a_compiled_one_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_line, "COMPILED", True)
    assert CliRunner().invoke(command_line.main, ["bench", "--compiled", "--list", "reset"]).exit_code == 0


def test_a_missing_contestant_that_was_asked_for_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Contestant("deadlined", "not compiled (pip install -e . with a C compiler)")
    monkeypatch.setattr("loadtest.bench.programs.Programs.contestants", lambda self: [missing])
    done = CliRunner().invoke(command_line.main, ["bench", "reset", "--only-contestant", "deadlined", "--quick"])
    assert done.exit_code == 2
    assert "deadlined is missing: not compiled" in " ".join(done.output.split())
