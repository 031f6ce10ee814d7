"""Sentences for the server's own events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .figures import count_text, time_text
from .output import lost_lines
from .tracebacks import cut_stack

Fields = Mapping[str, Any]

# what connections wait for in a drain, by phase
_WAITS = {
    "handshake": "in the TLS handshake",
    "header": "sending a head",
    "body": "sending a body",
    "handler": "waiting for the application",
    "write": "taking a response",
    "idle": "idle",
    "drain": "being cut",
}


def sentence(event: str, fields: Fields) -> str | None:
    """Say what has happened; "" if nothing is to be said, None if no sentence is known for this event. Sentences leave
    out fields that are of no use on a terminal."""
    write = _SENTENCES.get(event)
    return None if write is None else write(fields)


def _listening(fields: Fields) -> str:
    return f"listening on {fields['url']}"


def _draining(fields: Fields) -> str:
    limit = "without a limit" if fields["seconds"] is None else f"for at most {time_text(fields['seconds'])}"
    left = _left(fields["open"], fields["background"])
    again = " Ctrl-C again cuts them." if fields["signal"] == "SIGINT" and left else ""
    return f"{fields['signal']}: draining {limit}; {left or 'nothing is'} open.{again}"


def _still_draining(fields: Fields) -> str:
    waits = ", ".join(f"{number} {_WAITS.get(phase, phase)}" for phase, number in fields["phases"].items())
    rest = "" if fields["left"] is None else f", {time_text(fields['left'])} left"
    paths = ", ".join(f"{number} of {path}" for path, number in fields["paths"].items())
    what = _left(fields["open"], fields["background"]) + (f" ({waits})" if waits else "")
    return f"draining{rest}: {what}" + (f"; requests: {paths}" if paths else "")


def _left(connections: int, background: int) -> str:
    parts = [count_text(connections, "connection")] if connections else []
    if background:
        parts.append(count_text(background, "background handler"))
    return " and ".join(parts)


def _stopped(fields: Fields) -> str:
    reasons = ", ".join(f"{number} {reason}" for reason, number in fields["reasons"].items())
    served = f"{count_text(fields['requests'], 'request')}, {count_text(fields['connections'], 'connection')}"
    return f"stopped after {time_text(fields['uptime'])}: {served}" + (f" ({reasons})" if reasons else "")


def _stopping(fields: Fields) -> str:
    return f"{fields['signal']}: stopping {count_text(fields['workers'], 'worker process', 'worker processes')}"


def _worker_ended(fields: Fields) -> str:
    ended = _ended(_worker(fields), fields)
    # one that had drained was replaced before
    return f"{ended}; it is replaced {_soon(fields['replaced_in'])}" if "replaced_in" in fields else ended


def _worker(fields: Fields) -> str:
    return f"worker process {fields['number']} ({fields['pid']})"


def _ended(which: str, fields: Fields) -> str:
    how = f"by {fields['signal']}" if "signal" in fields else f"with code {fields['code']}"
    hint = f" ({fields['hint']})" if "hint" in fields else ""
    return f"{which} ended {how} after {time_text(fields['lived'])}{hint}"


def _soon(seconds: float) -> str:
    return f"in {time_text(seconds)}" if seconds else "now"


def _worker_silent(fields: Fields) -> str:
    killed = f"{_worker(fields)} has not answered for {time_text(fields['silent'])}: killed"
    if "file" not in fields:
        return killed
    where = f"it was blocked in {fields['function']}, {fields['file']}"
    return f"{killed}; {where}" + (f"\n{cut_stack(fields['stack'])}" if fields["stack"] else "")


def _command_started(fields: Fields) -> str:
    return f"started {fields['command']} (process {fields['pid']})"


def _command_accepts(fields: Fields) -> str:
    return f"the command accepts connections, {time_text(fields['after'])} after its start"


def _command_slow(fields: Fields) -> str:
    return f"the command (process {fields['pid']}) does not accept connections at {fields['address']} yet"


def _command_ended(fields: Fields) -> str:
    ended = _ended(f"the command (process {fields['pid']})", fields)
    return f"{ended}; it is started again {_soon(fields['again_in'])}" if "again_in" in fields else ended


def _stopping_command(fields: Fields) -> str:
    return f"stopping the command (process {fields['pid']})"


def _reloaded(fields: Fields) -> str:
    changed = ", ".join(f"{name} {_or_none(old)} -> {_or_none(new)}" for name, (old, new) in fields["changed"].items())
    restart = ", ".join(fields["needs_restart"])
    waits = f"; changed, and needs a restart: {restart}" if restart else ""
    until = fields.get("certificate_until")
    certificate = f"; the certificate is valid until {until}" if until else ""
    return f"{fields['by']}: configuration reloaded: {changed or 'no setting has changed'}{certificate}{waits}"


def _or_none(value: str | None) -> str:
    return "none" if value is None else value


def _reload_refused(fields: Fields) -> str:
    return f"{fields['by']}: configuration not reloaded, nothing has changed: {fields['why']}"


def _blocked(fields: Fields) -> str:
    where = f"in {fields['function']}, {fields['file']}"
    return f"event loop blocked for {time_text(fields['seconds'])} {where}\n{cut_stack(fields['stack'])}"


def _lost(fields: Fields) -> str:
    return lost_lines(fields["lost"], fields["why"], "log ")


def _on_stderr(_: Fields) -> str:
    """The command says it on stderr, with the traceback, and a terminal shows both."""
    return ""


_SENTENCES: dict[str, Callable[[Fields], str]] = {
    "listening": _listening,
    "draining": _draining,
    "still draining": _still_draining,
    "stopped": _stopped,
    "stopping the workers": _stopping,
    "worker ended": _worker_ended,
    "worker does not answer: killed": _worker_silent,
    "command started": _command_started,
    "command accepts connections": _command_accepts,
    "the command does not accept connections yet": _command_slow,
    "command ended": _command_ended,
    "stopping the command": _stopping_command,
    "event loop blocked": _blocked,
    "reloaded": _reloaded,
    "reload refused": _reload_refused,
    "log lines lost": _lost,
    "startup failed": _on_stderr,
}
