"""What compiled code must not do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import deadlined

ROOT = Path(__file__).parents[1]
PACKAGE = Path(deadlined.__file__).parent
INTERPRETED = {"__init__.py", "fake.py", "timerfd.py"}

# a wait in a handler that does no harm, and why
ALLOWED = {
    ("runtime/on_trio/tasks.py", "_run"): "the outermost coroutine of a task: no compiled one has thrown it in",
}


def compiled_files() -> list[Path]:
    """Return the modules that setup.py lists."""
    (listed,) = [
        node.value
        for node in ast.parse((ROOT / "setup.py").read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMPILED"
    ]
    found: list[Path] = []
    for name in ast.literal_eval(listed):
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
