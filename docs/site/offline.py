"""A hook of mkdocs: a warning for each page of the built site that loads something from elsewhere.

Readers without a network, and those who do not want to be seen by a third party, read the whole site. Links are no
loads. The theme's script loads Mermaid from elsewhere for each element of that class, so there must be none.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

# the attributes by which elements load; of a link it depends on what it is
LOADS = {"src", "srcset", "data", "poster", "background"}
LINKED = {"stylesheet", "icon", "shortcut", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload"}
LINKED |= {"manifest", "apple-touch-icon"}

ELSEWHERE = re.compile(r"^\s*(?:https?:)?//", re.IGNORECASE)
IN_STYLES = re.compile(r"""(?:url\(\s*|@import\s+)["']?((?:https?:)?//[^"')\s;]+)""", re.IGNORECASE)

_log = logging.getLogger("mkdocs.hooks.offline")


def on_post_build(config: Any, **_: Any) -> None:
    """Warn of what the site loads from elsewhere. With --strict a warning is an error."""
    for file, url in external(Path(config.site_dir)):
        _log.warning("%s loads %s", file, url)


def external(site: Path) -> list[tuple[str, str]]:
    """Return what the files of a site load from elsewhere, each with its file."""
    readers = {".html": in_page, ".svg": in_page, ".css": in_styles}
    return [
        (str(path.relative_to(site)), url)
        for path in sorted(site.rglob("*"))
        if path.suffix in readers
        for url in readers[path.suffix](path.read_text(encoding="utf-8"))
    ]


def in_styles(text: str) -> Iterator[str]:
    """Give what a style sheet loads from elsewhere."""
    yield from IN_STYLES.findall(text)


def in_page(text: str) -> Iterator[str]:
    """Give what a page loads from elsewhere."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    yield from reader.found


class _Reader(HTMLParser):
    """Reads a page. `found`: what it loads from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element loads."""
        given = {name: value or "" for name, value in attrs}
        loads = LOADS | ({"href"} if self._loads_href(tag, given) else set())
        urls = [part for name in loads & set(given) for part in given[name].split(",")]
        self.found += [url.split()[0] for url in urls if ELSEWHERE.match(url)]
        self.found += in_styles(given.get("style", ""))
        if "mermaid" in given.get("class", "").split():
            self.found.append("mermaid, by the theme's script")
        self._in_style = tag == "style"

    def handle_data(self, data: str) -> None:
        """Note what a style in the page loads."""
        if self._in_style:
            self.found += in_styles(data)

    def handle_endtag(self, tag: str) -> None:
        """Note the end of a style."""
        self._in_style = False

    def _loads_href(self, tag: str, given: dict[str, str]) -> bool:
        """Return True if the element loads its `href`: pages and pictures of SVG do, and some links of the head."""
        return tag in ("image", "use") or (tag == "link" and bool(LINKED & set(given.get("rel", "").lower().split())))
