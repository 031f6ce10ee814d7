"""What compiled coroutines must not do, and what they must do on each event loop.

A compiled coroutine that suspends while it handles an error does not find that error again afterwards: `raise` then
raises garbage, or nothing. So nothing is awaited in a handler that ends with `raise`, in a `finally`, or at the end of
an `async with`, unless what is awaited raises the error itself.
"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from deadlined.runtime import open_contained_tasks, open_group
from tests.support.conformance import Loop, on_each_loop

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "deadlined"

# `async with` of these, whose ends raise the error themselves
SAFE = {"open_contained_tasks", "open_group", "trio.open_nursery"}


def compiled_sources() -> Iterator[Path]:
    tree = ast.parse((ROOT / "setup.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMPILED":
            for name in ast.literal_eval(node.value):
                place = PACKAGE / name
                yield from sorted(place.rglob("*.py")) if place.is_dir() else [place]


def awaits(body: list[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Await | ast.AsyncWith | ast.AsyncFor) for part in body for node in ast.walk(part))


def raises_again(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(node, ast.Raise) and node.exc is None for node in ast.walk(handler))


def losing(node: ast.AST) -> bool:
    """Return True if the statement suspends while it handles an error that it raises again."""
    if isinstance(node, ast.Try):
        return awaits(node.finalbody) or any(awaits(one.body) and raises_again(one) for one in node.handlers)
    if isinstance(node, ast.AsyncWith):
        return any(ast.unparse(item.context_expr).partition("(")[0] not in SAFE for item in node.items)
    return False


def test_no_compiled_coroutine_suspends_while_it_holds_an_error() -> None:
    sources = list(compiled_sources())
    assert len(sources) > 20
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.stmt) and losing(node)
    ]
    assert not found


@pytest.mark.parametrize(
    "source",
    [
        "async def f():\n  async with listener:\n    pass",
        "async def f():\n  try:\n    pass\n  finally:\n    await x",
        "async def f():\n  try:\n    pass\n  except E:\n    await x\n    raise",
    ],
)
def test_the_rule_finds_what_it_forbids(source: str) -> None:
    assert any(losing(node) for node in ast.walk(ast.parse(source)))


@on_each_loop
async def test_the_end_of_a_block_raises_the_error_itself(loop: Loop) -> None:
    if loop.is_trio:
        # trio's nurseries do, as an ExceptionGroup
        return
    for block in (open_contained_tasks(), open_group()):
        await block.__aenter__()
        error = asyncio.CancelledError("the block's")
        with pytest.raises(asyncio.CancelledError) as caught:
            await block.__aexit__(type(error), error, None)
        assert caught.value is error


@on_each_loop
async def test_a_block_of_contained_tasks_keeps_its_error_while_it_waits(loop: Loop) -> None:
    async def work() -> None:
        await loop.forever()

    async def fails() -> None:
        async with open_contained_tasks() as tasks:
            tasks.new(work, bool, lambda _: None).start()
            await loop.settle()
            raise LookupError("lost")

    async with loop.tasks() as tasks:
        error = await tasks.start(fails).fails_with(Exception)
        assert "lost" in repr(error)
