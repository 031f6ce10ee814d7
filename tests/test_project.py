"""The project's documents, versions and container agree with its code."""

from __future__ import annotations

import itertools
import math
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import click
import pytest

import deadlined
from deadlined.cli import serve_command
from deadlined.http import RULES, Limits, Phase, Reason, Rule, Timeouts

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

DEFAULT = re.compile(r"off|[\d.]+ (s|B/s)(, [\d.]+ (s|B/s))*")
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")


def blocks(document: str, language: str) -> list[str]:
    """Return the fenced code blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", document, re.MULTILINE | re.DOTALL)


def anchors(document: str) -> set[str]:
    """Return the names by which the headings of a document can be linked to."""
    headings = re.findall(r"^#+ (.*)$", document, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(document: str, folder: Path) -> list[str]:
    """Return the relative links whose target does not exist."""
    broken = []
    for path, anchor in LINK.findall(document):
        target = folder / path
        if path and not target.exists():
            broken.append(path)
        elif anchor and anchor not in anchors(target.read_text() if path else document):
            broken.append(f"{path}#{anchor}")
    return broken


def defaults(document: str) -> dict[str, set[str]]:
    """Return every default that the tables of a document give for an option, by the option's name."""
    given: dict[str, set[str]] = {}
    for row in re.findall(r"^\|(.*)\|$", document, re.MULTILINE):
        cells = [cell.strip() for cell in row.split("|")]
        for cell, value in itertools.pairwise(cells):
            names = re.findall(r"`(\w+)`", cell)
            if set(names) <= {field.name for field in fields(Timeouts)} and DEFAULT.fullmatch(value):
                for name, stated in zip(names, value.split(", "), strict=True):
                    given.setdefault(name, set()).add(stated)
    return given


def stated(name: str, value: float) -> str:
    """Return a default as a document writes it."""
    if value == math.inf:
        return "off"
    return f"{value:g} B/s" if name.endswith("_rate") else f"{value:g} s"


PROGRAMS = [
    pair
    for page in (README, *((ROOT / "docs" / name).read_text() for name in ("asgi.md", "library.md")))
    for pair in zip(blocks(page, "python"), blocks(page, "text"), strict=True)
]


@pytest.mark.parametrize(("program", "output"), PROGRAMS)
def test_the_programs_of_the_documents_print_what_they_say(program: str, output: str) -> None:
    command = [sys.executable, "-W", "error", "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert (result.stderr, result.stdout) == ("", output)


def served(document: str) -> list[list[str]]:
    """Return the arguments of each `deadlined serve` in the shell blocks of a document."""
    lines = "".join(blocks(document, "sh")).splitlines()
    found = [re.search(r"(?:^|/)deadlined serve\b([^&|#]*)", line) for line in lines]
    return [shlex.split(match[1]) for match in found if match]


COMMANDS = [(path.name, arguments) for path in DOCUMENTS for arguments in served(path.read_text())]


@pytest.mark.parametrize("arguments", [arguments for _, arguments in COMMANDS], ids=" ".join)
def test_the_command_understands_what_the_documents_tell_it(arguments: list[str]) -> None:
    serve_command.make_context("serve", list(arguments))


def test_the_readme_shows_early_how_to_serve_on_uvloop() -> None:
    assert next(arguments for name, arguments in COMMANDS if name == "README.md") == ["app:app", "--loop", "uvloop"]


def test_the_example_which_needs_asyncio_is_served_on_it_everywhere() -> None:
    told = re.compile(r"deadlined serve shop:app((?:[^`\n]|\n(?!\n))*)")
    pages = [*DOCUMENTS, *(path for path in (ROOT / "examples").rglob("*.*") if path.suffix != ".pyc")]
    arguments = [text for page in pages for text in told.findall(page.read_text())]
    assert len(arguments) >= 9
    assert [text for text in arguments if text.split()[:1] != ["--loop"]] == []


def test_the_finder_of_commands_finds_them() -> None:
    document = "```sh\nx && .venv/bin/deadlined serve a:b --idle 5s\ndeadlined serve  # a page\n```\ndeadlined serve no"
    assert served(document) == [["a:b", "--idle", "5s"], []]
    with pytest.raises(click.UsageError):
        serve_command.make_context("serve", ["--loop", "gevent"])


def test_the_readme_marks_one_test_command_of_one_line() -> None:
    marked = re.findall(r"<!-- test command -->\n```sh\n(.*?)```", README, re.DOTALL)
    assert len(marked) == 1
    assert marked[0].count("\n") == 1
    assert "-m pytest" in marked[0]


# where an installation of the package comes from, and its extras
INSTALLED = re.compile(r"pip\s+install\s(?:[^`\n]|\n(?!\n))*?['\"]([^'\"]*)\[([\w,]+)\]['\"]")


def test_what_the_documents_install_comes_from_the_folder_of_a_clone() -> None:
    examples = [path for path in (ROOT / "examples").rglob("*.*") if path.suffix in {".service", ".yaml", ".py"}]
    found = [pair for path in [*DOCUMENTS, *examples] for pair in INSTALLED.findall(path.read_text())]
    # a wheel that was made there is the other way; no index has the package
    assert {source for source, _ in found} == {".", "$(echo /deadlined-*.whl)"}
    assert {extra for _, extras in found for extra in extras.split(",")} <= set(PROJECT["optional-dependencies"])
    assert (ROOT / "pyproject.toml").exists()


def test_the_finder_of_installations_finds_them() -> None:
    document = "`pip install\n'a[b]'` `x`, 'c[d]'\n\n    pip install -e './e[f,g]' h  # 'i[j]'"
    assert INSTALLED.findall(document) == [("a", "b"), ("./e", "f,g")]


@pytest.mark.parametrize("document", ["README.md", "docs/timeouts.md"])
def test_the_defaults_in_the_tables_are_the_defaults_of_the_code(document: str) -> None:
    given = defaults((ROOT / document).read_text())
    actual = {field.name: stated(field.name, getattr(Timeouts(), field.name)) for field in fields(Timeouts)}
    assert given
    assert given == {name: {actual[name]} for name in given}


def test_the_readme_names_every_deadline_that_is_on_by_default() -> None:
    on = {field.name for field in fields(Timeouts) if getattr(Timeouts(), field.name) < math.inf}
    assert set(defaults(README)) == on


def test_the_page_on_timeouts_names_every_option_every_reason_and_every_limit_of_a_head() -> None:
    page = (ROOT / "docs" / "timeouts.md").read_text()
    assert set(defaults(page)) == {field.name for field in fields(Timeouts)}
    assert [reason for reason in Reason if f"`{reason}`" not in page] == []
    assert f"{Limits().max_head / 1024:g} KiB and {Limits().max_headers:g} fields" in page


@pytest.mark.parametrize("rule", list(RULES.values()), ids=list(RULES))
def test_the_page_on_timeouts_agrees_with_the_table_of_rules(rule: Rule) -> None:
    page = (ROOT / "docs" / "timeouts.md").read_text()
    rows = [row for row in page.splitlines() if re.search(rf"\| `{rule.field}`.*\| `{rule.reason}` \|", row)]
    seen = " ".join(row.rpartition(f"`{rule.reason}`")[2] for row in rows)
    assert rows
    assert set(re.findall(r"\b[45]\d\d\b", seen)) == ({str(rule.status)} if rule.status else set())
    assert ("reset" in seen) == rule.reset


def test_the_checker_of_defaults_reads_pairs_and_finds_a_wrong_one() -> None:
    assert defaults("| `idle` | 75 s | x |\n| `body_grace`, `body_min_rate` | 20 s, 500 B/s | x |") == {
        "idle": {"75 s"},
        "body_grace": {"20 s"},
        "body_min_rate": {"500 B/s"},
    }
    assert defaults("| `idle` | 60 s |\n| keep-alive | `idle` | 75 s |") == {"idle": {"60 s", "75 s"}}
    assert defaults("| `nothing` | 60 s |") == {}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_document_has_a_target(path: Path) -> None:
    assert broken_links(path.read_text(), path.parent) == []


def test_the_checker_of_links_finds_a_broken_one() -> None:
    assert broken_links("[a](README.md) [b](nothing.md) [c](https://example.org/x)", ROOT) == ["nothing.md"]
    assert broken_links("# Here it is\n[a](#here-it-is) [b](#nowhere)", ROOT) == ["#nowhere"]


def test_there_is_one_version_and_the_changelog_knows_it() -> None:
    assert deadlined.__version__ == PROJECT["version"]
    assert f"\n## {deadlined.__version__}" in (ROOT / "CHANGELOG.md").read_text().replace("[", "").replace("]", "")


def test_the_files_that_the_architecture_points_to_exist() -> None:
    named = re.findall(r"`([\w./]+\.py)`", (ROOT / "ARCHITECTURE.md").read_text())
    package = Path(deadlined.__file__).parent
    missing = [name for name in named if not any((base / name).exists() for base in (package, ROOT, package.parent))]
    assert named
    assert missing == []


def test_the_architecture_says_where_each_module_belongs() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    package = Path(deadlined.__file__).parent
    modules = {path.relative_to(package).as_posix() for path in package.rglob("[!_]*.py")}
    assert {name for name in modules if f"`{name}`" not in text} == set()


def test_each_dependency_has_its_reason_beside_it() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    listed = [one for extra in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()) for one in extra]
    lines = [line for line in text.splitlines() if line.count('"') > 1 and line.split('"')[1] in listed]
    assert {line.split('"')[1] for line in lines} == set(listed)
    assert [line for line in lines if " # " not in line] == []


def test_the_package_and_its_types_are_all_installed() -> None:
    package = Path(deadlined.__file__).parent
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {path.parent for path in package.rglob("*") if path.is_file() and path.parent.name != "__pycache__"}
    # setuptools warns of a folder that has files and is not among its packages
    rooms = {".".join(("deadlined", *folder.relative_to(package).parts)) for folder in folders}
    # tests/loadtest/test_installed.py has the packages of the load test
    assert rooms == {name for name in setuptools["packages"] if name.partition(".")[0] == "deadlined"}
    assert (package / "py.typed").exists()


def test_the_data_files_of_the_package_are_in_its_distributions() -> None:
    package = Path(deadlined.__file__).parent
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    found = [
        set(package.joinpath(*name.split(".")[1:]).glob(pattern))
        for name, patterns in data.items()
        # tests/loadtest/test_installed.py has those of the load test
        if name.partition(".")[0] == "deadlined"
        for pattern in patterns
    ]
    assert all(found)
    made = {".py", ".pyc", ".so", ".sha256"}
    assert set().union(*found) == {file for file in package.rglob("*") if file.is_file() and file.suffix not in made}


ENDINGS = {".c", ".conf", ".go", ".h", ".html", ".md", ".py", ".service", ".socket", ".toml", ".yaml"}
TEXTS = [
    *(path for path in ROOT.iterdir() if path.suffix in ENDINGS or path.name == "Dockerfile"),
    *(ROOT / ".ci").iterdir(),
    *(
        path
        for folder in ("deadlined", "docs", "examples", "loadtest", "tests")
        for path in (ROOT / folder).rglob("*.*")
        if path.suffix in ENDINGS
    ),
]

# folders that only exist on the machine of somebody in particular
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:root|work|home/\w+|Users/\w+)/")


def test_no_file_names_a_folder_of_one_machine() -> None:
    named = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in TEXTS
        if path != Path(__file__)
        for line in path.read_text().splitlines()
        if MACHINE_PATHS.search(line)
    ]
    assert named == []


def test_the_finder_of_machine_paths_finds_one() -> None:
    assert MACHINE_PATHS.search("see /home/ann/deadlined")
    assert MACHINE_PATHS.search("cd /root/x")
    assert not MACHINE_PATHS.search("https://example.org/root/x ./{0}/x /srv/{0}/x".format("work"))


def test_no_test_file_has_more_than_600_lines() -> None:
    lengths = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in (ROOT / "tests").rglob("*.py")}
    assert {name: length for name, length in lengths.items() if length > 600} == {}


def test_the_architecture_names_every_phase() -> None:
    row = re.search(r"^\| phase \|.*: (.*) \|$", ARCHITECTURE, re.MULTILINE)
    assert row is not None
    assert row[1].split(", ") == [str(phase) for phase in Phase]


def test_the_extras_and_sessions_that_the_contributors_page_names_exist() -> None:
    extras = {name for group in re.findall(r"\.\[([\w,]+)\]", CONTRIBUTING) for name in group.split(",")}
    sessions = set(re.findall(r"`nox -s (\w+)", CONTRIBUTING))
    defined = set(
        re.findall(r"^def (\w+)\(session: nox\.Session\) -> None", (ROOT / "noxfile.py").read_text(), re.MULTILINE)
    )
    assert extras <= set(PROJECT["optional-dependencies"])
    assert sessions
    assert sessions - {"wheel"} <= defined


def test_what_the_contributors_page_calls_one_test_is_one() -> None:
    (command,) = re.findall(r"^\.venv/bin/python (-m pytest .*?) +# one test$", CONTRIBUTING, re.MULTILINE)
    collect = [sys.executable, *shlex.split(command), "--collect-only", "-q", "-p", "no:cacheprovider"]
    collected = subprocess.run(collect, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert collected.stdout.count("::") == 1, collected.stdout
