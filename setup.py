"""Compiles the hot rooms with mypyc when the package is built; without a C compiler the same files run as they are.

    DEADLINED_PURE=1              do not compile
    DEADLINED_REQUIRE_COMPILED=1  a package that cannot be compiled is not built
    DEADLINED_OPT_LEVEL=0         compile in a third of the time, and run slower; 3 unless it is set
    DEADLINED_TRAINING=0          compile once; unless it is set, gcc compiles twice at level 3: the second time by how
                                  often each line ran (deadlined/training.py), which is a tenth faster, and varies
    DEADLINED_TRAINING=1          compile twice, or do not build

Everything else is in pyproject.toml, also which modules are compiled.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
CLOCK = ROOT / "deadlined/poll/clock.h"
DOCSTRINGS = ROOT / "deadlined/docstrings.h"
THROWING = ROOT / "deadlined/throwing.h"
HEADERS = [CLOCK, DOCSTRINGS, THROWING]

# which sources the compiled modules of an editable install were made of; deadlined/freshness.py compares it
RECORD = ROOT / "deadlined/compiled.sha256"

# rooms, or single modules of one
COMPILED: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["deadlined"]["compiled"]

# what stays interpreted: re-exports, the port of the tests, which they derive from, and a structure of ctypes
INTERPRETED = {"__init__.py", "fake.py", "timerfd.py"}

# The commands that build. Others describe the package, which pip asks for twice before: nothing need be compiled then.
BUILDS = {"bdist", "bdist_wheel", "build", "build_ext", "develop", "editable_wheel", "install"}
LEVEL = os.environ.get("DEADLINED_OPT_LEVEL", "3")


def switched_on(*names: str) -> bool:
    """Is any of these environment variables 1?"""
    return any(os.environ.get(name) == "1" for name in names)


def sources() -> list[str]:
    """The files that are compiled, in a stable order."""
    found: list[Path] = []
    for name in COMPILED:
        room = ROOT / "deadlined" / name
        found += [room] if room.suffix else (path for path in room.glob("*.py") if path.name not in INTERPRETED)
    return sorted(str(path.relative_to(ROOT)) for path in found)


def digests() -> str:
    """What is compiled, as lines of `sha256sum`."""
    files = [*sources(), *(str(header.relative_to(ROOT)) for header in HEADERS)]
    return "".join(f"{hashlib.sha256((ROOT / name).read_bytes()).hexdigest()}  {name}\n" for name in files)


def remove_compiled() -> None:
    """Remove the compiled modules beside the sources, which Python would import, and their record."""
    for stale in [*ROOT.glob("deadlined/**/*.so"), *ROOT.glob("*__mypyc.*.so"), RECORD]:
        stale.unlink(missing_ok=True)


def extensions() -> list[Extension]:
    """What mypyc makes of the sources; nothing if that is not wanted or cannot be done."""
    if switched_on("DEADLINED_PURE") or BUILDS.isdisjoint(sys.argv):
        return []
    # before anything is compiled: an edit during the build must not count as compiled
    BuildAllOrNothing.record = digests()
    try:
        from mypyc.build import mypycify

        flags = [*ONE_LIBRARY, *read_the_clock_natively()]
        made: list[Extension] = list(mypycify(sources(), opt_level=LEVEL, debug_level="0", strip_asserts=False))
        for extension in made:
            # mypyc indents by up to 700 columns, and gcc takes longer to look at that than to compile
            extension.extra_compile_args = [*extension.extra_compile_args, "-Wno-misleading-indentation", *flags]
            extension.depends += [str(header) for header in HEADERS]
            for source in extension.sources:
                complete(ROOT / source)
        return made
    except (ImportError, SystemExit) as error:
        if switched_on("DEADLINED_REQUIRE_COMPILED", "DEADLINED_TRAINING"):
            raise
        give_up(error)
        return []


# Nobody replaces our functions from outside: so they may call each other directly, and be compiled into one another.
ONE_LIBRARY = ["-fvisibility=hidden", "-fno-semantic-interposition", "-fno-plt"] if sys.platform == "linux" else []

# All of mypyc's C is one file, which one processor would compile. What the linker compiles is done by all.
BY_LINKER = [*ONE_LIBRARY, f"-O{LEVEL}", "-flto=auto", "-g0"]

# What did not run is compiled as ever, and not for size. It is an error if nothing was counted.
COUNTING = [*BY_LINKER, "-fprofile-generate"]
COUNTED = [*BY_LINKER, "-fprofile-use", "-fprofile-partial-training", "-fprofile-correction", "-Werror=missing-profile"]


def read_the_clock_natively() -> list[str]:
    """Let compiled code call `time.perf_counter()` as a function of C, without Python's call and its object, where
    it is known what that does. Return the C compiler's flags for that; none where mypyc has changed."""
    if time.get_clock_info("perf_counter").implementation != "clock_gettime(CLOCK_MONOTONIC)":
        return []
    try:
        from mypyc.ir.ops import ERR_NEVER
        from mypyc.ir.rtypes import float_rprimitive
        from mypyc.primitives.registry import function_op

        function_op("time.perf_counter", [], float_rprimitive, "deadlined_perf_counter", ERR_NEVER)
    except (ImportError, TypeError) as error:
        print(f"deadlined: the clock is read through Python, because mypyc has changed: {error}", file=sys.stderr)
        return []
    return ["-include", str(CLOCK)]


def complete(generated: Path) -> None:
    """Add to a C file of mypyc's the sources' docstrings, of which it has signatures at best, how an error is thrown
    into what is awaited, and what is cold. Idempotent.

    What has no place, because mypyc has changed, is left out; tests/test_docstrings.py would tell, and
    tests/runtime/test_throwing.py.
    """
    docs = docstrings()

    def after_signature(match: re.Match[str]) -> str:
        return match[0] + c_string(docs.get(match["symbol"], ""))

    def with_signature(match: re.Match[str]) -> str:
        doc = docs.get(match["symbol"], "")
        return f'{match["before"]}"{c_string(docs["()" + match["symbol"]] + doc)}"' if doc else match[0]

    def of_property(match: re.Match[str]) -> str:
        doc = docs.get(f"{match['symbol']}___{match['name']}", "")
        return f'{match["before"]}PyDoc_STR("{c_string(doc)}"), NULL}}' if doc else match[0]

    text = generated.read_text(encoding="utf-8")
    text = METHOD.sub(after_signature, text)
    text = UNSIGNED.sub(with_signature, text)
    text = CLASS.sub(after_signature, text)
    text = PROPERTY.sub(of_property, text)
    wrapper = "#include <function_wrapper.c>\n"
    if str(DOCSTRINGS) not in text:
        text = text.replace("CPyFunction_New(", "deadlined_function(")
        text = text.replace("CPy_YieldFromErrorHandle(", "deadlined_throw_into(")
        cold = [f"extern __typeof__({name}) {name} __attribute__((cold));\n" for name in COLD if f" {name}(" in text]
        headers = [f'#include "{header}"\n' for header in (DOCSTRINGS, THROWING)]
        text = text.replace(wrapper, "".join([wrapper, *headers, *cold]))
    generated.write_text(text, encoding="utf-8")


# Called only after an error. If the compiler knows that, it keeps the path of each line's error, a quarter of all code,
# out of the way of what runs, and so out of the processor's caches.
COLD = ["CPy_AddTraceback", "CPy_TypeErrorTraceback", "CPy_TypeError", "CPyError_OutOfMemory", "PyErr_SetString"]

# where a docstring belongs in mypyc's C
METHOD = re.compile(r'\(PyCFunction\)CPyPy_(?P<symbol>\w+),\s+METH_[\w |]+, PyDoc_STR\("[^"\n]*\)\\n--\\n\\n(?="\))')
UNSIGNED = re.compile(r"(?P<before>\(PyCFunction\)CPyPy_(?P<symbol>\w+),\s+METH_[\w |]+, PyDoc_STR\()NULL(?=\))")
CLASS = re.compile(r'sizeof\((?P<symbol>\w+)Object\)[^;]*\.tp_doc = PyDoc_STR\("[^"\n]*\)\\n--\\n\\n(?="\))')
PROPERTY = re.compile(
    r'(?P<before>\{"(?P<name>\w+)",\s+\(getter\)(?P<symbol>\w+)_get_(?P=name),[^}]*?\s)NULL, NULL\}', re.DOTALL
)


@functools.cache
def docstrings() -> dict[str, str]:
    """Every docstring of the compiled sources by the names that mypyc's C may have for its object.

    A name is the end of the module's name, as much of it as is needed, and the name in the module. With "()" before it,
    it has a function's signature, for those where mypyc cannot write one.
    """
    found: dict[str, str] = {}
    for source in sources():
        module = Path(source).with_suffix("").parts
        for name, signature, doc in docstrings_in(ast.parse((ROOT / source).read_text(encoding="utf-8"))):
            for start in range(len(module)):
                found["___".join([*module[start:], *name])] = doc
                found["()" + "___".join([*module[start:], *name])] = signature
    return found


def docstrings_in(scope: ast.Module | ast.ClassDef) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """The names in a module, of functions, classes and their members; their signatures and docstrings."""
    for node in scope.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield (node.name,), signature_of(node), ast.get_docstring(node) or ""
        elif isinstance(node, ast.ClassDef):
            yield (node.name,), "", ast.get_docstring(node) or ""
            yield from (((node.name, *name), signature, doc) for name, signature, doc in docstrings_in(node))
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__":
            fields = ast.literal_eval(node.value)
            # a dictionary holds the docstrings of the fields
            yield from (((name,), "", doc) for name, doc in fields.items() if doc) if isinstance(fields, dict) else ()


def signature_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """As CPython wants it in C, with `...` in place of the defaults."""
    arguments = function.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        argument.annotation = None
    for defaults in (arguments.defaults, arguments.kw_defaults):
        defaults[:] = [default and ast.Constant(...) for default in defaults]
    text = ast.unparse(arguments)
    return f"{function.name}({'$' if text.startswith('self') else ''}{text})\n--\n\n"


def c_string(text: str) -> str:
    """The inside of a C string literal."""
    return "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}" for byte in text.encode())


def give_up(error: BaseException) -> None:
    """Say that the package is built without machine code, and why."""
    print(f"deadlined: not compiled, the same files will be interpreted: {error}", file=sys.stderr)


# the modules of loadtest/ itself that its installed commands need; beside them three packages (pyproject.toml)
LOADTEST = "deadlined_loadtest"
INSTALLED = {"__init__", "commands", "crew", "histogram", "installed", "interrupts", "line",
             "locustfile", "loop", "output", "report", "servers", "target", "users", "wire"}  # fmt: skip


class BuildTools(build_py):
    """Packages the load test's tools without its benchmarks; and none of it where it was not copied, as in an image."""

    def finalize_options(self) -> None:
        """Leave out what is not there."""
        super().finalize_options()
        if not (ROOT / "loadtest").is_dir():
            self.packages = [name for name in self.packages if name.partition(".")[0] != LOADTEST]

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """Leave out the benchmarks."""
        found: list[tuple[str, str, str]] = super().find_package_modules(package, package_dir)
        return [one for one in found if package != LOADTEST or one[1] in INSTALLED]


class BuildAllOrNothing(build_ext):
    """A build of which half the modules are compiled would not import."""

    record = ""  # of what is compiled, if anything is
    beside = False  # do the compiled modules go into the checkout?

    def run(self) -> None:
        """Build; or leave nothing behind."""
        # while setuptools builds, `inplace` is off: it copies at the end
        self.beside = bool(self.inplace or self.editable_mode)
        self.remove_old_ones()
        try:
            super().run()
            if self.extensions and self.beside:
                RECORD.write_text(self.record, encoding="utf-8")
        except Exception as error:
            if switched_on("DEADLINED_REQUIRE_COMPILED", "DEADLINED_TRAINING"):
                raise
            give_up(error)
            for output in self.get_outputs():
                Path(output).unlink(missing_ok=True)
            self.remove_old_ones()
            self.extensions = []

    def build_extensions(self) -> None:
        """Compile by what runs how often; without that knowledge where it cannot be had."""
        if self.extensions and self.is_to_be_trained():
            try:
                self.train()
                return
            except Exception as error:
                if switched_on("DEADLINED_TRAINING"):
                    raise
                print(f"deadlined: compiled without training, and a tenth slower: {error}", file=sys.stderr)
        super().build_extensions()

    def is_to_be_trained(self) -> bool:
        """Is that wanted? Unless somebody has said so, is the build to be fast, and the compiler gcc?"""
        wanted = os.environ.get("DEADLINED_TRAINING") or ("" if LEVEL == "3" else "0")
        asked = [self.compiler.compiler_so[0], "--version"]
        return wanted == "1" or (wanted != "0" and b"Free Software Foundation" in subprocess.check_output(asked))

    def train(self) -> None:
        """Compile what counts how often each line runs, run it, and compile by that. After an error the flags are as
        before, and what was compiled is not used."""
        # what all modules have in common, which is nearly all
        library = next(extension for extension in self.extensions if extension.name.endswith("__mypyc"))
        before = library.extra_compile_args, library.extra_link_args
        try:
            for flags in (COUNTING, COUNTED):
                library.extra_compile_args, library.extra_link_args = ([*own, *flags] for own in before)
                super().build_extensions()
                self.force = True
                if flags is COUNTING:
                    self.run_training()
        finally:
            library.extra_compile_args, library.extra_link_args = before

    def run_training(self) -> None:
        """Run what is to be fast, with the modules that count."""
        if self.beside:
            self.copy_extensions_to_source()
        where = str(ROOT if self.beside else Path(self.build_lib).absolute())
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([where, *sys.path])}
        command = [sys.executable, "-P", "-m", "deadlined.training"]
        subprocess.run(command, check=True, cwd=where, env=environment, timeout=300)

    def remove_old_ones(self) -> None:
        """An editable install imports what lies beside the sources, also if it was made from other sources."""
        if self.beside:
            remove_compiled()


# an editable install that is not compiled must not import what an earlier one has left
if switched_on("DEADLINED_PURE") and "editable_wheel" in sys.argv:
    remove_compiled()

setup(ext_modules=extensions(), cmdclass={"build_ext": BuildAllOrNothing, "build_py": BuildTools})
