"""Text that a model, a tool or a manifest wrote, made fit to be shown or kept.

In: any text. Out: `printable` has no character that steers a terminal; `neutral` has nothing that
differs between two machines.
"""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor moves (ECMA-48 control sequences)
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # window titles and links (operating system commands)
    r"|\x1b."
)
#: C0 but for tab and newline, C1, and what turns the direction of writing.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
_FOLDERS = re.compile(r"(?:/[\w.+-]+){2,}/(?=[\w.+-]+)")


def printable(text: str) -> str:
    """`text` without control characters and escape sequences; newlines and tabs stay."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def one_line(text: str) -> str:
    """`text` printable and on one line."""
    return " ".join(printable(text).split())


def neutral(text: str, *, limit: int) -> str:
    """`text` printable, without absolute folders and addresses, cut to `limit` characters."""
    text = _FOLDERS.sub("", _ADDRESS.sub("0x…", printable(text)))
    return text if len(text) <= limit else text[: limit - 1] + "…"
