"""A hook of mkdocs: draws the state diagrams of the pages.

Facts      The pages have them in Mermaid's language, which code forges draw. On a site it is drawn by a script of three
           megabytes, which the theme loads from elsewhere.
Answer     They are drawn when the site is built. PLACES says where each state stands: arrows go to the right, back to
           the left above them, and down to WIDE, which all others end in.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any, NamedTuple

STATE_DIAGRAM = re.compile(r"^```mermaid\nstateDiagram-v2\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EDGE = re.compile(r"(?P<source>\S+) --> (?P<target>[^\s:]+)(?:: (?P<label>.+))?")

# what begins and what ends
TERMINAL = "[*]"

# the state that all others end in, as wide as the diagram
WIDE = "CLOSING"


class Place(NamedTuple):
    """The middle of a state."""

    x: int
    y: int


PLACES = {
    "HANDSHAKE": Place(90, 130),
    "HEAD": Place(315, 130),
    "EXCHANGE": Place(540, 130),
    "FINISHING": Place(765, 130),
    "IDLE": Place(990, 130),
    "UPGRADED": Place(652, 225),
    "CLOSING": Place(540, 330),
    "CLOSED": Place(540, 415),
}
WIDTH, HEIGHT = 1080, 480

# half of a box, half of the wide one, and where arrows go back
BOX, LONG, BACK = Place(56, 18), Place(506, 18), 40

STYLE = "fill:none;stroke:currentColor;stroke-width:1.3"
HEAD = (
    '<marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0L8 4L0 8z" fill="currentColor"/></marker>'
)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put drawings in the place of the diagrams of a page."""
    return STATE_DIAGRAM.sub(lambda found: drawing(found[1]), markdown)


def drawing(source: str) -> str:
    """Return a diagram as SVG in HTML. KeyError for a state that has no place."""
    edges = [found.groupdict() for line in source.splitlines() if (found := EDGE.match(line.strip()))]
    states = dict.fromkeys(name for edge in edges for name in (edge["source"], edge["target"]) if name != TERMINAL)
    parts = [box(name) for name in states]
    parts += [arrow(edge["source"], edge["target"], edge["label"] or "") for edge in edges]
    title = f"{len(states)} states and {len(edges)} transitions"
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-size="14" style="width:100%;height:auto"'
    return f'<div class="diagram">{svg}><title>{title}</title><defs>{HEAD}</defs>{"".join(parts)}</svg></div>'


def box(name: str) -> str:
    """Draw a state."""
    at, half = PLACES[name], LONG if name == WIDE else BOX
    frame = f'<rect x="{at.x - half.x}" y="{at.y - half.y}" width="{2 * half.x}" height="{2 * half.y}" rx="6"'
    return f'{frame} style="{STYLE}"/>{text(at.x, at.y + 5, name, "middle")}'


def arrow(source: str, target: str, label: str) -> str:
    """Draw a transition."""
    if source == TERMINAL:
        to = PLACES[target]
        return dot(to.x, to.y - 75) + line(to.x, to.y - 75, to.x, to.y - BOX.y) + text(to.x + 8, to.y - 60, label)
    at = PLACES[source]
    if target == TERMINAL:
        return line(at.x, at.y + BOX.y, at.x, at.y + 46) + dot(at.x, at.y + 50)
    to = PLACES[target]
    if WIDE in (source, target):
        return line(at.x, at.y + BOX.y, at.x, to.y - BOX.y) + text(at.x + 8, to.y - 30, label)
    if at.y != to.y:
        return line(at.x + 20, at.y + BOX.y, to.x, to.y - BOX.y) + text((at.x + to.x) // 2 + 24, to.y - 40, label)
    if at.x < to.x:
        return line(at.x + BOX.x, at.y, to.x - BOX.x, at.y) + text((at.x + to.x) // 2, at.y - 7, label, "middle")
    back = f"M{at.x} {at.y - BOX.y}V{BACK}H{to.x - 30}V{to.y - BOX.y}"
    return path(back) + text((at.x + to.x) // 2, BACK - 7, label, "middle")


def line(x: int, y: int, to_x: int, to_y: int) -> str:
    """Draw a straight arrow."""
    return path(f"M{x} {y}L{to_x} {to_y}")


def path(data: str) -> str:
    """Draw an arrow."""
    return f'<path d="{data}" style="{STYLE}" marker-end="url(#arrow)"/>'


def dot(x: int, y: int) -> str:
    """Draw a beginning or an end."""
    return f'<circle cx="{x}" cy="{y}" r="5" fill="currentColor"/>'


def text(x: int, y: int, words: str, anchor: str = "start") -> str:
    """Write a name."""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="currentColor">{escape(words)}</text>'
