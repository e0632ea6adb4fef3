"""How commands are spelled in messages and pages: the one place that knows.

In: the name of a command, and `command` of `[tool.exporter]`. Out: what a person types.

Messages name commands as `exporter export`, in backticks; what shows them spells them as the
project does, `nox -s export` for example.
"""

from __future__ import annotations

import re
from pathlib import Path

#: What stands for the name of the command in `[tool.exporter] command`.
NAME_PLACEHOLDER = "{}"
#: How a project that says nothing runs a command.
DEFAULT_COMMAND = f"exporter {NAME_PLACEHOLDER}"
_MAX_BYTES = 1 << 20
_NAMED = re.compile(r"`exporter ([a-z]+)(?: ([^`]*))?`")


def format_command(command: str, name: str, arguments: str = "") -> str:
    """What to type: `nox -s export -- 'net/*'`.

    Args:
        command: The project's, with `{}` where the name goes: `nox -s {} --`.
        name: `export`.
        arguments: As a shell takes them.
    """
    line = command.replace(NAME_PLACEHOLDER, name)
    return f"{line} {arguments}" if arguments else line.removesuffix(" --")


def replace_commands(text: str, command: str) -> str:
    """The text with each command that it names in backticks spelled as the project does."""
    return _NAMED.sub(lambda found: f"`{format_command(command, found[1], found[2] or '')}`", text)


def read_command(root: Path) -> str:
    """`command` of the project at `root`; the default where its settings cannot be read.

    A message must come out whatever is wrong with the settings: `manifest` says what that is.
    """
    import tomli

    try:
        with (root / "pyproject.toml").open("rb") as file:
            table = tomli.loads(file.read(_MAX_BYTES).decode())
        found = table["tool"]["exporter"]["command"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return DEFAULT_COMMAND
    return found if isinstance(found, str) and NAME_PLACEHOLDER in found else DEFAULT_COMMAND
