"""setup.py: a build compiles by the counts of its own run, and has a plain library where those cannot be had.

A C file of a few lines takes the place of the package's, and a line of Python that of its run. setup.py, setuptools and
the compiler are the real ones.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[1] / "setup.py"


def has_compiler() -> bool:
    """Are gcc and the headers of this Python there? On macOS gcc is another compiler's name."""
    gcc, header = shutil.which("gcc"), Path(sysconfig.get_path("include"), "Python.h")
    return gcc is not None and header.exists() and b"Free Software" in subprocess.check_output([gcc, "--version"])


pytestmark = pytest.mark.skipif(not has_compiler(), reason="no gcc, or no headers of Python")

SOURCE = """
#include <Python.h>

static PyObject *total(PyObject *module, PyObject *unused) {
    long sum = 0;
    for (long number = 0; number < 1000; number++)
        sum += number;
    return PyLong_FromLong(sum);
}

static PyMethodDef methods[] = {{"total", total, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "small__mypyc", NULL, -1, methods};
PyMODINIT_FUNC PyInit_small__mypyc(void) { return PyModule_Create(&definition); }
"""

# setup.py itself calls `setup` at its end
BUILD = """
import importlib.util, logging, sys, setuptools
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
setuptools.setup = lambda **_: None
spec = importlib.util.spec_from_file_location("setup_py", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
extensions = [setuptools.Extension("small__mypyc", ["small.c"])]
command = module.BuildAllOrNothing(setuptools.Distribution({"name": "small", "ext_modules": extensions}))
command.build_lib = "lib"
command.ensure_finalized()
command.run()
"""

COUNTS = "import small__mypyc; assert small__mypyc.total() == 499500"
CANNOT = "raise SystemExit('no loopback interface')"


@dataclass(frozen=True)
class Build:
    """What a build has said, and made."""

    code: int
    output: str
    library: bytes | None

    @property
    def compilations(self) -> list[str]:
        """The command lines of the compiler."""
        return [line for line in self.output.splitlines() if " -c small.c" in line]


def build(folder: Path, run: str, **variables: str) -> Build:
    """Build in an empty folder; `run` is the program that is to be counted."""
    package = folder / "lib" / "deadlined"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "training.py").write_text(run)
    (folder / "small.c").write_text(SOURCE)
    plain = {name: value for name, value in os.environ.items() if not name.startswith("DEADLINED_")}
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(SETUP)], cwd=folder, env={**plain, "CC": "gcc", **variables},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    library = next((folder / "lib").glob("small__mypyc*.so"), None)
    if library is not None:
        subprocess.run([sys.executable, "-c", COUNTS], cwd=folder / "lib", check=True)
    return Build(done.returncode, done.stdout, None if library is None else library.read_bytes())


def test_it_compiles_what_counts_and_then_by_the_counts(tmp_path: Path) -> None:
    done = build(tmp_path, COUNTS)
    assert done.code == 0, done.output
    first, second = done.compilations
    assert "-fprofile-generate" in first
    assert "-fprofile-use" in second
    assert "without training" not in done.output
    assert done.library
    assert b"__gcov" not in done.library


@pytest.mark.parametrize("run", [CANNOT, "# counts nothing"])
def test_it_compiles_once_more_without_counts_if_there_are_none(run: str, tmp_path: Path) -> None:
    done = build(tmp_path, run)
    assert done.code == 0, done.output
    assert "deadlined: compiled without training, and a tenth slower: " in done.output
    assert "-fprofile" not in done.compilations[-1]
    assert done.library
    assert b"__gcov" not in done.library


@pytest.mark.parametrize("variables", [{"DEADLINED_TRAINING": "0"}, {"DEADLINED_OPT_LEVEL": "0"}])
def test_it_compiles_once_if_that_is_wanted(variables: dict[str, str], tmp_path: Path) -> None:
    done = build(tmp_path, CANNOT, **variables)
    assert done.code == 0, done.output
    assert len(done.compilations) == 1
    assert "-fprofile" not in done.output
    assert done.library


def test_a_level_that_is_no_default_is_trained_if_that_is_wanted(tmp_path: Path) -> None:
    done = build(tmp_path, COUNTS, DEADLINED_OPT_LEVEL="1", DEADLINED_TRAINING="1")
    assert done.code == 0, done.output
    assert len(done.compilations) == 2


def test_it_fails_if_counts_are_wanted_and_cannot_be_had(tmp_path: Path) -> None:
    done = build(tmp_path, CANNOT, DEADLINED_TRAINING="1")
    assert done.code != 0
    assert "no loopback interface" in done.output
    assert "not compiled, the same files will be interpreted" not in done.output


def test_a_source_that_no_compiler_takes_leaves_nothing_behind(tmp_path: Path) -> None:
    done = build(tmp_path, COUNTS, CC="false")
    assert done.code == 0, done.output
    assert "deadlined: not compiled, the same files will be interpreted: " in done.output
    assert done.library is None


def test_that_is_an_error_if_the_package_must_be_compiled(tmp_path: Path) -> None:
    done = build(tmp_path, COUNTS, CC="false", DEADLINED_REQUIRE_COMPILED="1")
    assert done.code != 0
    assert done.library is None
