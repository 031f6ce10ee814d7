"""The file of `--env-file`: variables for the application and the settings.

python-dotenv reads it, because people know its quotes, escapes and `${NAME}` from uvicorn and compose, and a file must
mean the same here. It is loaded only with the option.
"""

from __future__ import annotations

import io
from pathlib import Path

from .outcome import WrongConfiguration


def load(path: str) -> None:
    """Set the variables of a file that are not set yet. WrongConfiguration if it cannot be read, or is
    malformed."""
    from dotenv.main import DotEnv
    from dotenv.parser import parse_stream

    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise WrongConfiguration([f"--env-file {path}: cannot read it: {why}"]) from None
    for line in parse_stream(io.StringIO(text)):
        if line.error or "\0" in line.original.string:
            raise WrongConfiguration([f"--env-file {path}:{line.original.line}: this line is not NAME=value"])
    # what is set already comes first, in ${NAME} as well. Not `dotenv_values`, which would prefer the file, nor
    # `load_dotenv`, which PYTHON_DOTENV_DISABLED turns off: that is for files that nobody has named
    DotEnv(None, stream=io.StringIO(text), override=False).set_as_environment_variables()
