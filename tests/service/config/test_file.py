"""The file of the configuration: reading it, and the line of each key."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deadlined.service.config.file import FileError, lines, read
from tests.support.examples import examples

TEXT = '''\
# a comment with idle = 1
app = "a:b"

bind = [
    "127.0.0.1:1",  # drain = 2
    "unix:/x",
]
name = """
idle = 3
"""
idle = "1m"

[[route]]
path = "/a"

# between
[[route]]
methods = [
    "POST",
]
path = "/b"
[other.table]
key = 1
[[other.list]]
key = 2
'''


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\x85"])
def test_what_ends_lines_in_other_texts_ends_none_in_toml(character: str) -> None:
    text = f'# a{character}b = 1\r\nidle = "1m"\r\nname = """{character}\n"""\ndrain = 1'
    assert lines(text) == {("idle",): 2, ("name",): 3, ("drain",): 5}


def test_each_key_has_the_line_on_which_it_begins() -> None:
    assert lines(TEXT) == {
        ("app",): 2,
        ("bind",): 4,
        ("name",): 8,
        ("idle",): 11,
        ("route", 0): 13,
        ("route", 0, "path"): 14,
        ("route", 1): 17,
        ("route", 1, "methods"): 18,
        ("route", 1, "path"): 21,
        ("other", "table"): 22,
        ("other", "table", "key"): 23,
        ("other", "list"): 24,
        ("other", "list", "key"): 25,
    }


_VALUES = st.one_of(
    st.integers(min_value=0, max_value=9).map(str),
    st.just('"""\na = 1\n[b]\n"""'),
    st.just('[\n"x",\n\n"y"]'),
    st.just("'''\n\"\"\"\n'''"),
    st.just('"# no comment"'),
)


@settings(max_examples=examples(200))
@given(st.dictionaries(st.sampled_from(["a", "b", "c", '"d e"', "f"]), _VALUES), st.integers(0, 2))
def test_the_lines_are_those_of_the_keys_whatever_the_values_look_like(values: dict[str, str], blank: int) -> None:
    text = ("\n" * blank).join(f"{key} = {value}\n" for key, value in values.items())
    split = text.splitlines()
    found = lines(text)
    assert {key for (key,) in found} == set(tomllib.loads(text))
    for (key,), line in found.items():
        assert split[line - 1].lstrip('"').startswith(str(key))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"idle = \n", ["not TOML", "line 1"]),
        (b"a = 1\na = 2\n", ["not TOML", "line 2"]),
        (b"idle = '\xff'", ["not UTF-8", "byte 8"]),
        (b"a = " + b"[" * 10000, ["conf.toml"]),
        (b"\0", ["not TOML"]),
    ],
)
def test_what_is_no_toml_is_told_with_its_place(tmp_path: Path, content: bytes, words: list[str]) -> None:
    path = tmp_path / "conf.toml"
    path.write_bytes(content)
    with pytest.raises(FileError) as caught:
        read(str(path))
    for word in [str(path), *words]:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("path", "words"), [("/no/such.toml", "No such file"), (".", "directory"), ("a\0b", "null")])
def test_a_file_that_cannot_be_read_is_told(path: str, words: str) -> None:
    with pytest.raises(FileError, match=words):
        read(path)


def test_the_mark_that_windows_puts_first_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "conf.toml"
    path.write_bytes(b"\xef\xbb\xbfidle = 5\r\ndrain = 6\r\n")
    values, text = read(str(path))
    assert values == {"idle": 5, "drain": 6}
    assert lines(text) == {("idle",): 1, ("drain",): 2}
