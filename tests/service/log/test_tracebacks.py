"""Tracebacks from the application on."""

from __future__ import annotations

import json
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

import deadlined
from deadlined.service.log.tracebacks import cut, cut_stack, full, innermost, last_error, message, place, shown

SERVER = f"""\
  File "{Path(deadlined.__file__).parent}/http/worker.py", line 10, in run
    await handler()
  File "deadlined/asgi/handler.py", line 20, in run
"""
FRAMEWORK = """\
  File "/venv/lib/python3.12/site-packages/starlette/routing.py", line 30, in app
    await app(scope, receive, send)
          ^^^^^^^^^^^^^^^^^^^^^^^^^
  [Previous line repeated 3 more times]
"""
IMPORTING = """\
  File "<frozen importlib._bootstrap>", line 1, in _find_and_load
"""
OWN = """\
  File "/srv/shop/web.py", line 40, in buy
    raise LookupError("lost")
"""
HEADER = "Traceback (most recent call last):\n"
ERROR = "LookupError: lost\n  and found\n"


def test_it_begins_with_the_first_frame_of_the_application() -> None:
    text = HEADER + SERVER + IMPORTING + OWN + IMPORTING + OWN + FRAMEWORK + ERROR
    assert cut(text) == (HEADER + OWN + OWN + FRAMEWORK + ERROR).rstrip("\n")


def test_what_libraries_have_done_before_is_counted() -> None:
    text = HEADER + SERVER + FRAMEWORK + FRAMEWORK + OWN + ERROR
    note = "  ... outer frames of libraries left out: 2\n"
    assert cut(text) == (HEADER + note + OWN + ERROR).rstrip("\n")


def test_without_the_application_it_begins_behind_the_server() -> None:
    assert cut(HEADER + SERVER + FRAMEWORK + ERROR) == (HEADER + FRAMEWORK + ERROR).rstrip("\n")


@pytest.mark.parametrize("frames", [SERVER, ""])
def test_what_is_of_the_server_alone_is_shown_as_it_is(frames: str) -> None:
    assert cut(HEADER + frames + ERROR) == (HEADER + frames + ERROR).rstrip("\n")


@pytest.mark.parametrize("text", ["", "no database", "one\n  two\n\nthree", 'File "a", line 1'])
def test_other_text_is_left_alone(text: str) -> None:
    assert cut(text) == text


def test_each_traceback_of_a_chain_is_cut() -> None:
    between = "\nDuring handling of the above exception, another exception occurred:\n\n"
    text = HEADER + SERVER + OWN + ERROR + between + HEADER + SERVER + OWN + ERROR
    assert cut(text) == (HEADER + OWN + ERROR + between + HEADER + OWN + ERROR).rstrip("\n")


GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "deadlined/asgi/handler.py", line 20, in run
  |   File "/venv/lib/python3.12/site-packages/trio/_run.py", line 1, in aexit
  |     raise group
  |   File "/srv/shop/web.py", line 1, in buy
  |     async with nursery:
  | ExceptionGroup: two (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/venv/lib/python3.12/site-packages/trio/_run.py", line 1, in run
    |     run()
    |   File "/srv/shop/web.py", line 2, in sell
    |     1 / 0
    | ZeroDivisionError: division by zero
    +------------------------------------"""


def test_each_traceback_of_a_group_is_cut() -> None:
    lines = GROUP.splitlines()
    note = "... outer frames of libraries left out: 1"
    assert cut(GROUP).splitlines() == [lines[0], f"  |   {note}", *lines[4:9], f"    |   {note}", *lines[11:]]


def test_a_stack_has_no_header() -> None:
    note = "  ... outer frames of libraries left out: 1\n"
    assert cut_stack(SERVER + FRAMEWORK + OWN) == (note + OWN).rstrip("\n")
    assert cut_stack("...    source of what is not shown\n" + FRAMEWORK + OWN) == (note + OWN).rstrip("\n")
    assert cut_stack("...\n") == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEADER + OWN + ERROR, "LookupError: lost"),
        (HEADER + OWN + "KeyError: 1\n\nDuring handling:\n\n" + HEADER + FRAMEWORK + ERROR, "LookupError: lost"),
        (GROUP, "ZeroDivisionError: division by zero"),
        (HEADER + OWN + "ValueError: | a | b\n", "ValueError: | a | b"),
        ("| name |\n| shop |", "| shop |"),
        ("Traceback:\n  somewhere\nno database\n", "no database"),
        ("no database", "no database"),
        (HEADER + OWN, ""),
        (" \n ", ""),
    ],
)
def test_the_last_error_is_what_was_raised_not_the_last_line(text: str, said: str) -> None:
    assert last_error(text) == said


def failure() -> Exception:
    try:
        json.loads("{")
    except ValueError as error:
        try:
            raise ExceptionGroup("several", [error, LookupError("other")])
        except ExceptionGroup as group:
            group.add_note("a note\nof two lines")
            return group
    raise AssertionError


def test_what_python_formats_is_recognised() -> None:
    """Whatever a version of Python puts between: of this file, nothing is lost."""
    error = failure()
    assert full(error).splitlines() == shown(error).splitlines()


def test_a_recursion_keeps_its_count(tmp_path: Path) -> None:
    file = tmp_path / "deep.py"
    file.write_text("def dive(): dive()\ntry:\n    dive()\nexcept RecursionError as error:\n    found = error\n")
    names: dict[str, BaseException] = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    assert "Previous line repeated" in shown(names["found"])


def test_the_place_is_the_innermost_line_of_the_application() -> None:
    group = failure()
    frame = place(group.exceptions[0])  # type: ignore[attr-defined]
    assert frame is not None
    assert (frame.filename, frame.name) == (__file__, "failure")
    assert place(ValueError("never raised")) is None


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def test_the_innermost_error_of_a_group_is_the_last_that_its_traceback_shows() -> None:
    last = raised(LookupError("last"))
    nested = raised(ExceptionGroup("nested", [OSError("first"), last, ValueError("never raised")]))
    for group in (nested, raised(ExceptionGroup("outer", [raised(ValueError("second")), nested]))):
        assert innermost(group) is last
        assert last_error(full(group)) == "LookupError: last"
        assert place(group) == place(last)


def test_a_group_in_which_nothing_was_raised_is_its_innermost_error() -> None:
    group = raised(ExceptionGroup("several", [ValueError("one"), ExceptionGroup("nested", [OSError("two")])]))
    assert innermost(group) is group
    assert last_error(full(group)) == "ExceptionGroup: several (2 sub-exceptions)"
    frame = place(group)
    assert frame is not None
    assert frame.name == "raised"


def test_one_that_is_no_group_is_its_own_innermost_error() -> None:
    error = raised(LookupError("lost"))
    error.__cause__ = raised(ExceptionGroup("cause", [raised(ValueError())]))
    assert innermost(error) is error
    assert last_error(full(error)) == "LookupError: lost"


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise LookupError("no words")


def test_an_exception_that_cannot_say_what_it_is_has_a_message() -> None:
    assert message(SpeechlessError()) == "<its text raises LookupError>"
    assert message(ValueError("one\ntwo")) == "one\ntwo"
    assert message(SyntaxError("bad", ("/srv/shop.py", 2, 1, "x"))) == "bad"


def test_the_place_of_a_syntax_error_is_the_line_that_is_wrong() -> None:
    with pytest.raises(SyntaxError) as caught:
        compile("fine = 1\nbad = = 2", "/srv/shop.py", "exec")
    frame = place(caught.value)
    assert frame is not None
    assert (frame.filename, frame.lineno) == ("/srv/shop.py", 2)


def test_the_place_of_what_only_libraries_do_is_in_a_library() -> None:
    try:
        json.loads("{")
    except ValueError as error:
        assert error.__traceback__ is not None
        frame = place(error.with_traceback(error.__traceback__.tb_next))
    assert frame is not None
    assert "json" in frame.filename


def test_one_that_python_cannot_print_says_where_and_what_was_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(error: BaseException) -> None:
        raise SystemExit

    monkeypatch.setattr(traceback, "format_exception", fail)
    try:
        json.loads("{")
    except ValueError as error:
        header, *frames, last = full(error).splitlines()
    assert header == "Traceback (most recent call last):"
    assert any(__file__ in line for line in frames)
    assert last.startswith("JSONDecodeError: Expecting")


def test_it_is_what_python_prints() -> None:
    program = "import json; json.loads('{')"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False).stderr
    # the frame of a program that has no file is no application's: what is behind it is shown
    assert cut(printed).splitlines()[-1] == printed.splitlines()[-1]
