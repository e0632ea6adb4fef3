"""Versions of packages: requirements of pip, ranges of torch, and releases of ONNX Runtime."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence

from exporter.core.known_names import Release, find_limits
from exporter.manifest.syntax.values import format_value, join_words, unexpected_value

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
#: A package of npm, with its scope and a version, a range of npm or a tag.
_NPM = re.compile(r"npm:(?:@[a-z0-9._-]+/)?[a-z0-9][a-z0-9._-]*@[0-9A-Za-z.^~*-]+")
_VERSION = r"(?:===|==|~=|!=|<=|>=|<|>)\s*[A-Za-z0-9.*+!_-]+"
_REQUIREMENT_FORM = 'a requirement such as "onnxruntime==1.17.3" or "npm:onnxruntime-web@1.30"'
_REQUIREMENT = re.compile(
    rf"({_NAME})\s*(?:\[[A-Za-z0-9._,\s-]*\])?\s*"
    rf"(?:\(?\s*{_VERSION}(?:\s*,\s*{_VERSION})*\s*\)?|@\s*\S+)?\s*(?:;.+)?"
)


def check_requirement(value: str) -> str:
    """Return the requirement; options and paths of pip are none.

    Raises:
        ValueError: If it cannot be parsed.
    """
    if not (_NPM if value.startswith("npm:") else _REQUIREMENT).fullmatch(value):
        raise unexpected_value(_REQUIREMENT_FORM, value)
    return value


def find_requirement_name(requirement: str) -> str:
    """Return the normalized name of the package."""
    match = re.match(_NAME, requirement.removeprefix("npm:"))
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else requirement


_BOUND = re.compile(r"(<=|>=|<|>|==|!=)\s*(\d+(?:\.\d+)*)")
_RELEASE = re.compile(r"\d+(?:\.\d+)*")
_Release = tuple[int, ...]
_OPERATORS: dict[str, Callable[[_Release, _Release], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def check_version_range(value: str) -> str:
    """Return the range without spaces.

    Raises:
        ValueError: If it cannot be parsed.
    """
    parts = [part.strip() for part in value.split(",")]
    if not all(_BOUND.fullmatch(part) for part in parts):
        raise unexpected_value('comparisons of versions such as "<2.14" or ">=2.12, <2.14"', value)
    return ",".join("".join(part.split()) for part in parts)


def is_in_range(version: str, versions: str) -> bool:
    """Return whether a version is in a range of `check_version_range`.

    The version has as many parts as each bound: `2.13.1` is equal to `2.13` and not above it.

    Returns:
        True for an empty range. False if the version is unknown.
    """
    if not versions:
        return True
    release = _RELEASE.match(version)
    if release is None:
        return False
    return all(
        _OPERATORS[match[1]](_cut(_parse(release[0]), len(bound)), bound)
        for match in _BOUND.finditer(versions)
        for bound in [_parse(match[2])]
    )


def _parse(text: str) -> _Release:
    return tuple(int(part) for part in text.split("."))


def _cut(release: _Release, length: int) -> _Release:
    return (*release, *(0 for _ in range(length)))[:length]


_CONSUMER = re.compile(r"onnxruntime ?>= ?(\d{1,3})\.(\d{1,3})(\.\d{1,3})?", re.ASCII)
#: A requirement of an environment that selects one release.
_PINNED = re.compile(
    r"(?:onnxruntime(?:-gpu)?\s*(?:===?|~=(?=\s*\d+\.\d+\.\d))\s*|npm:onnxruntime-web@~?)"
    r"(\d{1,3})\.(\d{1,3})(?!\d)"
)


def check_consumer(value: str) -> str:
    """Return the text of a consumer.

    Raises:
        ValueError: If it has another form, or names a release without known limits.
    """
    match = _CONSUMER.fullmatch(value)
    if match is None:
        raise unexpected_value('a release of ONNX Runtime such as "onnxruntime>=1.17"', value)
    if find_limits((int(match[1]), int(match[2]))) is None:
        raise unexpected_value("a release of ONNX Runtime from 0.1 on", value)
    return value


def find_lowest_release(consumers: Iterable[str]) -> Release | None:
    """Return the lowest of the promised releases, or None if there is none."""
    matches = (_CONSUMER.fullmatch(text) for text in consumers)
    return min(((int(match[1]), int(match[2])) for match in matches if match), default=None)


def find_pinned_release(requirements: Iterable[str]) -> Release | None:
    """Return the release of ONNX Runtime that the requirements select, or None."""
    matches = (_PINNED.match(text.strip()) for text in requirements)
    return next(((int(match[1]), int(match[2])) for match in matches if match), None)


#: The opsets of this tool: an exporter writes them and ONNX Runtime loads them.
FIRST_OPSET, LAST_OPSET = 7, 26
#: First and last opset that each exporter writes without a version converter.
NATIVE_OPSETS = {"torchscript": (7, 20), "dynamo": (18, 26)}
#: The same if `exporter` names it: dynamo converts its file down to opsets below 18.
REQUESTABLE_OPSETS = {**NATIVE_OPSETS, "dynamo": (7, 26)}

_NUMBER = re.compile(r"\d{1,4}", re.ASCII)
_RANGE = re.compile(r"(\d{1,4}) ?\.\. ?(\d{1,4})", re.ASCII)
_COMPARISON = re.compile(r"(<=?|>=?) ?(\d{1,4})", re.ASCII)


def parse_opsets(value: object) -> tuple[int, ...]:
    """Return the opsets of `17`, `"17"`, `"9..21"` or a list of these, ascending.

    Raises:
        ValueError: If the value contains no opset, or one outside 7..26.
    """
    if isinstance(value, list | tuple):
        return _parse_items(value, _parse_range)
    return tuple(_parse_range(value))


def parse_condition(value: object) -> tuple[int, ...]:
    """Return the opsets of `"<14"`, `">=18"`, `"*"` or any value for `parse_opsets`.

    Raises:
        ValueError: If no opset of 7..26 meets the condition.
    """
    if value == "*":
        return tuple(range(FIRST_OPSET, LAST_OPSET + 1))
    if isinstance(value, list | tuple):
        return _parse_items(value, parse_condition)
    comparison = _COMPARISON.fullmatch(value) if isinstance(value, str) else None
    if comparison is None:
        return parse_opsets(value)
    number = int(comparison[2])
    selected = {
        "<": range(FIRST_OPSET, number),
        "<=": range(FIRST_OPSET, number + 1),
        ">": range(number + 1, LAST_OPSET + 1),
        ">=": range(number, LAST_OPSET + 1),
    }[comparison[1]]
    opsets = tuple(opset for opset in selected if FIRST_OPSET <= opset <= LAST_OPSET)
    if not opsets:
        supported = f"{FIRST_OPSET}..{LAST_OPSET}"
        raise ValueError(f"no opset of {supported} meets the condition {format_value(value)}")
    return opsets


def format_opsets(opsets: Iterable[int]) -> str:
    """Return the opsets in the notation of the manifest: `9..13, 17`."""
    runs: list[list[int]] = []
    for opset in sorted(set(opsets)):
        if runs and opset == runs[-1][-1] + 1:
            runs[-1].append(opset)
        else:
            runs.append([opset])
    return ", ".join(format_opset_run(run) for run in runs)


def format_opset_run(run: Sequence[int]) -> str:
    """Return consecutive opsets as `17` or `9..13`."""
    return str(run[0]) if len(run) == 1 else f"{run[0]}..{run[-1]}"


class _UnsupportedOpsets(ValueError):
    """Opsets that this tool does not support."""

    def __init__(self, opsets: Iterable[int]) -> None:
        self.opsets = tuple(sorted(set(opsets)))
        subject = f"opset {format_value(self.opsets[0])} is"
        if len(self.opsets) > 1:
            subject = f"opsets {join_words(format_value(opset) for opset in self.opsets)} are"
        super().__init__(f"{subject} outside {FIRST_OPSET}..{LAST_OPSET}; use one of these")


def _parse_items(
    items: Sequence[object], parse: Callable[[object], Iterable[int]]
) -> tuple[int, ...]:
    """Return the opsets of all items, or raise one error with all their problems."""
    if not items:
        raise ValueError("needs at least one opset")
    opsets: set[int] = set()
    unsupported: set[int] = set()
    problems: list[str] = []
    for item in items:
        try:
            opsets |= set(parse(item))
        except _UnsupportedOpsets as error:
            unsupported |= set(error.opsets)
        except ValueError as error:
            problems.append(str(error))
    if unsupported:
        problems.append(str(_UnsupportedOpsets(unsupported)))
    if problems:
        raise ValueError("; ".join(dict.fromkeys(problems)))
    return tuple(sorted(opsets))


def _parse_range(value: object) -> range:
    match value:
        case bool():
            pass
        case int():
            return _check_range(value, value)
        case str() if _NUMBER.fullmatch(value):
            return _check_range(int(value), int(value))
        case str() if match := _RANGE.fullmatch(value):
            first, last = int(match[1]), int(match[2])
            if first > last:
                text = format_value(value)
                raise ValueError(f'the range {text} is reversed; write "{last}..{first}"')
            return _check_range(first, last)
    raise unexpected_value('an opset, a range such as "9..21" or a list of them', value)


def _check_range(first: int, last: int) -> range:
    unsupported = [opset for opset in (first, last) if not FIRST_OPSET <= opset <= LAST_OPSET]
    if unsupported:
        raise _UnsupportedOpsets(unsupported)
    return range(first, last + 1)
