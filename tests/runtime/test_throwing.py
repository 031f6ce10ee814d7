"""An error is thrown into what compiled code awaits in the form of `throw` that Python does not deprecate.

Warnings are errors here (pyproject.toml): in the deprecated form, what is awaited would not learn of the error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any

import pytest

from deadlined.runtime.on_asyncio.group import _run


class ThrownError(Exception):
    pass


class Leaf:
    """`await Leaf(steps)` awaits a generator."""

    def __init__(self, steps: Callable[[], Generator[str, None, None]]) -> None:
        self._steps = steps

    def __await__(self) -> Generator[str, None, None]:
        return self._steps()


def suspended_in(leaf: Awaitable[None]) -> Any:
    """Suspend a coroutine that awaits an interpreted one, and that is compiled where the package is."""

    async def wait() -> None:
        await leaf

    steps: Any = _run(wait, ()).__await__()
    assert steps.send(None) == "first"
    return steps


def test_what_is_awaited_receives_the_error_itself_and_may_return() -> None:
    error = ThrownError()
    received: list[BaseException] = []

    def steps() -> Generator[str, None, None]:
        try:
            yield "first"
        except BaseException as thrown:
            received.append(thrown)

    with pytest.raises(StopIteration):
        suspended_in(Leaf(steps)).throw(error)
    assert received == [error]


def test_what_is_awaited_may_go_on_after_an_error() -> None:
    def steps() -> Generator[str, None, None]:
        try:
            yield "first"
        except ThrownError:
            yield "second"

    coroutine = suspended_in(Leaf(steps))
    assert coroutine.throw(ThrownError()) == "second"
    with pytest.raises(StopIteration):
        coroutine.send(None)


def test_an_error_that_is_not_caught_is_raised_again() -> None:
    error = ThrownError()

    def steps() -> Generator[str, None, None]:
        yield "first"

    with pytest.raises(ThrownError) as caught:
        suspended_in(Leaf(steps)).throw(error)
    assert caught.value is error


def test_an_error_can_be_replaced() -> None:
    def steps() -> Generator[str, None, None]:
        try:
            yield "first"
        except ThrownError as error:
            raise LookupError from error

    with pytest.raises(LookupError):
        suspended_in(Leaf(steps)).throw(ThrownError())


def test_close_lets_what_is_awaited_clean_up() -> None:
    cleaned: list[str] = []

    def steps() -> Generator[str, None, None]:
        try:
            yield "first"
        except GeneratorExit:
            cleaned.append("up")
            raise

    suspended_in(Leaf(steps)).close()
    assert cleaned == ["up"]


class Plain:
    """An awaitable whose iterator takes no errors."""

    def __await__(self) -> Any:
        return iter(["first", "second"])


def test_an_iterator_that_takes_no_errors_is_left_by_them() -> None:
    error = ThrownError()
    coroutine: Any = _run(Plain, ()).__await__()
    assert coroutine.send(None) == "first"
    with pytest.raises(ThrownError) as caught:
        coroutine.throw(error)
    assert caught.value is error
