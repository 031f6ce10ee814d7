"""What compiled code must not do."""

from __future__ import annotations

import ast
import copy
import pickle
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import deadlined
from deadlined.http import Limits, Timeouts
from deadlined.poll import Poller
from deadlined.poll.fake import FakePort
from deadlined.proxy.address import Address
from deadlined.proxy.options import ProxyLimits, ProxyTimeouts
from deadlined.timers import Timers

ROOT = Path(__file__).parents[1]
PACKAGE = Path(deadlined.__file__).parent
INTERPRETED = {"__init__.py", "fake.py", "timerfd.py"}

# a wait in a handler that does no harm, and why
ALLOWED = {
    ("runtime/on_trio/tasks.py", "_run"): "the outermost coroutine of a task: no compiled one has thrown it in",
}


def compiled_files() -> list[Path]:
    """Return the modules that pyproject.toml lists."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: list[Path] = []
    for name in project["tool"]["deadlined"]["compiled"]:
        path = PACKAGE / name
        found += [path] if path.suffix else [each for each in path.glob("*.py") if each.name not in INTERPRETED]
    return found


def waits(statements: list[ast.stmt]) -> bool:
    kinds = (ast.Await, ast.Yield, ast.YieldFrom, ast.AsyncWith, ast.AsyncFor)
    return any(isinstance(node, kinds) for statement in statements for node in ast.walk(statement))


def waits_in_handlers(source: str) -> Iterator[str]:
    """Give the name of each function that may suspend in an `except`, a `finally` or the end of an `async with`."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for node in ast.walk(function):
                handlers = [handler.body for handler in node.handlers] if isinstance(node, ast.Try) else []
                final = node.finalbody if isinstance(node, ast.Try) else []
                if isinstance(node, ast.AsyncWith) or any(map(waits, [*handlers, final])):
                    yield function.name


@pytest.mark.parametrize("path", compiled_files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_compiled_code_does_not_wait_while_it_handles_an_exception(path: Path) -> None:
    # mypyc loses a cancellation then, or crashes: runtime/within.py
    name = str(path.relative_to(PACKAGE))
    found = {(name, function) for function in waits_in_handlers(path.read_text())}
    assert found == {place for place in ALLOWED if place[0] == name}


@pytest.mark.parametrize(
    ("text", "waiting"),
    [
        ("async with a: b()", True),
        ("try: await a\n except E: b()", False),
        ("try: a()\n except E: await b", True),
        ("try: a()\n finally: await b", True),
        ("try: a()\n finally:\n  if c: yield b", True),
        ("with a: await b", False),
    ],
)
def test_the_finder_of_such_waits_finds_them(text: str, waiting: bool) -> None:
    assert list(waits_in_handlers(f"async def f():\n {text}")) == ["f"] * waiting


def declared(body: list[ast.stmt]) -> Iterator[str]:
    """Give the name of each attribute that these statements of a class declare, unless mypyc does not read them."""
    for statement in body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING and (not MYPY)":
            continue
        if isinstance(statement, ast.AnnAssign) and not ast.unparse(statement.annotation).startswith("ClassVar"):
            target = statement.target
            yield target.attr if isinstance(target, ast.Attribute) else ast.unparse(target)
        for inner in (getattr(statement, "body", []), getattr(statement, "orelse", [])):
            yield from declared(inner)


def declared_twice(*sources: str) -> list[str]:
    """Return the attributes that a class declares although a base class has declared them."""
    classes = {
        node.name: node for source in sources for node in ast.parse(source).body if isinstance(node, ast.ClassDef)
    }

    def inherited(name: str) -> set[str]:
        bases = [base.id for base in classes[name].bases if isinstance(base, ast.Name) and base.id in classes]
        return set().union(*({*declared(classes[base].body), *inherited(base)} for base in bases))

    return [
        f"{name}.{attribute}" for name in classes for attribute in {*declared(classes[name].body)} & inherited(name)
    ]


def test_no_compiled_class_declares_an_attribute_of_its_base_again() -> None:
    # mypyc would have the garbage collector visit it twice, which then clears objects that are in use
    assert declared_twice(*(path.read_text() for path in compiled_files())) == []


def test_the_finder_of_such_declarations_finds_them() -> None:
    base = "class A:\n def __init__(self):\n  self.a: int = 1\nclass B(A):\n pass\n"
    assert declared_twice(base, "class C(B):\n def f(self):\n  if x:\n   self.a: int = 2") == ["C.a"]
    assert declared_twice(base, "class C(B):\n a: int") == ["C.a"]
    assert declared_twice(base, "class C(B):\n def f(self):\n  self.a = 2\n  self.b: int = 2") == []
    unread = "class C(B):\n def f(self):\n  if TYPE_CHECKING and not MYPY:\n   self.a: int"
    assert declared_twice(base, unread) == []
    # it would be run, and mypyc takes it as what cannot be
    assert declared_twice(base, unread.replace("TYPE_CHECKING and ", "")) == ["C.a"]


def unpicklable(text: str) -> list[str]:
    """Return the dataclasses that do not derive from `Value`."""
    return [
        node.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
        and any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
        and "Value" not in map(ast.unparse, node.bases)
    ]


def test_each_compiled_dataclass_can_be_pickled() -> None:
    # mypyc's own cannot, if they are frozen: deadlined/value.py
    assert [name for path in compiled_files() for name in unpicklable(path.read_text())] == []
    assert unpicklable("@dataclass(frozen=True)\nclass A: ...\n@dataclass\nclass B(Value): ...\nclass C: ...") == ["A"]


VALUES = [
    Timeouts(read=5.0),
    Limits(max_requests=7),
    ProxyTimeouts(),
    ProxyLimits(),
    Address.parse("127.0.0.1:80"),
    Timers().statistics(),
    Poller(FakePort(), lambda: 0.0, bool).statistics(),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_settings_and_statistics_reach_another_process(value: object) -> None:
    for other in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):
        assert other == value
        assert type(other) is type(value)


def unknown_bases(text: str) -> list[str]:
    """Return the classes that derive from one of a library which mypy may not find."""
    lines = text.splitlines()
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    optional = [node for node in imports if "import-not-found" in lines[node.lineno - 1]]
    unknown = {name.asname or name.name for node in optional for name in node.names}
    classes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]
    return [each.name for each in classes if unknown & {ast.unparse(base) for base in each.bases}]


@pytest.mark.parametrize("path", compiled_files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_compiled_class_derives_from_one_that_mypy_does_not_know(path: Path) -> None:
    """Such a class is made as if it had no base, and its first use crashes the process."""
    assert unknown_bases(path.read_text(encoding="utf-8")) == []


def test_the_finder_of_such_classes_finds_them() -> None:
    imports = "from a import (  # type: ignore[import-not-found]\n    B,\n)\nfrom c import D\n"
    assert unknown_bases(f"{imports}class E(B): ...\nclass F(D): ...") == ["E"]
