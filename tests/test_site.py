"""The site has every public name and every page."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

import deadlined
import deadlined.threads
import deadlined.timers

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.mark.parametrize("module", [deadlined, deadlined.timers, deadlined.threads], ids=lambda module: module.__name__)
def test_the_reference_has_every_public_name_once(module: ModuleType) -> None:
    page = DOCS / "api" / f"{module.__name__.rpartition('.')[2]}.md"
    entries = re.findall(rf"^::: {re.escape(module.__name__)}\.(\w+)$", page.read_text(), re.MULTILINE)
    assert sorted(entries) == sorted(set(module.__all__) - {"__version__"})


def test_the_navigation_names_pages_that_exist_each_once() -> None:
    configuration = (DOCS / "site" / "mkdocs.yml").read_text()
    pages = re.findall(r": ([\w/]+\.md)$", configuration, re.MULTILINE)
    assert len(pages) > 20
    assert len(set(pages)) == len(pages)
    assert [page for page in pages if not (ROOT / page).exists()] == []
