"""What the commands have in common: options, exit codes when a target cannot be attacked, progress, files."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from .interrupts import INTERRUPTED
from .output import OUTPUT
from .servers import ToolMissingError
from .target import ForbiddenTargetError, UnusableTargetError

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
# what an option gives that can be repeated, and one that takes a file to write
Names = tuple[str, ...]
File = Path | None
# a folder
FOLDER = click.Path(file_okay=False, path_type=Path)
# called with what is being done, how much of this part is done, and how much it is in all
OnProgress = Callable[[str, float, float], None]


class _NewFile(click.Path):
    """A file to write. Its folder must be there: a run takes minutes, and what it has measured would be lost."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.parent.is_dir():
            self.fail(f"there is no folder {path.parent} to write {path.name} in.", param, ctx)
        return path


FILE = _NewFile(dir_okay=False)


class Numbers(click.FloatRange):
    """A range of numbers, both ends given. NaN is not in it. `read` makes a number of a text."""

    read: Callable[[Any], float] = float

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        with suppress(ValueError):
            if (self.min or 0) <= (number := self.read(value)) <= (self.max or 0):
                return number
        kind = "a whole number" if self.read is int else "a number"
        return self.fail(f"{value!r} is not {kind} from {self.min} to {self.max}.", param, ctx)


class Wholes(Numbers):
    """A range of whole numbers."""

    name, read = "integer range", int


def file_option(flag: str, text: str) -> Decorator:
    """Make an option that takes a file to write."""
    name = f"{flag.strip('-')}_file"
    return click.option(flag, name, metavar="FILE", type=FILE, help=text)


def of_target(verb: str) -> Decorator:
    """Make the argument `url`, and the option that permits it; `verb` says what is done to it."""
    owned = click.option("--i-own-this-target", "owned", metavar="HOST", multiple=True,
                         help=f"{verb} this name or address, which is not loopback. It is yours. Can be "
                         "repeated.")  # fmt: skip
    return lambda command: click.argument("url")(owned(command))


def watching(limit: float) -> Decorator:
    """Make the options `limit`, with this default, and `connections`, of a check."""
    seconds = click.option("--limit", metavar="SECONDS", type=Numbers(0.5, 3600), default=limit,
                           show_default=True,
                           help="Watch a connection for so long: what is open then counts as held.")  # fmt: skip
    crowds = click.option("--connections", type=Wholes(0, 5_000), default=256, show_default=True,
                          help="Size of the crowds that attack while honest clients ask; 0 for none.")  # fmt: skip
    return lambda command: seconds(crowds(command))


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors of the block into one line and an exit code: 2 for a target that may not be attacked and for a tool
    that is not installed, 3 for a target that does not answer as it must, 1 for what else fails; and 130 for Ctrl-C
    before the block can report anything."""
    try:
        yield
    except (ForbiddenTargetError, ToolMissingError) as error:
        raise click.UsageError(str(error)) from error
    except RuntimeError as error:
        raise click.ClickException(str(error)) from error
    except UnusableTargetError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(3)
    except KeyboardInterrupt:
        click.echo("Interrupted before there was a result.", err=True)
        sys.exit(INTERRUPTED)


@contextmanager
def progress(console: Console) -> Iterator[OnProgress]:
    """Show a bar, and how long it will take, while the block runs; give what moves it.

    Drawn by the caller's thread, in the moments it reports.
    """
    columns = (TextColumn("[bold]{task.description}"), BarColumn(30), TimeRemainingColumn())
    quiet = not console.is_terminal  # it would be an empty line
    options: dict[str, Any] = {"auto_refresh": False, "transient": True, "redirect_stdout": False, "disable": quiet}
    with Progress(*columns, console=console, **options) as bar:
        task = bar.add_task("asking", total=1.0)

        def on_progress(what: str, done: float, total: float) -> None:
            bar.update(task, description=what, completed=min(max(done, 0.0), total), total=total)
            bar.refresh()

        yield on_progress


def rendered(template: Path, **values: Any) -> str:
    """Return a template of Jinja with its values, which are escaped if it is HTML or XML."""
    environment = Environment(loader=FileSystemLoader(template.parent), autoescape=select_autoescape(),
                              undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
                              keep_trailing_newline=True)  # fmt: skip
    return environment.get_template(template.name).render(values)


def now() -> str:
    """Return the time as results have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def as_text(result: object) -> str:
    return json.dumps(result, indent=2) + "\n"


def conclude(show: Callable[[], object], *files: tuple[File, Callable[[], str]]) -> None:
    """Write each text to its path, if one was given, and then show the result.

    All is tried; each failure is one line, and any means exit code 1. That the reader of a pipe has left is none.
    """
    failures = []
    for path, text in files:
        try:
            if path is not None:
                put(path, text())
        except OSError as error:
            failures.append(f"{path} cannot be written: {error.strerror}")
    show()
    if failures:
        raise click.ClickException("\n".join(failures))
    if OUTPUT.failed:
        sys.exit(1)


def put(path: Path, text: str) -> None:
    """Write a new file, then put it in the place of the old one, which stays on a full disk.

    Written in place, without that protection: the target of a link, a device, a mounted file, and a file in a folder
    that takes no new one.
    """
    fresh = path.with_name(f".{path.name}.new")
    if path.is_symlink() or (path.exists() and not (path.is_file() and os.access(path.parent, os.W_OK))):
        path.write_text(text, encoding="utf-8")
        return
    try:
        fresh.write_text(text, encoding="utf-8")
        if path.exists():
            shutil.copymode(path, fresh)
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        if error.errno != errno.EBUSY:
            raise
        path.write_text(text, encoding="utf-8")
