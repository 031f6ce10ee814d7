"""The load test stays small: what a reader must understand, without blank lines, comments and docstrings."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

LIMIT = 6_942

LOADTEST = Path(__file__).resolve().parents[2] / "loadtest"

_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def lines_of_code(source: str) -> int:
    """Return how many lines hold a token of code."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {line for token in tokens if token.type not in _NO_CODE for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if first is not None and ast.get_docstring(node, clean=False) is not None:
                lines -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(lines)


def test_lines_of_code_are_counted() -> None:
    lines = [
        '"""Doc."""',
        "import os  # why",
        "",
        "def f():",
        '    """Return',
        '    text."""',
        "    # why",
        '    return """a',
        "",
        'b"""',
    ]
    assert lines_of_code("\n".join([*lines, ""])) == 5


def test_the_load_test_is_small() -> None:
    counts = {path: lines_of_code(path.read_text(encoding="utf-8")) for path in LOADTEST.rglob("*.py")}
    assert len(counts) > 50
    assert sum(counts.values()) <= LIMIT
