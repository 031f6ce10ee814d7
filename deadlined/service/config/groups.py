"""What the annotation of a setting says: its commands, its group, and how it is shown."""

from __future__ import annotations

from typing import Any, Final

import msgspec

# the commands that have these options
SERVE: Final = "serve"
PROXY: Final = "proxy"
RUN: Final = "run"
COMMANDS: Final = (SERVE, PROXY, RUN)

LISTEN = "Where to listen"
APPLICATION = "Application"
UPSTREAM = "Upstream"
DEADLINES = "Deadlines"
LIMITS = "Limits"
TLS = "TLS"
PROCESSES = "Processes"
ADMIN = "Admin listener"
LOGS = "Logs"
RARE = "Rarely needed"

# in the order of the help
GROUPS = (LISTEN, APPLICATION, UPSTREAM, DEADLINES, LIMITS, TLS, PROCESSES, ADMIN, LOGS, RARE)


def about(group: str, help_: str, *commands: str, **more: Any) -> msgspec.Meta:
    """Describe a field, an option of `commands`, by default of all. `more`: `name`, what stands for its value; `short`,
    a flag of one letter; `choices`, all values that it may have; `kind`, how it is read if its type does not say so;
    `flag=False`, if it is an argument; `shared_variable`, a variable that other servers have as well, and whose value
    is the default."""
    return msgspec.Meta(description=help_, extra={"group": group, "commands": commands or COMMANDS, **more})
