"""`help()` works on what is public, whether it is compiled or not: everything has a docstring and a signature."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from enum import EnumMeta
from pathlib import Path
from typing import Any, is_typeddict

import pytest

import deadlined
import deadlined.asgi
import deadlined.http
import deadlined.net
import deadlined.runtime
import deadlined.threads
import deadlined.timers
import deadlined.timing

# where the package lies that is tested, which may be an installed one
ROOT = Path(deadlined.__file__).parents[1]

MODULES = [
    deadlined,
    deadlined.asgi,
    deadlined.http,
    deadlined.net,
    deadlined.runtime,
    deadlined.threads,
    deadlined.timers,
    deadlined.timing,
]


def public() -> Iterator[Any]:
    """The classes and functions that the packages export, and the public members of these classes. Each once."""
    seen = set()
    for module in MODULES:
        for name in module.__all__:
            thing = getattr(module, name)
            if not (inspect.isclass(thing) or inspect.isroutine(thing)) or is_left_to_mypyc(thing) or thing in seen:
                continue
            seen.add(thing)
            yield pytest.param(thing, id=f"{module.__name__}.{name}")
            if isinstance(thing, type) and not issubclass(thing, BaseException):
                for member, value in members(thing):
                    yield pytest.param(value, id=f"{module.__name__}.{name}.{member}")


def is_left_to_mypyc(thing: Any) -> bool:
    """An enumeration or a protocol is no extension class: mypyc gives it a docstring of its own, or none. A TypedDict
    is a dictionary at run time, whose constructor has no signature."""
    return isinstance(thing, EnumMeta) or getattr(thing, "_is_protocol", False) or is_typeddict(thing)


def members(owner: type) -> Iterator[tuple[str, Any]]:
    """The methods and properties that this project has defined. Fields are described by their class."""
    for base in owner.__mro__:
        if base.__module__.startswith("deadlined"):
            for name in functions_of(base):
                if not name.startswith("_"):
                    yield name, getattr(base, name)


def functions_of(owner: type) -> list[str]:
    """What its source defines with `def`; a compiled class does not tell fields and properties apart."""
    source = ROOT.joinpath(*owner.__module__.split(".")).with_suffix(".py")
    package = ROOT.joinpath(*owner.__module__.split("."), "__init__.py")
    tree = ast.parse((source if source.exists() else package).read_text(encoding="utf-8"))
    [definition] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner.__name__]
    return [node.name for node in definition.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


@pytest.mark.parametrize("thing", list(public()))
def test_it_has_a_docstring_and_a_signature(thing: Any) -> None:
    doc = inspect.getdoc(thing)
    assert doc
    assert "mypyc filler" not in doc
    # an error that adds nothing to OSError or the like has no signature in Python itself
    is_plain_error = isinstance(thing, type) and issubclass(thing, BaseException) and "__init__" not in vars(thing)
    if callable(thing) and not is_plain_error:
        inspect.signature(thing)


SIGNATURES = {
    deadlined.Conn: "(socket, is_tcp=None)",
    deadlined.Conn.receive_some: "(self, max_bytes=None)",
    deadlined.Conn.set_deadline: "(self, when)",
    deadlined.Conn.try_receive: "(self, max_bytes=65536)",
    deadlined.Conn.from_socket: "(socket)",
}


@pytest.mark.parametrize("thing", list(SIGNATURES), ids=lambda thing: thing.__name__)
def test_a_signature_names_the_parameters(thing: Any) -> None:
    parameters = [
        parameter.replace(annotation=parameter.empty, kind=parameter.POSITIONAL_OR_KEYWORD)
        for parameter in inspect.signature(thing).parameters.values()
    ]
    assert str(inspect.Signature(parameters)) == SIGNATURES[thing]


def test_a_compiled_coroutine_function_is_known_as_one() -> None:
    assert inspect.iscoroutinefunction(deadlined.Conn.receive_some)


@pytest.mark.parametrize("name", ["set_read_deadline", "set_read_timeout", "set_write_deadline", "set_write_timeout"])
def test_the_setters_of_a_conn_have_docstrings_too(name: str) -> None:
    """They are fields, which hold methods of the halves."""
    assert "deadline" in (inspect.getdoc(getattr(deadlined.Conn, name)) or "")
