"""Format the commands in messages and pages as the project's users type them.

Messages contain commands as `exporter export`, in backticks. The terminal and the pages replace
them, for example with `nox -s export`.
"""

from __future__ import annotations

import re
from pathlib import Path

#: Placeholder of the command's name in `[tool.exporter] command`.
NAME_PLACEHOLDER = "{}"
#: The command line of a project without this setting.
DEFAULT_COMMAND = f"exporter {NAME_PLACEHOLDER}"
_COMMAND = re.compile(r"`exporter ([a-z]+)(?: ([^`]*))?`")


def format_command(command: str, name: str, arguments: str = "") -> str:
    """Return the command line to type: `nox -s export -- 'net/*'`.

    `{}` in the setting of the project is replaced by the name; `arguments` are quoted for a shell.
    """
    line = command.replace(NAME_PLACEHOLDER, name)
    return f"{line} {arguments}" if arguments else line.removesuffix(" --")


def replace_commands(text: str, command: str) -> str:
    """Return the text with each command in backticks in the project's form."""
    return _COMMAND.sub(
        lambda match: f"`{format_command(command, match[1], match[2] or '')}`", text
    )


def read_command(root: Path) -> str:
    """Return `command` of the project at `root`.

    Returns:
        The setting, or the default if the settings are invalid: a message must always be printed.
    """
    from exporter.core.toml_table import read_setting

    command = read_setting(root, "command", DEFAULT_COMMAND)
    return command if NAME_PLACEHOLDER in command else DEFAULT_COMMAND
