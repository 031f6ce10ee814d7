"""What PyInstaller must know to freeze a program with this package in it. It asks for the folder of the hook."""

from __future__ import annotations

from pathlib import Path


def hook_folders() -> list[str]:
    """Return the folder of the hook, which runs inside PyInstaller: the entry point `pyinstaller40`."""
    return [str(Path(__file__).parent)]
