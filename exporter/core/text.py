"""Format numbers and names, clean text of other programs, and detect failed resources in it."""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Sequence
from decimal import ROUND_CEILING, Decimal
from functools import cache, lru_cache
from pathlib import Path

from exporter.core.toml_table import read_setting

_PACKAGE = Path(__file__).parents[1]
#: The name of this package for pip.
DISTRIBUTION = "onnx-exporter-matrix"
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colors and cursor moves (ECMA-48 control sequences)
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # window titles and links (operating system commands)
    r"|\x1b."
)
#: C0 except tab and newline, and C1.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
#: Categories of characters that no reader sees: format (zero width, direction, tags), surrogates,
#: separators of lines.
_INVISIBLE = frozenset({"Cf", "Cs", "Zl", "Zp"})
#: Characters of other categories without a shape: joiners, fillers, empty Braille, and the two that
#: XML forbids.
_BLANKS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\ufffe\uffff\U000e0100-\U000e01ef]"
)
#: A CI system executes such a line of a log: GitHub if it begins with `::`, and GitHub, Azure and
#: TeamCity if it contains one of these brackets.
_CI_COMMAND = re.compile(r"^(\s*:)(?=:)|(#)(?=#(?:\[|vso\[|teamcity\[))", re.MULTILINE)
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
#: Date, time and process in front of a line of torch's loggers.
_LOG_PREFIX = re.compile(r"\b([DIWEF])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ")
#: The folders in front of a file of this machine. Node names (`/layer1/conv1/Conv`) and addresses
#: contain slashes too: text without the suffix of a file, or after `:/`, is unchanged.
_FOLDERS = re.compile(
    r"(?:(?<![\w:/.])/|\b[A-Za-z]:\\)(?:[\w.+ -]+[/\\])*"
    r"(?=[\w+-][\w.+-]*\.(?:py|pyc|so|dll|cc|cpp|c|h|hpp|cu|onnx|data|pt|pt2|pth|pb|npy|npz|json"
    r"|safetensors|toml|log)\b)"
)
#: An absolute path in a line of a traceback.
_FRAME = re.compile(r'(?<=File ")/[^"\n]+(?=", line )')
_PACKAGE_FOLDERS = ("/site-packages/", "/dist-packages/")
#: Results for texts up to this length are cached: thousands of cells share a few messages.
_CACHED_LENGTH = 400


def remove_controls(text: str) -> str:
    """Return `text` as all surfaces show it.

    Returns:
        The text without control characters and escape sequences. U+FFFD replaces each invisible
        character, so that two texts that look equal are equal.
    """
    if not text.isprintable():
        text = replace_invisible(_CONTROLS.sub("", _ESCAPES.sub("", text)))
    return text if text.isascii() else _BLANKS.sub("\N{REPLACEMENT CHARACTER}", text)


def replace_invisible(text: str) -> str:
    """Return the text with U+FFFD for each invisible character; controls remain."""
    if text.isprintable():  # contains none of these categories
        return text
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(character) in _INVISIBLE else character
        for character in text
    )


def escape_ci_commands(text: str) -> str:
    """Return `text` without controls, with a space inside each command of a CI system."""
    return _CI_COMMAND.sub(r"\1\2 ", remove_controls(text))


def join_lines(text: str) -> str:
    """Return `text` without controls, on one line."""
    return (_join_cached if len(text) <= _CACHED_LENGTH else _join_cached.__wrapped__)(text)


@lru_cache(maxsize=1 << 15)
def _join_cached(text: str) -> str:
    return " ".join(remove_controls(text).split())


def truncate(text: str, limit: int) -> str:
    """Return at most `limit` characters of `text`, with an ellipsis if some are cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def shorten(text: str, limit: int) -> str:
    """Return at most `limit` characters: the start and the end, because a reason is often last."""
    if len(text) <= limit:
        return text
    end = (limit - 1) // 2
    return f"{text[: limit - 1 - end]}…{text[-end:]}"


@cache
def _local_folders() -> tuple[str, ...]:
    """Return the folders of Python and of the project, the deepest first."""
    folders = {str(Path(sys.prefix)), str(Path.cwd())} - {Path.cwd().anchor}
    return tuple(sorted((f"{folder}{os.sep}" for folder in folders), key=len, reverse=True))


def _shorten_frame(match: re.Match[str]) -> str:
    """Return the path of a traceback relative to its package or to the project."""
    path = match[0]
    for folder in _PACKAGE_FOLDERS:
        if folder in path:
            return path.rpartition(folder)[2]
    return path.removeprefix(f"{Path.cwd()}{os.sep}")


#: Parts of messages of torch and ONNX Runtime that say nothing about the model.
_INTERNALS = re.compile(
    r" ?\[Caused by the value .*?(?:in the TorchScript graph\. .*?\]|(?=; the operator is)|$)"
    r"|\.? Please feel free to request support .*?(?=; the operator is|$)"
    r"| \(unhinted: .*?\)\.|  ?\(Size-like symbols: [^)]*\)"
    r"|(?<![\w/])[\w/]{1,99}\.(?:h|cc|cpp):\d+ [^()]{1,99}\([^()]{0,300}\) (?=\w)"
)


def redact(text: str, *, limit: int) -> str:
    """Return `text` without controls, folders, addresses and times, shortened to `limit`."""
    function = _redact_cached if len(text) <= _CACHED_LENGTH else _redact_cached.__wrapped__
    return function(text, limit)


@lru_cache(maxsize=1 << 15)
def _redact_cached(text: str, limit: int) -> str:
    text = _ADDRESS.sub("0x…", _INTERNALS.sub("", remove_controls(text)))
    text = _LOG_PREFIX.sub(r"\1 ", text)
    text = _FOLDERS.sub("", _FRAME.sub(_shorten_frame, text))
    for folder in _local_folders():
        text = text.replace(folder, "")
    return shorten(text, limit)


#: Units that the manifest accepts for sizes, the largest first.
_LIMIT_UNITS = (("GiB", 1 << 30), ("GB", 10**9), ("MiB", 1 << 20), ("MB", 10**6))


def pluralize(count: int, noun: str, plural: str = "") -> str:
    """Return the count with its noun: `1 cell`, `2 cells`, `2 entries`."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def join_names(names: Sequence[str], limit: int = 5) -> str:
    """Return the first names, and the number of the others: `a, b and 3 more`."""
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")


def format_bytes(count: float) -> str:
    """Return a size in decimal units with three significant digits: `244 MB`."""
    amount, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 999.5:
            break
        amount, unit = amount / 1000, larger
    digits = 0 if unit == "B" or amount >= 99.95 else 1 if amount >= 9.995 else 2
    return f"{amount:.{digits}f} {unit}"


def format_byte_limit(limit: int) -> str:
    """Return a limit in the notation of the manifest: `8GiB`, `500MB`.

    Returns:
        The value in the largest unit that divides it, or else rounded to MiB.
    """
    for unit, size in _LIMIT_UNITS:
        if limit % size == 0:
            return f"{limit // size}{unit}"
    return f"{limit / (1 << 20):.0f}MiB"


def format_two_digits(value: float | str) -> str:
    """Return a float with two significant digits, and any other value as it is."""
    return f"{value:.2g}" if isinstance(value, float) else str(value)


def round_up_two_digits(value: float) -> float:
    """Return the value with two significant digits, never rounded down."""
    if not value:
        return 0.0
    exact = Decimal(str(value))  # not 0.00100000000000000002 for 0.001
    step = Decimal((0, (1,), exact.adjusted() - 1))
    return float(exact.quantize(step, rounding=ROUND_CEILING))


#: Messages of Python, PyTorch, the C library, C++ and ONNX Runtime about failed allocations.
_OUT_OF_MEMORY = re.compile(
    r"MemoryError|(can't|cannot|failed to|unable to) allocate (memory|\S+ (.i)?b)|not enough memory"
    r"|(bad|std::bad_)[ _]?alloc|out of memory",
    re.IGNORECASE,
)
#: Messages of the C library about full or failing disks, and too many files or processes. A
#: read-only file system is no such message: the build folder is writable, and a sandbox has others.
_OUT_OF_RESOURCES = re.compile(
    r"No space left on device|Disk quota exceeded|Too many open files|Input/output error"
    r"|Resource temporarily unavailable|File too large"
)


def is_out_of_memory(text: str) -> bool:
    return _OUT_OF_MEMORY.search(text) is not None


def is_out_of_resources(text: str) -> bool:
    return is_out_of_memory(text) or _OUT_OF_RESOURCES.search(text) is not None


def memory_limit_message(limit: int) -> str:
    return f"needs more than the {format_byte_limit(limit)} that `memory` allows"


#: Placeholder of the command's name in `[tool.exporter] command`.
NAME_PLACEHOLDER = "{}"
#: The command line of a project without this setting.
DEFAULT_COMMAND = f"exporter {NAME_PLACEHOLDER}"
#: Messages have commands in this form. The terminal and the pages show them as users type them.
_COMMAND = re.compile(r"`exporter ([a-z]+)(?: ([^`]*))?`")


def format_command(command: str, name: str, arguments: str = "") -> str:
    """Return the command line to type: `nox -s export -- 'net/*'`.

    `{}` in the setting of the project is replaced by the name; `arguments` are quoted for a shell.
    """
    line = command.replace(NAME_PLACEHOLDER, name)
    return f"{line} {arguments}" if arguments else line.removesuffix(" --")


def rename_reference(text: str, name: str) -> str:
    """Return a message about PyTorch's outputs with a file in its place, such as `the reference`.

    The outputs of an ONNX file are the right ones if it is the source of an entry.
    """
    return text.replace("PyTorch's", f"{name}'s").replace("PyTorch", name)


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
    command = read_setting(root, "command", DEFAULT_COMMAND)
    return command if NAME_PLACEHOLDER in command else DEFAULT_COMMAND


def find_origin() -> tuple[str, str]:
    """Return the URL and the commit from which pip installed this package, or empty texts."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        origin = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return "", ""
    return origin.get("url", ""), origin.get("vcs_info", {}).get("commit_id", "")


def format_requirement(extra: str, *, is_shared: bool = False) -> str:
    """Return the requirement of pip for this package, from the place that it was installed from.

    `is_shared`: The text is for a file of the project, which has no path of this machine.
    """
    url, commit = find_origin()
    name = f"{DISTRIBUTION}[{extra}]"
    if not url or (is_shared and url.startswith("file:")):
        return name
    return f"{name} @ git+{url}@{commit}" if commit else f"{name} @ {url}"


def find_packaged_folder(name: str) -> Path:
    """Return the folder inside the wheel, or next to the package in a checkout."""
    inside = _PACKAGE / name
    return inside if inside.is_dir() else _PACKAGE.parent / name
