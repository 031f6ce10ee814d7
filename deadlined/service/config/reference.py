"""The reference page of the settings. `python -m deadlined.service.config.reference > docs/configuration.md` writes it;
a test fails when it is out of date.
"""

from __future__ import annotations

from ...http.routes import NOT_PER_ROUTE
from .groups import COMMANDS, GROUPS
from .kinds import Flag, Words
from .settings import SETTINGS, Setting

_BEGIN = """\
# Configuration

Generated from `deadlined/service/config/model.py`; do not edit.

Each setting of `deadlined serve`, `deadlined proxy` and `deadlined run` can be given as a flag, as a variable of the
environment, or as a key of a TOML file. The first of these that is given counts:

1. the flag: `--read-header 5s`;
2. the variable: `DEADLINED_READ_HEADER=5s`; an empty one counts as not set;
3. the key in the file of `--config FILE`, or of the variable `DEADLINED_CONFIG`: `read_header = "5s"`;
4. the default; for `workers` it is the variable `WEB_CONCURRENCY` where that is set, as for uvicorn and gunicorn.

```toml
app = "shop.web:app"
port = 80
workers = 4
read_header = "5s"
max_body = "10m"
access_log = false
```

All keys but those of [routes](#routes) stand at the top of the file, in no table. Relative paths are relative to the
directory in which the command is started; write the path of a unix socket in full if the application changes the
directory as it is imported.

The tables below say which command has which setting. One of three settings says what is served: `app`, `upstream` or
`command`. A command ignores the variables of settings that it does not have, because services may share an
environment. A key of the file that it does not have is a warning, and a mistake if it is one of those three.

`bind`, `uds`, and `host` with `port` are three ways to say where to listen. The first source that uses one decides, and
the others are not used. If they are in the file, a warning says so.

```toml
# deadlined run --config shop.toml
command = ["uvicorn", "shop.web:app", "--uds", "{uds}"]
port = 80
upstream_first_byte = "20s"
```

`deadlined config show` prints every setting with its origin, for the same flags, variables and file as `deadlined
serve`, `proxy` or `run`; a command with its arguments can only be given by a variable or the file. What it prints is a
file for `--config`; `--json` prints JSON. `deadlined config validate` also loads the certificate, its key and the
authorities. It prints a line for every mistake, and exits with 0 if there is none, with 2 otherwise. The commands exit
with 2 for the same mistakes, before they have opened anything.

```console
$ deadlined config validate --config shop.toml
Error: shop.toml:4: read_heder: unknown key; did you mean read_header?
Error: shop.toml:5: max_body: 'ten' is not an amount: write a whole number, 1.5k, 16k, 10m, 1g, or off
```

`--env-file FILE` (`DEADLINED_ENV_FILE`) first sets the variables of a file that are not set yet, for the application
and for the settings; `DEADLINED_CONFIG` among them names the file of `--config`. The file is read by python-dotenv, as
by uvicorn.

An unknown variable that begins with `DEADLINED_` has no effect but a warning on stderr, which names the most similar
known one. `deadlined serve` also warns of variables of uvicorn and gunicorn that it does not read (`UVICORN_PORT`,
`FORWARDED_ALLOW_IPS`, `GUNICORN_CMD_ARGS`), and says what to set instead, unless something else gives that setting.

Passwords and tokens are never settings themselves: a setting names the file that has them. `config show` prints the
name. The value of an unknown key is not repeated in messages.

## Values

| kind | written as |
|---|---|
| duration | `500ms`, `10s`, `1m30s`, `2h`, `1d`; a number is in seconds; `off` is none |
| amount | `500`, `1.5k`, `64KiB`, `10m`, `1g`; `k`, `m`, `g` are powers of 1024, capital or small; `off` is no limit |
| rate | an amount of bytes per second, never `off` |
| switch | `--factory` or `--no-factory`; a variable is `true`, `1`, `yes`, `on`, or their opposites |
| list | repeat the flag, or separate by commas, not by blanks, which a path may have; TOML: a list of texts |
| command | the words after `--`; a variable has the quotes of a shell; TOML: a list of texts |

In TOML a switch is `true` or `false`, and a duration, an amount or a rate is a text or a number. Negative numbers
and NaN are mistakes, and so is 0 for a deadline that nothing could meet, such as `handler`: elsewhere that often means
`off`, which is written here.
"""

_ROUTES = """
## Routes

A table `[[route]]` of the file overrides deadlines and limits for requests by their path and, if `methods` is there,
their method, and can leave them out of the access log:

```toml
[[route]]
path = "/upload"
methods = ["POST", "PUT"]
body_grace = "5m"
max_body = "2g"

[[route]]
path = "/events"
handler = "off"
max_running = "off"

[[route]]
path = "/healthz"
access_log = false
```

A route is for its path and what lies below: `/upload` is also for `/upload/a`, and not for `/uploads`. It has no
patterns: for `/items/{number}` write `/items`. What needs more than that has its deadline from the application, which
[moves it](timeouts.md#moved-by-the-application). Paths are compared percent-decoded and without the query: that of a
request is the application's `scope["path"]` without the `root_path` prefix. A `{`, `*` or `?` of a route's own path is
written `%7B`, `%2A` or `%3F`. Some servers merge repeated slashes and remove `.` and `..` from a path, and others do
not: if the route of `//upload` or `/a/../upload` depends on that, the request is refused with 400. A method is compared
in capitals: a route for POST is also for `post`, which many applications and upstreams read as POST. Any method may be
given, `PURGE` for example, but not a usual one with a typing error. Of several routes that match, the one with the
longest path counts; of two for the same path, the one with the method. They are not combined. Two for the same path and
method are a mistake. What a route does not override is as for the whole server. `idle` of a route holds after the
response to its request. Of `max_running` it can only have `off`: its requests are handled at once, and do not count.
`access_log = false` leaves out the lines of its requests, failures included, and those of connections that had no
others; metrics count them as before. The whole server's `access_log = false` holds for all routes.

All settings of the groups Deadlines and Limits can be overridden, except these; those of Upstream cannot:

"""


def page() -> str:
    """Return the page, in Markdown."""
    return _BEGIN + "".join(_section(group) for group in GROUPS) + _ROUTES + "".join(map(_exception, NOT_PER_ROUTE))


def _exception(name: str) -> str:
    return f"- `{name}`: {NOT_PER_ROUTE[name]}\n"


def _section(group: str) -> str:
    parts = [_entry(setting) for setting in SETTINGS.values() if setting.group == group]
    head = "| key | flag | of | value | default | |\n|---|---|---|---|---|---|\n"
    return f"\n## {group}\n\n{head}{''.join(parts)}"


def _entry(setting: Setting) -> str:
    short = [f"`-{setting.short}`"] if setting.short else []
    flags = [f"`{setting.flag}`", *short] if setting.is_flag else [f"`{setting.name.upper()}`"]
    commands = "all" if setting.commands == COMMANDS else ", ".join(setting.commands)
    default = f"`{setting.default_text}`" if setting.default_text else ""
    if setting.shared_variable:
        default = f"`{setting.shared_variable}`, or {default}"
    cells = (f"`{setting.name}`", ", ".join(flags), commands, _value(setting), default, _escaped(setting.help))
    return f"| {' | '.join(cells)} |\n"


def _value(setting: Setting) -> str:
    if isinstance(setting.kind, Flag):
        return "switch"
    if isinstance(setting.kind, Words):
        return f"list of {setting.kind.name}"
    return (
        ", ".join(f"`{choice}`" for choice in setting.kind.name.split("|"))
        if "|" in setting.kind.name
        else (setting.kind.name)
    )


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
