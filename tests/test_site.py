"""The site has every public name and every page, draws the diagrams, and loads nothing from elsewhere."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

import deadlined
import deadlined.asgi
import deadlined.http
import deadlined.threads
import deadlined.timers
from deadlined.http import state

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


REFERENCE = [deadlined, deadlined.asgi, deadlined.http, deadlined.timers, deadlined.threads]


@pytest.mark.parametrize("module", REFERENCE, ids=lambda module: module.__name__)
def test_the_reference_has_every_public_name_once(module: ModuleType) -> None:
    page = DOCS / "api" / f"{module.__name__.rpartition('.')[2]}.md"
    entries = re.findall(rf"^::: {re.escape(module.__name__)}\.(\w+)$", page.read_text(), re.MULTILINE)
    assert sorted(entries) == sorted(set(module.__all__) - {"__version__"})


def test_the_navigation_names_every_page_once() -> None:
    configuration = (DOCS / "site" / "mkdocs.yml").read_text()
    pages = re.findall(r": ([\w/]+\.md)$", configuration, re.MULTILINE)
    found = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    assert len(pages) > 20
    assert sorted(pages) == sorted(str(page.relative_to(ROOT)) for page in found)


def hook(name: str) -> ModuleType:
    """Load a hook of mkdocs that needs no mkdocs."""
    spec = spec_from_file_location(name, DOCS / "site" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_the_diagram_of_the_states_is_drawn_with_all_of_them_and_all_transitions() -> None:
    page = hook("diagrams").on_page_markdown(f"before\n\n```mermaid\n{state.diagram()}\n```\n\nafter")
    before, html, after = page.split("\n\n")
    assert (before, after) == ("before", "after")
    (svg,) = ElementTree.fromstring(html)
    words = [found.text for found in svg.iter("text")]
    assert set(state.STATES) <= set(words)
    for event in state.EVENTS:
        drawn = sum(name == state.EVENTS.index(event) for _, name in state.TRANSITIONS)
        assert words.count(event.lower()) == drawn
    # and those from the beginning and to the end
    assert sum("marker-end" in found.attrib for found in svg.iter("path")) == len(state.TRANSITIONS) + 3


def test_a_state_without_a_place_is_an_error() -> None:
    with pytest.raises(KeyError):
        hook("diagrams").drawing("    [*] --> NEW: accepted")


def test_every_diagram_of_the_pages_is_one_that_can_be_drawn() -> None:
    pages = "".join(path.read_text() for path in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
    assert pages.count("```mermaid\n") == pages.count("```mermaid\nstateDiagram-v2\n") > 0
    assert "mermaid" not in (DOCS / "site" / "mkdocs.yml").read_text()


@pytest.mark.parametrize(
    ("file", "text", "url"),
    [
        ("a.html", "<script src='https://a.example/b.js'></script>", "https://a.example/b.js"),
        ("a.html", "<link rel='stylesheet' href='//a.example/b.css'>", "//a.example/b.css"),
        ("a.html", "<link rel='preconnect' href='https://fonts.example'>", "https://fonts.example"),
        ("a.html", "<img src='x.png' srcset='x.png 1x, https://a.example/y.png 2x'>", "https://a.example/y.png"),
        ("a.html", "<iframe src=HTTPS://a.example/></iframe>", "HTTPS://a.example/"),
        ("a.html", "<p style='background: url(https://a.example/b.png)'>", "https://a.example/b.png"),
        ("a.html", "<style>@import 'https://a.example/b.css';</style>", "https://a.example/b.css"),
        ("a.html", "<svg><use href='https://a.example/b.svg#c'/></svg>", "https://a.example/b.svg#c"),
        ("a.html", "<pre class='mermaid'><code>graph</code></pre>", "mermaid, by the theme's script"),
        ("a.css", "@font-face { src: url('https://a.example/b.woff2') }", "https://a.example/b.woff2"),
        ("a.css", '@import "//a.example/b.css";', "//a.example/b.css"),
        ("a.svg", "<svg><image href='https://a.example/b.png'/></svg>", "https://a.example/b.png"),
        ("a.html", "<a href='https://a.example'>https://a.example/x.js</a> <script src='b.js'></script>", None),
        ("a.html", "<link rel='canonical' href='https://a.example'><p>url(https://a.example/b.png)</p>", None),
        ("a.css", "a { background: url(data:image/png;base64,//8=) } /* https://a.example */", None),
    ],
)
def test_what_a_site_loads_from_elsewhere_is_found(tmp_path: Path, file: str, text: str, url: str | None) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / file).write_text(text)
    assert hook("offline").external(tmp_path) == ([(f"sub/{file}", url)] if url else [])


def test_the_site_is_searched_when_it_is_built() -> None:
    assert re.search(r"^hooks: \[.*\boffline\.py\b.*\]$", (DOCS / "site" / "mkdocs.yml").read_text(), re.MULTILINE)
