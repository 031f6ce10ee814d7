"""Settings that do not go together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from .binds import TcpBind, needs_token, parse_admin, parse_bind
from .groups import PROXY, RUN
from .model import ServeConfig
from .settings import SETTINGS


class Given(NamedTuple):
    """A value that a source gives to a setting, and its place in the source."""

    value: Any
    origin: str


# what one source gives, by the names of the settings
Layer = dict[str, Given]

# the ways to say where to listen
_WAYS: Final = {"bind": "bind", "uds": "uds", "host": "port", "port": "port"}


def keep_one_way_to_listen(layers: list[Layer], of_file: Layer) -> tuple[list[str], list[str]]:
    """Remove all ways to say where to listen but one from `layers`: the first layer that says it decides. Return a line
    for the mistake that this layer uses two ways, and warnings that `of_file`, one of `layers`, has said it in vain.
    Variables give no warning: they may come from a container's image, unseen."""
    _remove_empty_places(layers)
    deciding = next((layer for layer in layers if not _WAYS.keys().isdisjoint(layer)), None)
    if deciding is None:
        return [], []
    first, *more = [name for name in _WAYS if name in deciding]
    by = deciding[first].origin
    others = [name for name, way in _WAYS.items() if way != _WAYS[first]]
    second = next((deciding[name].origin for name in more if name in others), None)
    problems = [] if second is None else [f"{by} and {second} both say where to listen; give all places with --bind"]
    vain = [] if of_file is deciding else [name for name in others if name in of_file]
    warnings = [f"{of_file[name].origin}: {name} is not used: {by} says where to listen" for name in vain]
    for layer in layers:
        for name in others:
            layer.pop(name, None)
    return problems, warnings


def _remove_empty_places(layers: list[Layer]) -> None:
    """Treat an empty list of places as not given."""
    for layer in layers:
        if "bind" in layer and not layer["bind"].value:
            del layer["bind"]


# the settings that are of no use where nothing is read as HTTP
OF_HTTP: Final = (
    *("read_header", "read", "body_grace", "body_min_rate", "write", "handler"),
    *("max_head", "max_headers", "max_body", "max_requests"),
    *("upstream_first_byte", "upstream_per_try", "upstream_reuse", "trusted_proxies", "forwarded_fields"),
    *("access_log_fields", "http"),
)


def leave_out_http(layers: list[Layer], variables: Layer) -> None:
    """Remove the settings of HTTP from `variables`, one of `layers`, if TCP is guarded: they are meant for other
    services that share the environment."""
    given = next((layer["tcp"] for layer in layers if "tcp" in layer), None)
    if given is not None and given.value:
        for name in OF_HTTP:
            variables.pop(name, None)


def keep_one_process(layers: list[Layer], shared: Layer) -> list[str]:
    """Remove the number of worker processes from `shared`, the values of variables that other servers read as well, if
    `layers` ask for something that only one process does. Return a warning, but not for a command that is started: its
    server may read the variable itself."""
    if "workers" not in shared:
        return []
    if any("command" in layer for layer in layers):
        del shared["workers"]
        return []
    reload = next((layer["reload"] for layer in layers if "reload" in layer), None)
    if reload is None or not reload.value:
        return []
    given = shared.pop("workers")
    return [f"{given.origin} is not used: --reload is for one process"] if given.value > 1 else []


# what `deadlined run` replaces in its command
PLACES: Final = ("{uds}", "{port}")

_EXAMPLE: Final = "deadlined run -- uvicorn app:app --uds {uds}"


def conflicts(config: ServeConfig, command: str | None = None) -> list[str]:
    """Return a line for each pair of settings that do not go together, and for each setting that `command` needs and
    does not have. `command` None: any command."""
    found = [*_with_null(config), *_of_command(config, command)]
    if command == PROXY and not config.upstream:
        found.append(
            "deadlined proxy needs --upstream, where the server listens that it guards: "
            "deadlined proxy --upstream 127.0.0.1:9000; deadlined run starts a server itself"
        )
    if config.tcp:
        found += _of_tcp(config, command)
    if config.forwarded_fields != "both" and not config.trusted_proxies and not config.tcp:
        found.append("--forwarded-fields needs --trusted-proxies")
    found += [*_of_application(config), *_of_tls(config), *_of_admin(config)]
    found += [f"--upstream: {text} is given twice" for text in sorted(_repeated(config.upstream))]
    places = [parse_bind(text) for text in config.bind]
    found += [f"--bind: {text} is given twice" for text in sorted(_repeated(places)) if not text.endswith(":0")]
    return found


def _with_null(config: ServeConfig) -> list[str]:
    """Return a line for each setting with a null character: no path, name or argument of the system can have one."""
    found = []
    for setting in SETTINGS.values():
        value = setting.value(config)
        if any("\0" in text for text in (value if isinstance(value, tuple) else (value,)) if isinstance(text, str)):
            found.append(f"{setting.label} contains a null character")
    return found


def _of_application(config: ServeConfig) -> list[str]:
    found = []
    if config.app is None:
        of_app = {"--factory": config.factory, "--lifespan": config.lifespan != "auto", "--reload": config.reload}
        found += [f"{flag} needs APP" for flag, given in of_app.items() if given]
    if config.reload and config.workers > 1:
        found.append("--reload is for one process; leave --workers out")
    if config.reload_dir and not config.reload:
        found.append("--reload-dir needs --reload")
    return found


def _of_tls(config: ServeConfig) -> list[str]:
    found = []
    if config.certfile is None:
        needing = ("keyfile", "key_password_file", "client_ca", "ciphers")
        found += [f"--{name.replace('_', '-')} needs --certfile" for name in needing if getattr(config, name)]
    if config.client_ca is None:
        of_ca = {"--client-certificate": config.client_certificate != "required", "--client-crl": config.client_crl}
        found += [f"{flag} needs --client-ca" for flag, given in of_ca.items() if given]
    return found


def _of_admin(config: ServeConfig) -> list[str]:
    """Return what is wrong with the address of the admin listener, or why it needs a token that is not given. A name is
    resolved only when it is bound."""
    if config.admin is None:
        return [] if config.admin_token_file is None else ["--admin-token-file needs --admin"]
    try:
        place = parse_admin(config.admin)
    except ValueError as error:
        # a program has made this configuration
        return [f"--admin: {error}"]
    why = needs_token(place.host) if isinstance(place, TcpBind) and config.admin_token_file is None else ""
    return [why] if why else []


def _of_command(config: ServeConfig, command: str | None) -> list[str]:
    """Return what is wrong with the command that `deadlined run` starts."""
    if not config.command:
        return [f"deadlined run needs the command to start: {_EXAMPLE}"] if command == RUN else []
    found = []
    used = [place for place in PLACES if any(place in word for word in config.command)]
    if not used:
        found.append(f"COMMAND must contain {{uds}} or {{port}}, where the server is to listen: {_EXAMPLE}")
    elif len(used) > 1:
        found.append(f"COMMAND contains both {{uds}} and {{port}}, but is to listen in one place: {_EXAMPLE}")
    if config.workers > 1:
        found.append("--workers is not for deadlined run, which starts one server; let COMMAND have worker processes")
    return found


def _of_tcp(config: ServeConfig, command: str | None) -> list[str]:
    """Return what does not go together with --tcp. An option that has its default says nothing."""
    found = [] if config.upstream or command == PROXY else ["--tcp is for deadlined proxy, and needs --upstream"]
    http_only = [SETTINGS[name] for name in OF_HTTP]
    found += [
        f"{setting.flag} is for HTTP, of which --tcp reads nothing; leave one out"
        for setting in http_only
        if setting.value(config) != setting.default
    ]
    if config.routes:
        found.append("[[route]] is for HTTP requests, of which --tcp reads nothing; leave the tables out")
    return found


def _repeated(texts: Iterable[object]) -> set[str]:
    """Return what occurs more than once."""
    return {text for text, number in Counter(map(str, texts)).items() if number > 1}
