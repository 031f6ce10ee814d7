"""The configuration in use, and how it is read again."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import msgspec

from ..errors import StartupError
from ..log.logs import Log
from ..tls import validity
from ..tls.certificates import server_context
from . import SETTINGS, ConfigurationError, ServeConfig, Sources, resolve
from .changing import changes, merged
from .kinds import printable

# the settings that name files
_FILES: Final = tuple(setting.name for setting in SETTINGS.values() if setting.kind.name == "file")


class Reloaded(msgspec.Struct, frozen=True):
    """What a reload has done.

    `reloaded`: the settings in `changed` are in use now, each with its value before and after; the settings in
    `needs_restart` differ as well, and are not in use. `refused`: nothing has changed, for the reasons in `problems`.
    `draining`, `starting`, `restarting`: nothing was read, because the service drains, does not serve yet, or is
    restarted with the configuration of its start whenever a file changes. `workers`: how many worker processes are
    replaced, one by one.
    """

    status: Literal["reloaded", "refused", "draining", "starting", "restarting"]
    changed: dict[str, tuple[str | None, str | None]] = {}
    needs_restart: list[str] = []
    problems: list[str] = []
    workers: int = 0


class Configuration:
    """The configuration that a process has now. `given`: the configuration of the start. `sources`: what it can be made
    from again, or None. `config`: the configuration as the process uses it, for example with the ports that were
    chosen, and with absolute paths, because an application may change the current directory."""

    def __init__(self, given: ServeConfig, sources: Sources | None) -> None:
        self._directory = _current_directory()
        self._given = self._with_whole_paths(given)
        self.config: ServeConfig = self._given
        if sources is not None and sources.file is not None:
            sources = msgspec.structs.replace(sources, file=str(self._directory / sources.file))
        self._sources = sources

    def reread(self, by: str, log: Log) -> Reloaded:
        """Read the sources again, if there are any, and take over into `config` what can change in a running process;
        the caller applies it. An error, also in the files of TLS, changes nothing and is not raised. Log the result for
        `by`, what has asked, and what `warn_of_validity` says."""
        try:
            new = self._given if self._sources is None else self._with_whole_paths(resolve(self._sources).config)
            context_of(new)
            found = changes(self._given, new)
        except Exception as error:
            problems = _problems(error)
            log("reload refused", level="error", by=by, why="; ".join(problems))
            return Reloaded("refused", problems=problems)
        self._given, self.config = merged(self._given, new), merged(self.config, new)
        level = "warning" if found.needs_restart else "info"
        # the files are read again although no setting has changed
        until = validity.end_of(self.config.certfile) if self.config.certfile is not None else ""
        told = {"certificate_until": until} if until else {}
        log("reloaded", level=level, by=by, changed=found.changed, needs_restart=found.needs_restart, **told)
        warn_of_validity(self.config, log)
        return Reloaded("reloaded", found.changed, found.needs_restart)

    def _with_whole_paths(self, config: ServeConfig) -> ServeConfig:
        """Return the configuration with paths that are relative to the directory of the start made absolute."""
        given = {name: path for name in _FILES if (path := getattr(config, name)) is not None}
        return msgspec.structs.replace(config, **{name: str(self._directory / path) for name, path in given.items()})


def _current_directory() -> Path:
    """Return the current directory; an empty path if only relative paths can be used, because it was removed, or lies
    below a directory that this user may not search."""
    try:
        directory = Path.cwd()
        directory.stat()
    except OSError:
        return Path()
    return directory


def _problems(error: Exception) -> list[str]:
    """Say what is wrong, in texts that UTF-8 can encode."""
    if isinstance(error, ConfigurationError):
        return [printable(each) for each in error.problems]
    return [printable(str(error) if isinstance(error, StartupError) else f"{type(error).__name__}: {error}")]


_WHY_NOT: Final = {
    "draining": "the service is draining",
    "starting": "the service is starting",
    "restarting": "--reload restarts the service with the configuration of its start",
}


def not_reloaded(status: Literal["draining", "starting", "restarting"], by: str, log: Log) -> Reloaded:
    """Log that nothing is read again now, and return that."""
    log("not reloaded", level="warning", by=by, why=_WHY_NOT[status])
    return Reloaded(status)


def context_of(config: ServeConfig) -> ssl.SSLContext | None:
    """Make the TLS context of a configuration; None without a certificate. StartupError if that is not possible."""
    if config.certfile is None:
        return None
    return server_context(
        config.certfile,
        config.keyfile,
        key_password_file=config.key_password_file,
        client_ca=config.client_ca,
        client_certificate=config.client_certificate,
        client_crl=config.client_crl,
        ciphers=config.ciphers,
        tls_min=config.tls_min,
    )


def warn_of_validity(config: ServeConfig, log: Log) -> None:
    """Log which certificate, or list of revoked certificates, is not valid now or expires soon. The files were accepted
    before."""
    now = datetime.now(UTC)
    if config.certfile is not None and (text := validity.warning(config.certfile, now)):
        log(text, level="warning", file=config.certfile)
    if config.client_crl is not None and (text := validity.warning_of_lists(config.client_crl, now)):
        log(text, level="warning", file=config.client_crl)
