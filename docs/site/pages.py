"""Hooks of mkdocs: the site has the repository's pages, examples and pictures under the repository's own paths.

So a relative link means the same on the site, in an editor and where the repository is shown.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PATTERNS = ["*.md", "LICENSE", "Dockerfile", "docs/**/*.md", "docs/**/*.png", "docs/site/*.css", "examples/**/*"]


def paths() -> list[str]:
    """Return what the site is made of, relative to the repository."""
    found = {path for pattern in PATTERNS for path in ROOT.glob(pattern) if path.is_file()}
    return sorted(str(path.relative_to(ROOT)) for path in found if "__pycache__" not in path.parts)


def on_files(files: Files, config: Any) -> Files:
    """Put the repository's files in the place of those of `docs_dir`."""
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    for path in paths():
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files
