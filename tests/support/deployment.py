"""The files of examples/ that deploy a service, and the application that they serve."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from deadlined.service.config import SETTINGS
from deadlined.service.process.last_resort import MARGIN

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
DOCKERFILE = ROOT / "Dockerfile"

# the folder of shop.py, for --app-dir
SHOP = EXAMPLES / "docker"

# seconds from a drain's deadline to the last moment at which a server exists: it ends itself after MARGIN, and a
# supervisor kills worker processes that do not as much later
LATEST = 2 * MARGIN

Document = dict[str, Any]


def documents(path: Path) -> list[Document]:
    """Return the documents of a YAML file."""
    with path.open() as file:
        return list(yaml.safe_load_all(file))


def instruction(name: str, dockerfile: Path = DOCKERFILE) -> str:
    """Return the arguments of the last such instruction of a Dockerfile, in one line."""
    text = re.sub(r"\\\n", "", dockerfile.read_text())
    return str(re.findall(rf"^{name} +(.*)$", text, re.MULTILINE)[-1]).strip()


def image_variables() -> dict[str, str]:
    """Return the variables that the image sets."""
    return dict(word.split("=", 1) for word in instruction("ENV").split())


def with_any_port(address: str) -> str:
    """Return an address with a port that the system chooses."""
    host, _, port = address.rpartition(":")
    assert port.isdecimal(), address
    return f"{host}:0"


def duration(text: str) -> float:
    """Return the seconds of a duration of the configuration."""
    return float(SETTINGS["drain"].parse(text))
