"""The house: imports point down only, and the package loads no more than it must."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

import pytest

import deadlined

ROOT = Path(__file__).parents[1]
PACKAGE = Path(deadlined.__file__).parent
FACE = "(face)"

# The floor of each room. An import from another room must point to a floor strictly below; within a room it is free.
# The face is `deadlined/__init__.py`, which shows what the rooms below it have.
FLOORS = {
    "__main__": 90,
    "cli": 80,
    "health": 70,  # a command, of the standard library alone
    "service": 70,
    "training": 70,  # what the package is compiled by; nothing of the package needs it
    "asgi": 60,
    "proxy": 60,
    "http": 50,
    FACE: 65,
    "net": 40,
    "timing": 30,
    "runtime": 20,
    "poll": 10,
    "threads": 10,
    "terminal": 10,  # of the standard library alone: the command loads it before all else
    "timers": 0,
    "errors": 0,
    "freezing": 0,  # of the standard library and PyInstaller, inside of which it runs
    "freshness": 0,
    "value": -10,
}

# The same for the rooms of the service, whose face is `deadlined/service/__init__.py`.
FLOORS_OF_SERVICE = {
    FACE: 80,
    "serving": 70,
    "content": 60,
    "admin": 50,
    "command": 50,
    "workers": 40,
    "listening": 30,
    "config": 20,
    "process": 20,
    "log": 10,
    "tls": 10,
    "errors": 0,
}
HOUSES = {"deadlined": FLOORS, "deadlined.service": FLOORS_OF_SERVICE}

# Two modules that need each other: the import, which is for type checkers only, and why it may be.
CYCLES = {
    ("deadlined.poll.desc", "deadlined.poll.poller"): (
        "a half moves its own timer in its poller, with one call less than a seam would cost, and a poller makes halves"
    ),
    ("deadlined.threads.handle", "deadlined.threads.bucket"): (
        "a handle stops itself under the lock of the bucket that it is armed in, and a bucket calls what is due"
    ),
    ("deadlined.threads.process", "deadlined.threads.bucket"): (
        "the process mends its buckets after a fork, and a bucket enters itself there"
    ),
}

# The two implementations of a host, which do not know each other: the modules that choose between them, and what they
# know of the other modules of the runtime.
HOSTS = ("deadlined.runtime.on_trio", "deadlined.runtime.on_asyncio")
CHOOSERS = {"deadlined.runtime", "deadlined.runtime.current", "deadlined.runtime.loops"}
SEAMS = tuple(f"deadlined.runtime.{name}" for name in ("forking", "guest", "host", "options", "tasks"))

# the libraries of event loops, and the part of trio that is a library of its own
LOOP_LIBRARIES = ("trio", "outcome", "sniffio", "asyncio", "uvloop", "anyio")

# Which of them a host may use, and what else is used of them, by the modules that use it. All others use nothing: above
# `net` one source runs on every event loop.
HOST_LIBRARIES = {"deadlined.runtime.on_trio": ("trio", "outcome"), "deadlined.runtime.on_asyncio": ("asyncio",)}
LOOP_NAMES = {
    # protects functions of other floors from Ctrl-C
    "deadlined.runtime": {"trio.lowlevel.enable_ki_protection"},
    # tells which event loop runs; runs one
    "deadlined.runtime.current": {"trio.Cancelled"},
    "deadlined.runtime.guest": {
        "sniffio.thread_local",
        "sniffio.thread_local.name",
        "trio.lowlevel.RunVar",
        "trio.lowlevel.current_root_task",
    },
    "deadlined.runtime.loops": {"trio.run"},
    # is an application, which sleeps as those of its event loop do
    "deadlined.training": {"trio.sleep", "asyncio.sleep"},
    # by these trio's programs know streams and errors
    "deadlined.net.conn": {"trio.abc.HalfCloseableStream"},
    "deadlined.net.tls": {"trio.abc.HalfCloseableStream"},
    "deadlined.net.listener": {"trio.abc.Listener"},
    "deadlined.net.datagram": {"trio.abc.AsyncResource"},
    "deadlined.net.errors": {f"trio.{kind}ResourceError" for kind in ("Broken", "Busy", "Closed")},
}

# shadowed by a script's own directory on sys.path, or read as the standard library's by everyone
FORBIDDEN_NAMES = {"time", "socket", "queue", "select", "logging"}

# what "no clock, no I/O" means for the ground floor
CLOCKS_AND_IO = {"asyncio", "select", "selectors", "signal", "socket", "ssl", "threading", "time"}

# what `import deadlined` may load beside the standard library: trio with its own dependencies, and h11
LOADED = {"attr", "attrs", "cffi", "deadlined", "exceptiongroup", "h11", "idna", "outcome", "sniffio"} | {
    "sortedcontainers",
    "trio",
    # of the standard library itself, where Debian has packed it
    "_missing_stdlib_info",
}


@dataclass(frozen=True)
class Import:
    """One imported name: the module that imports, the dotted target, its line, and when it is imported."""

    module: str
    target: str
    line: int
    on_load: bool


def module_name(path: Path, package: Path) -> str:
    parts = [package.name, *path.relative_to(package).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room(module: str, house: str = "deadlined") -> str:
    """`deadlined.net.conn` is in `net`; `deadlined` itself, and a name that is no room, is the face."""
    name = module.removeprefix(f"{house}.").split(".")[0]
    return name if name in HOUSES[house] else FACE


def imports(source: str, module: str, is_package: bool) -> Iterator[Import]:
    """Every import anywhere in `source`, with relative ones resolved.

    `from a import b` is an import of `a.b`, because b may be a module.
    """
    package = module.split(".") if is_package else module.split(".")[:-1]
    tree = ast.parse(source)
    deferred = _deferred(tree)
    for node in ast.walk(tree):
        on_load = node not in deferred
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno, on_load)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            for alias in node.names:
                target = [*base, *(node.module or "").split("."), alias.name]
                yield Import(module, ".".join(part for part in target if part), node.lineno, on_load)


def _deferred(tree: ast.Module) -> set[ast.AST]:
    """The imports that do not run when the module is loaded: those in functions, and those for type checkers."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.update(ast.walk(node))
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            found.update(inner for statement in node.body for inner in ast.walk(statement))
    return found


def upward(found: Iterable[Import]) -> list[str]:
    """What breaks the tables of floors."""
    broken = []
    for item, (house, floors) in product(found, HOUSES.items()):
        if not (within(item.module, (house,)) and within(item.target, (house,))):
            continue
        here, there = room(item.module, house), room(item.target, house)
        if here != there and floors[there] >= floors[here]:
            broken.append(f"{item.module}:{item.line} ({here}) imports {item.target} ({there})")
    return broken


def loop_names(source: str) -> list[tuple[int, str]]:
    """The names of event loops' libraries that `source` uses: imported from them, or read off them by attributes. A
    library that is used as a whole, for example by `getattr`, is the name of the library."""
    tree = ast.parse(source)
    found, known = [], {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and within(node.module or "", LOOP_LIBRARIES):
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                found.append((node.lineno, f"{node.module}.{alias.name}"))
        elif isinstance(node, ast.Import):
            known |= {
                alias.asname or alias.name.split(".")[0]: alias.name if alias.asname else alias.name.split(".")[0]
                for alias in node.names
                if within(alias.name, LOOP_LIBRARIES)
            }
    inner = {node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    chains = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Name) and node not in inner]
    dotted = [(node.lineno, ast.unparse(node).split(".")) for node in chains]
    return sorted(
        found + [(line, ".".join([known[first], *rest])) for line, (first, *rest) in dotted if first in known]
    )


def forbidden_loop_names(source: str, module: str) -> list[str]:
    """What `source` uses of event loops' libraries and may not, by HOST_LIBRARIES and LOOP_NAMES."""
    allowed = {*HOST_LIBRARIES.get(within(module, HOST_LIBRARIES), ()), *LOOP_NAMES.get(module, ())}
    loaded = [(item.line, item.target) for item in imports(source, module, is_package=False)]
    needless = [
        (line, name)
        for line, name in loaded
        if within(name, LOOP_LIBRARIES) and not any(within(name, (one,)) or within(one, (name,)) for one in allowed)
    ]
    used = [(line, name) for line, name in loop_names(source) if not within(name, allowed)]
    return [f"{module}:{line} uses {name}" for line, name in sorted({*needless, *used})]


def past_the_seams(found: Iterable[Import]) -> list[str]:
    """Imports of a host by any module but those that choose one, and imports of the runtime by a host that are no seam.
    Within a host imports are free."""
    broken = []
    for item in found:
        here, there = within(item.module, HOSTS), within(item.target, HOSTS)
        if there not in ("", here) and item.module not in CHOOSERS:
            broken.append(f"{item.module}:{item.line} imports {item.target}, which is a host's own")
        if here and not there and within(item.target, ("deadlined.runtime",)) and not within(item.target, SEAMS):
            broken.append(f"{item.module}:{item.line} imports {item.target}, which is no seam of a host")
    return broken


def within(name: str, packages: Iterable[str]) -> str:
    """Return the package or module of `packages` that `name` is, or lies in; "" if there is none."""
    return next((package for package in packages if f"{name}.".startswith(f"{package}.")), "")


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """The modules of one import cycle, empty if there is none."""
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        for target in sorted(graph.get(module, ())):
            if found := visit(target, [*path, module]):
                return found
        done.add(module)
        return []

    return next((found for module in sorted(graph) if (found := visit(module, []))), [])


def load_graph(found: Iterable[Import], modules: set[str]) -> dict[str, set[str]]:
    """Which module of ours loads which: the imported module itself, or the package that holds the imported name."""
    return need_graph((item for item in found if item.on_load), modules)


def need_graph(found: Iterable[Import], modules: set[str]) -> dict[str, set[str]]:
    """Which module of ours needs which, be it for type checkers or in a function only."""
    graph: dict[str, set[str]] = {module: set() for module in modules}
    for item in found:
        target = item.target if item.target in modules else item.target.rpartition(".")[0]
        if target in modules:
            graph[item.module].add(target)
    return graph


def without(graph: dict[str, set[str]], edges: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """The graph, with some edges taken away."""
    gone = set(edges)
    return {module: {target for target in targets if (module, target) not in gone} for module, targets in graph.items()}


def private_uses(source: str) -> list[str]:
    """Private names that `source` takes from elsewhere: imported, or read off something that it did not define."""
    tree = ast.parse(source)
    own = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    own |= {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}}
    own |= {"_exit", "_getframe"}  # os and sys call these public
    used = [f"{node.lineno}: .{node.attr}" for node in attributes if _private(node.attr) and node.attr not in own]
    taken = imports(source, "somewhere.else", is_package=False)
    return used + [f"{item.line}: {item.target}" for item in taken if any(map(_private, item.target.split(".")))]


def _private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def sources(folder: Path) -> list[Path]:
    hidden = {"__pycache__", "build", "results"}
    return [path for path in sorted(folder.rglob("*.py")) if not hidden & set(path.relative_to(folder).parts)]


@cache
def all_imports() -> list[Import]:
    return [
        item
        for path in sources(PACKAGE)
        for item in imports(path.read_text(), module_name(path, PACKAGE), path.name == "__init__.py")
    ]


# The house as it stands.


@pytest.mark.parametrize("house", HOUSES)
def test_every_module_lives_in_a_room_that_has_a_floor(house: str) -> None:
    folder = PACKAGE.joinpath(*house.split(".")[1:])
    top = {path.name.removesuffix(".py") for path in folder.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))}
    assert top - {"__init__"} == set(HOUSES[house]) - {FACE}


def test_imports_point_down_only() -> None:
    assert upward(all_imports()) == []


@pytest.mark.parametrize("path", sources(PACKAGE), ids=lambda path: module_name(path, PACKAGE))
def test_a_module_uses_of_event_loops_what_the_tables_allow_it(path: Path) -> None:
    assert forbidden_loop_names(path.read_text(), module_name(path, PACKAGE)) == []


def test_no_module_is_allowed_what_it_does_not_use() -> None:
    used = {
        module: {name for _, name in loop_names(path.read_text())}
        for path in sources(PACKAGE)
        if (module := module_name(path, PACKAGE)) in LOOP_NAMES
    }
    assert used == LOOP_NAMES


def test_the_hosts_are_reached_and_reach_the_runtime_through_the_seams_only() -> None:
    assert past_the_seams(all_imports()) == []
    assert all(any(within(item.module, (host,)) for item in all_imports()) for host in HOSTS)


def test_the_timers_know_no_clock_and_do_no_io() -> None:
    ground = [item for item in all_imports() if FLOORS[room(item.module)] <= 0]
    assert ground
    assert [item for item in ground if item.target.split(".")[0] in CLOCKS_AND_IO] == []


def test_no_module_has_the_name_of_one_in_the_standard_library_that_it_would_hide() -> None:
    assert {path.stem for path in PACKAGE.rglob("*")} & FORBIDDEN_NAMES == set()


def test_no_module_is_loaded_by_what_it_loads() -> None:
    modules = {module_name(path, PACKAGE) for path in sources(PACKAGE)}
    assert cycle(load_graph(all_imports(), modules)) == []


def test_no_module_needs_one_that_needs_it_but_the_exceptions() -> None:
    modules = {module_name(path, PACKAGE) for path in sources(PACKAGE)}
    graph = need_graph(all_imports(), modules)
    assert cycle(without(graph, CYCLES)) == []
    assert [edge for edge in CYCLES if not cycle(without(graph, set(CYCLES) - {edge}))] == [], "no exception any more"


def test_the_load_test_uses_public_names_only() -> None:
    used = [f"{path.name}:{use}" for path in sources(ROOT / "loadtest") for use in private_uses(path.read_text())]
    assert used == []


def test_every_module_says_what_it_is_for() -> None:
    files = [path for folder in ("loadtest", "examples", "tests") for path in sources(ROOT / folder)]
    silent = [path.name for path in sources(PACKAGE) + files if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


LOADED_BY = """
import sys
before = set(sys.modules)
import {module}
new = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(*sorted(new - set(sys.stdlib_module_names)))
"""


ROOMS = ("asgi", "http", "net", "poll", "proxy", "runtime", "threads", "timers", "timing")


# each of them is the first one that is loaded
@pytest.mark.parametrize("module", ["deadlined", *(f"deadlined.{name}" for name in ROOMS)])
def test_importing_the_library_loads_trio_and_h11_and_no_more(module: str) -> None:
    program = LOADED_BY.format(module=module)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = set(result.stdout.split())
    assert "deadlined" in loaded
    assert {name for name in loaded - LOADED if not name.endswith("__mypyc") and not name.startswith("_cffi")} == set()


def test_a_name_of_the_library_is_loaded_when_it_is_used_and_can_be_seen_before() -> None:
    program = (
        "import sys, deadlined\n"
        "assert set(deadlined.__all__) | {'net', 'timers'} <= set(dir(deadlined))\n"
        "assert 'trio' not in sys.modules and not hasattr(deadlined, 'no_such_name')\n"
        "from deadlined import *\n"
        "assert open_udp is deadlined.open_udp is deadlined.net.open_udp and 'trio' in sys.modules\n"
        "print(*sorted(name for name in deadlined.__all__ if name not in vars(deadlined)))\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout == "\n"


@pytest.mark.parametrize("name", ROOMS)
def test_a_package_can_be_used_after_the_library_was_imported_alone(name: str) -> None:
    program = f"import deadlined; print(deadlined.{name}.__name__)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (result.stdout, result.stderr) == (f"deadlined.{name}\n", "")


def test_type_checkers_know_the_packages_after_the_library_was_imported_alone() -> None:
    """It fails where mypy reads it."""
    found = [deadlined.asgi, deadlined.errors, deadlined.http, deadlined.net, deadlined.poll, deadlined.proxy]
    found += [deadlined.runtime, deadlined.threads, deadlined.timers, deadlined.timing]
    assert len(found) == len(set(found))


# The checker itself, both ways.


def found_in(source: str, module: str, is_package: bool = False) -> list[Import]:
    return list(imports(source, module, is_package))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("deadlined.http.server", "from ..net import Conn"),
        ("deadlined.http.server", "from .phases import Phase"),
        ("deadlined.service.serving.running", "from ... import DeadlineExceeded"),
        ("deadlined.poll.desc", "from ..timers.timer import Timer"),
        ("deadlined.cli", "def main():\n    from .service import run"),
        ("deadlined.poll.desc", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .poller import Poller"),
        ("deadlined.timers.timer", "import math"),
        ("deadlined.service.workers.link", "from ..log.logs import Log"),
        ("deadlined.service.workers.link", "from .frames import Frames"),
        ("deadlined.service.workers.link", "from ...http import HttpServer"),
    ],
)
def test_the_checker_lets_downward_imports_pass(module: str, source: str) -> None:
    found = found_in(source, module)
    assert upward(found) == []
    assert forbidden_loop_names(source, module) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("deadlined.net.conn", "from ..http import Timeouts"),
        ("deadlined.net.conn", "from .. import http"),
        ("deadlined.net.conn", "from .. import DeadlineExceeded"),
        ("deadlined.net.conn", "import deadlined.service.log.logs"),
        ("deadlined.net.conn", "import deadlined"),
        ("deadlined.asgi", "from deadlined.proxy import pool"),
        ("deadlined.proxy.pool", "from ..asgi import AsgiHandler"),
        ("deadlined.threads", "from .poll import Half"),
        ("deadlined.timers.timer", "from ..errors import DeadlineExceeded"),
        ("deadlined.service.workers.link", "from ..serving.running import Running"),
        ("deadlined.service.command.child", "def late():\n    from ..admin import gate"),
        ("deadlined.service.log.logs", "from .. import StartupError"),
        ("deadlined.timers.timer", "def late():\n    from ..runtime import Pump"),
        ("deadlined.timers.timer", "class A:\n    def late(self):\n        import deadlined.net.conn"),
        ("deadlined.poll.desc", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..runtime import Pump"),
    ],
)
def test_the_checker_stops_imports_that_point_up_or_sideways(module: str, source: str) -> None:
    assert len(upward(found_in(source, module))) == 1


def test_the_checker_resolves_relative_imports_from_a_package_and_from_a_module() -> None:
    assert found_in("from .conn import Conn", "deadlined.net", is_package=True)[0].target == "deadlined.net.conn.Conn"
    assert found_in("from .conn import Conn", "deadlined.net.dial")[0].target == "deadlined.net.conn.Conn"
    assert found_in("from . import errors", "deadlined", is_package=True)[0].target == "deadlined.errors"
    assert found_in("from ...a import b", "deadlined.x.y.z")[0].target == "deadlined.a.b"


@pytest.mark.parametrize(
    ("module", "source", "name"),
    [
        ("deadlined.timers.timer", "import trio", "trio"),
        ("deadlined.poll.desc", "from trio.lowlevel import reschedule", "trio.lowlevel.reschedule"),
        ("deadlined.errors", "def late():\n    import trio.abc", "trio.abc"),
        ("deadlined.timing", "import asyncio", "asyncio"),
        ("deadlined.http.server", "from trio import Event as Flag", "trio.Event"),
        ("deadlined.asgi.handler", "from anyio.abc import TaskGroup", "anyio.abc.TaskGroup"),
        ("deadlined.cli", "import uvloop", "uvloop"),
        ("deadlined.http.a", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import asyncio", "asyncio"),
        ("deadlined.net.conn", "import trio\ntrio.lowlevel.checkpoint()", "trio.lowlevel.checkpoint"),
        ("deadlined.net.conn", "import trio as t\nt.sleep(1)", "trio.sleep"),
        ("deadlined.net.conn", "import trio\ngetattr(trio, 'sleep')(1)", "trio"),
        ("deadlined.net.conn", "import trio.abc as abc\nclass A(abc.Clock): ...", "trio.abc.Clock"),
        ("deadlined.net.conn", "import asyncio", "asyncio"),
        ("deadlined.runtime.current", "import asyncio", "asyncio"),
        ("deadlined.runtime.host", "import trio", "trio"),
        ("deadlined.runtime.on_trio.host", "import asyncio.tasks", "asyncio.tasks"),
        ("deadlined.runtime.on_asyncio.host", "from trio import sleep", "trio.sleep"),
    ],
)
def test_the_checker_stops_names_of_event_loops_where_they_do_not_belong(module: str, source: str, name: str) -> None:
    found = forbidden_loop_names(source, module)
    assert found
    assert {item.partition(" uses ")[2] for item in found} == {name}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("deadlined.runtime.on_trio.host", "import trio\nfrom trio.lowlevel import RunVar\ntrio.sleep(RunVar)"),
        ("deadlined.runtime.on_asyncio", "import asyncio.tasks\nasyncio.tasks.all_tasks()"),
        ("deadlined.runtime.loops", "import trio\ndef run(main):\n    return trio.run(main)"),
        ("deadlined.net.conn", "import trio\nclass Conn(trio.abc.HalfCloseableStream): ..."),
        ("deadlined.net.conn", "from trio.abc import HalfCloseableStream"),
        ("deadlined.runtime.current", "import sys\nasyncio = sys.modules.get('asyncio')\nasyncio.sleep(1)"),
        ("deadlined.http.server", "'trio.sleep'  # in a text\nfrom .trio import sleep\nself.trio.sleep(1)"),
    ],
)
def test_the_checker_lets_names_of_event_loops_pass_where_they_belong(module: str, source: str) -> None:
    assert forbidden_loop_names(source, module) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("deadlined.runtime.on_trio.host", "from ..host import Host"),
        ("deadlined.runtime.on_trio.host", "from .pump import Pump"),
        ("deadlined.runtime.on_trio.host", "from ...poll import Poller"),
        ("deadlined.runtime.on_asyncio", "from .host import AsyncioHost"),
        ("deadlined.runtime.current", "def late():\n    from .on_asyncio import current_asyncio_host"),
        ("deadlined.runtime.event", "from .current import current_host"),
        ("deadlined.net.conn", "from ..runtime import current_host"),
    ],
)
def test_the_checker_lets_the_seams_of_the_hosts_pass(module: str, source: str) -> None:
    assert past_the_seams(found_in(source, module, module.endswith("on_asyncio"))) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("deadlined.runtime.on_trio.host", "from ..on_asyncio.host import AsyncioHost"),
        ("deadlined.runtime.on_asyncio.tasks", "from .. import on_trio"),
        ("deadlined.runtime.on_asyncio.tasks", "def late():\n    from ..on_trio import tasks"),
        ("deadlined.runtime.on_trio.host", "from .. import Event"),
        ("deadlined.runtime.on_trio.host", "from ..current import current_host"),
        ("deadlined.runtime.event", "from .on_trio.waiter import TrioWaiter"),
        ("deadlined.runtime.host", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import on_trio"),
        ("deadlined.http.server", "from ..runtime.on_trio.tasks import TrioTasks"),
        ("deadlined.cli", "import deadlined.runtime.on_asyncio"),
    ],
)
def test_the_checker_stops_what_goes_past_the_seams_of_the_hosts(module: str, source: str) -> None:
    assert len(past_the_seams(found_in(source, module))) == 1


def loads(**modules: str) -> list[str]:
    found = [item for module, source in modules.items() for item in imports(source, module, is_package=False)]
    return cycle(load_graph(found, set(modules)))


def test_the_checker_finds_a_cycle_of_any_length() -> None:
    assert loads(a="import a") == ["a", "a"]
    assert loads(a="import b", b="from c import x", c="import a") == ["a", "b", "c", "a"]
    assert loads(a="if fast:\n    import b", b="try:\n    import a\nexcept ImportError:\n    raise") == ["a", "b", "a"]


def test_the_checker_knows_what_is_no_cycle() -> None:
    assert loads(a="import b, c", b="import c", c="") == []
    assert loads(a="import b", b="def late():\n    import a") == []
    assert loads(a="import b", b="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a") == []


def test_the_checker_finds_a_cycle_that_only_type_checkers_see() -> None:
    circle = {"a": "import b", "b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a"}
    found = [item for module, source in circle.items() for item in imports(source, module, is_package=False)]
    graph = need_graph(found, set(circle))
    assert cycle(graph) == ["a", "b", "a"]
    assert cycle(without(graph, [("b", "a")])) == []


def test_the_checker_finds_private_names_of_others_and_leaves_ones_own() -> None:
    assert private_uses("from deadlined.net.conn import _broken") == ["1: deadlined.net.conn._broken"]
    assert private_uses("import deadlined._core") == ["1: deadlined._core"]
    assert private_uses("server._pump.run()") == ["1: ._pump"]
    assert private_uses("class A:\n    def f(self, b: 'A'):\n        self._x = 1\n        return b._x") == []
    assert private_uses("import deadlined\ndeadlined.__version__\ndeadlined.statistics()") == []
