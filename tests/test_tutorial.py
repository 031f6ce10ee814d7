"""The tutorial is followed to the letter: its files are saved, its commands are run, and both terminals show what it
says that they show."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.applications.daemons import found, free_port
from tests.support.command import PATIENCE, environment
from tests.support.terminal import CTRL_C, Terminal, on_terminal

PAGE = Path(__file__).parents[1] / "docs" / "tutorial.md"

# a directive in a comment, if there is one, the language of a block, and the block
BLOCK = re.compile(r"(?:^<!-- (file \S+|Ctrl-C meanwhile) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# in the lines of a drain that takes so long
SECONDS_LEFT = " s left: "

# what differs from run to run
VARYING = [
    r"\d\d:\d\d:\d\d\.\d{3}",
    r"127\.0\.0\.1:\d{5}(?!\d)",
    r"\((?:not )?compiled\)",
    r"Python 3\.\d+\.\w+",
    r"(?<=after )[\d.]+ m?s",
    r"[\d.]+ m?s(?=\s+\d+ B)",
    r"\s+",
]


def as_pattern(line: str) -> str:
    """Return a regular expression for a line of the page."""
    splits = re.split("|".join(f"({varying})" for varying in VARYING), line.strip())
    width = len(VARYING) + 1
    pattern = ""
    for index in range(0, len(splits), width):
        pattern += re.escape(splits[index])
        pattern += "".join(
            varying for varying, text in zip(VARYING, splits[index + 1 : index + width], strict=False) if text
        )
    return pattern


class Reader:
    """Who follows the page with two terminals: in the first the server runs, the second is free."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._ports = {"8000": str(free_port()), "9000": str(free_port())}
        self._first: Terminal | None = None
        self.commands: list[str] = []
        (directory / "bin").mkdir()
        for name, command in {"python": "", "deadlined": " -m deadlined"}.items():
            program = directory / "bin" / name
            program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{command} "$@"\n')
            program.chmod(0o700)

    def follow(self, directive: str, language: str, block: str) -> None:
        """Do what a block of the page asks for."""
        if directive.startswith("file "):
            (self._directory / directive.removeprefix("file ")).write_text(self._here(block))
        elif language == "text":
            self._watch(block.splitlines())
        elif language == "console":
            prompt, *shown = block.splitlines()
            assert prompt.startswith("$ ")
            command = prompt.removeprefix("$ ")
            self.commands.append(command)
            if command.startswith("deadlined serve "):
                self._serve(command)
                self._watch(shown)
            else:
                self._run(command, shown, meanwhile=directive == "Ctrl-C meanwhile")
        else:
            # the installation, which every run of these tests has behind it
            assert "pip install" in block

    def _serve(self, command: str) -> None:
        """Start the server in the first terminal."""
        assert self._first is None, "the page starts a server before it has ended the other one"
        arguments = shlex.split(self._here(command))[1:]
        variables = {"DEADLINED_PORT": self._ports["8000"]}
        self._first = self._stack.enter_context(on_terminal(self._directory, *arguments, **variables))
        self._first.wait_for("^  off ")

    def _watch(self, expected: list[str]) -> None:
        """Look for these lines in the first terminal; press Ctrl-C if the first of them says so."""
        assert self._first is not None
        terminal = self._first
        if expected[0] == "^C":
            if "SIGINT" not in terminal.text:
                terminal.press(CTRL_C)
            assert terminal.end() == 0
            self._first = None
            # all lines since then, but for those that tell each second
            lines = list(itertools.dropwhile(lambda line: "SIGINT" not in line, terminal.lines))
            pattern = r"\n".join(as_pattern(self._here(line)) for line in expected[1:] if SECONDS_LEFT not in line)
            assert re.fullmatch(pattern, "\n".join(line.strip() for line in lines if SECONDS_LEFT not in line)), lines
        else:
            terminal.wait_for(r"[\s\S]*?".join(as_pattern(self._here(line)) for line in expected))

    def _run(self, command: str, shown: list[str], *, meanwhile: bool) -> None:
        """Run a command in the second terminal, and press Ctrl-C in the first if this is to happen meanwhile."""
        process = subprocess.Popen(
            ["bash", "-c", self._here(command)],
            cwd=self._directory,
            env=environment(PATH=f"{self._directory / 'bin'}:{os.environ['PATH']}"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if meanwhile:
            self._wait_for_a_handler()
            assert self._first is not None
            self._first.press(CTRL_C)
            self._first.wait_for("SIGINT: draining")
        output, _ = process.communicate(timeout=PATIENCE)
        pattern = r"\n".join(as_pattern(self._here(line)) for line in shown)
        assert re.fullmatch(pattern, output.strip()), (command, output)

    def _wait_for_a_handler(self) -> None:
        url = f"http://127.0.0.1:{self._ports['9000']}/connections?phase=handler"
        limit = time.monotonic() + PATIENCE
        while time.monotonic() < limit:
            with urllib.request.urlopen(url, timeout=PATIENCE) as response:
                if json.load(response)["matching"]:
                    return
        raise AssertionError("the request does not reach the application")

    def _here(self, text: str) -> str:
        """Put free ports in place of those of the page."""
        for port, free in self._ports.items():
            text = text.replace(port, free)
        return text


@pytest.mark.timeout(180)  # it waits for deadlines of real time, and starts a server three times
def test_whoever_follows_the_tutorial_sees_what_it_says(tmp_path: Path) -> None:
    found("curl")
    blocks = BLOCK.findall(PAGE.read_text())
    with ExitStack() as stack:
        reader = Reader(tmp_path, stack)
        for directive, language, block in blocks:
            reader.follow(directive, language, block)
    assert len(reader.commands) == PAGE.read_text().count("\n$ ") == 11
    # every block was found
    assert len(blocks) * 2 == len(re.findall("^```", PAGE.read_text(), re.MULTILINE))


@pytest.mark.parametrize(
    ("line", "fits", "differs"),
    [
        ("12:00:00.123  GET  / 200  1 ms  1 B", "00:00:01.999  GET / 200  3 s  1 B", "12:00:00.123 GET / 404 1 ms 1 B"),
        ("408 read_header: after 2 s", "408 read_header: after 2.01 s", "504 read_header: after 2 s"),
        ("stopped after 1.5 s: 2 requests", "stopped after 20 ms: 2 requests", "stopped after 20 ms: 3 requests"),
    ],
)  # fmt: skip
def test_a_line_is_compared_but_for_what_varies(line: str, fits: str, differs: str) -> None:
    assert re.fullmatch(as_pattern(line), fits)
    assert not re.fullmatch(as_pattern(line), differs)
