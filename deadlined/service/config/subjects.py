"""What is served: an application, upstreams or a command, and the settings that a command does not use.

Several services may share an environment, so a variable that a command does not use means nothing to it. A flag or a
key of the file is meant for one service.
"""

from __future__ import annotations

from typing import Final

from .conflicts import Layer
from .groups import PROXY, RUN, SERVE
from .settings import SETTINGS

# the setting that says what is served, by the command that uses it
SUBJECTS: Final = {SERVE: "app", PROXY: "upstream", RUN: "command"}


def leave_out_unused(layer: Layer, command: str | None) -> tuple[list[str], list[str]]:
    """Remove what `command` does not use from the settings of a file; nothing if it is None. Return a line for each
    mistake, and for each warning."""
    problems: list[str] = []
    warnings: list[str] = []
    for name in [name for name in layer if command is not None and command not in SETTINGS[name].commands]:
        origin = layer.pop(name).origin
        line = f"{origin}: {name} is for {_listed(name)}, and not used by deadlined {command}"
        (problems if name in SUBJECTS.values() else warnings).append(line)
    return problems, warnings


def keep_one_subject(layers: list[Layer]) -> list[str]:
    """Let the first layer that says what is served decide, and remove the other ways to say so from the others. Return
    a line if that layer itself says two things."""
    kept, problems = "", []
    for layer in layers:
        here = [name for name in SUBJECTS.values() if name in layer]
        if not kept and here:
            kept = here[0]
            if others := here[1:]:
                one, other = layer[kept].origin, layer[others[0]].origin
                problems.append(f"{one} ({kept}) and {other} ({others[0]}) both say what to serve; leave one out")
        for name in here:
            if name != kept:
                del layer[name]
    return problems


def _listed(name: str) -> str:
    return " and ".join(f"deadlined {command}" for command in SETTINGS[name].commands)
