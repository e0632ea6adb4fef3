"""Text that a model, a tool or a manifest wrote, made fit to be shown or kept.

In: any text. Out: `remove_controls` has no character that steers a terminal; `escape_ci_commands` has nothing
that steers a CI system either; `redact` has nothing that differs between two machines.
"""

from __future__ import annotations

import os
import re
import sys
from functools import cache, lru_cache
from pathlib import Path

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor moves (ECMA-48 control sequences)
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # window titles and links (operating system commands)
    r"|\x1b."
)
#: C0 but for tab and newline, C1, and what turns the direction of writing.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
#: A CI system takes such a line of a log for a command: GitHub where it begins with `::`, GitHub,
#: Azure and TeamCity where it has one of these brackets.
_COMMAND = re.compile(r"^(\s*:)(?=:)|(#)(?=#(?:\[|vso\[|teamcity\[))", re.MULTILINE)
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
#: Date, time and process that torch's loggers put before a line.
_STAMP = re.compile(r"\b([DIWEF])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ")
#: The folders before a file of this machine. Node names (`/layer1/conv1/Conv`) and addresses have
#: slashes too: what ends in no suffix of a file stays, and so does what follows `:/`.
_FOLDERS = re.compile(
    r"(?:(?<![\w:/.])/|\b[A-Za-z]:\\)(?:[\w.+ -]+[/\\])*"
    r"(?=[\w+-][\w.+-]*\.(?:py|pyc|so|dll|cc|cpp|c|h|hpp|cu|onnx|data|pt|pt2|pth|pb|npy|npz|json"
    r"|safetensors|toml|log)\b)"
)
#: What is not longer is kept for the next time: thousands of cells say the same few things.
_SHORT = 400


def remove_controls(text: str) -> str:
    """`text` without control characters and escape sequences; newlines and tabs stay."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def escape_ci_commands(text: str) -> str:
    """`text` printable, with a space in whatever a CI system would take for a command."""
    return _COMMAND.sub(r"\1\2 ", remove_controls(text))


def join_lines(text: str) -> str:
    """`text` printable and on one line."""
    return _on_one_line(text) if len(text) <= _SHORT else " ".join(remove_controls(text).split())


@lru_cache(maxsize=1 << 15)
def _on_one_line(text: str) -> str:
    return " ".join(remove_controls(text).split())


def truncate(text: str, limit: int) -> str:
    """`text`, of which no more than `limit` characters are left; the last then says so."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


@cache
def _own_folders() -> tuple[str, ...]:
    """Where Python and the project lie, deepest first."""
    folders = {str(Path(sys.prefix)), str(Path.cwd())} - {Path.cwd().anchor}
    return tuple(sorted((f"{folder}{os.sep}" for folder in folders), key=len, reverse=True))


def redact(text: str, *, limit: int) -> str:
    """`text` printable, without folders, addresses and times, cut to `limit` characters."""
    return _neutral(text, limit) if len(text) <= _SHORT else _neutralised(text, limit)


@lru_cache(maxsize=1 << 15)
def _neutral(text: str, limit: int) -> str:
    return _neutralised(text, limit)


def _neutralised(text: str, limit: int) -> str:
    text = _STAMP.sub(r"\1 ", _ADDRESS.sub("0x…", remove_controls(text)))
    text = _FOLDERS.sub("", text)
    for folder in _own_folders():
        text = text.replace(folder, "")
    return truncate(text, limit)
