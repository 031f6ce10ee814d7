"""Freezing programs that use this package: PyInstaller asks here for the folder of its hook."""

from __future__ import annotations

from pathlib import Path


def hook_folders() -> list[str]:
    """Return the folder of the hook, which runs inside PyInstaller: the entry point `pyinstaller40`."""
    return [str(Path(__file__).parent)]
