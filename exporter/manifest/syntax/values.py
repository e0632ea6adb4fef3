"""The notations of manifests: call paths, versions, opsets, tensor files, values in messages."""

from __future__ import annotations

import datetime as dt
import json
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from exporter.core.check_table import CHECKS
from exporter.core.errors import suggest_nearest
from exporter.manifest.syntax.releases import RELEASES, Release, find_limits

#: A path through tables and arrays: keys and indices.
KeyPath = tuple[str | int, ...]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
#: Characters of a quoted text; longer texts are shortened.
_MAX_LENGTH = 60


def format_value(value: object) -> str:
    """Return a value in the form that messages use."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return quote(value)
        case int():
            return str(value) if abs(value) < 10**30 else "a huge number"
        case float():
            return repr(value)
        case dt.date() | dt.time():
            return f"the {'time' if isinstance(value, dt.time) else 'date'} {value.isoformat()}"
        case _:
            kind = "table" if isinstance(value, dict) else "list"
            return f"a {kind}" if value else f"an empty {kind}"


def quote(text: str) -> str:
    """Return the text in double quotes, shortened, with special characters escaped."""
    short = text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 3]}..."
    characters = []
    for char in short:
        if char in '"\\':
            characters.append(f"\\{char}")
        elif char.isprintable():
            characters.append(char)
        else:
            characters.append(char.encode("unicode_escape").decode("ascii"))
    return f'"{"".join(characters)}"'


def unexpected_value(expected: str, value: object) -> ValueError:
    return ValueError(f"expected {expected}, got {format_value(value)}")


def format_key(path: Sequence[str | int]) -> str:
    """Return a key path such as `models.alexnet.inputs[0].shape[1]`, quoted if necessary."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if _BARE_KEY.fullmatch(step) else quote(step))
    return text


def join_words(words: Iterable[str], last: str = "and") -> str:
    """Return `a`, `a and b`, or `a, b and c`."""
    *first, end = words
    return f"{', '.join(first)} {last} {end}" if first else end


def parse_check_names(value: object) -> tuple[str, ...]:
    """Return the names of a check or of a list of different checks.

    Raises:
        ValueError: with the complete message.
    """
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names:
        raise unexpected_value("the name of a check or a list of names", value)
    for name in names:
        if name not in CHECKS:
            expected = f"the name of a check: {join_words(map(quote, CHECKS), 'or')}"
            hint = suggest_nearest(name, CHECKS) if isinstance(name, str) else ""
            raise ValueError(f"{unexpected_value(expected, name)}{hint}")
    if len(set(names)) < len(names):
        repeated = [name for name, count in Counter(names).items() if count > 1]
        raise ValueError(f"contains a name twice: {join_words(map(quote, repeated))}")
    return tuple(names)


#: Suffixes of tensor files, and whether the file contains several tensors, each with a key.
DATA_SUFFIXES = {".npy": False, ".pb": False, ".npz": True, ".safetensors": True}
#: Suffixes of pictures, in lower case.
IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")


def split_data_file(text: str) -> tuple[str, str]:
    """Return path and key of `"data/x.npz:key"`; the key is "" if the text has none."""
    for suffix in DATA_SUFFIXES:
        path, separator, key = text.partition(f"{suffix}:")
        if separator:
            return path + suffix, key
    return text, ""


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
    match = re.match(_NAME, requirement.removeprefix("npm:"))
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else requirement


_BOUND = re.compile(r"(<=|>=|<|>|==|!=|~=)\s*(\d+(?:\.\d+)*)")
_RELEASE = re.compile(r"\d+(?:\.\d+)*")
_Release = tuple[int, ...]
_OPERATORS: dict[str, Callable[[_Release, _Release], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "~=": lambda release, bound: release >= bound and release[:-1] == bound[:-1],
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
    for match in _BOUND.finditer(versions):
        bound = _parse(match[2])
        padded = (*_parse(release[0]), *(0 for _ in bound))[: len(bound)]
        if not _OPERATORS[match[1]](padded, bound):
            return False
    return True


def _parse(text: str) -> _Release:
    return tuple(int(part) for part in text.split("."))


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


#: The opsets of this tool: an exporter writes them and the newest ONNX Runtime loads them.
FIRST_OPSET, LAST_OPSET = 7, RELEASES[-1].opset
#: dynamo creates this opset and later ones. For a lower opset it converts the file afterwards, and
#: writes opset 18 if that fails.
FIRST_DYNAMO_OPSET = 18
#: First and last opset that each exporter writes without a version converter.
NATIVE_OPSETS = {"torchscript": (7, 20), "dynamo": (FIRST_DYNAMO_OPSET, LAST_OPSET)}
#: The same if `exporter` names it.
REQUESTABLE_OPSETS = {**NATIVE_OPSETS, "dynamo": (FIRST_OPSET, LAST_OPSET)}
ExporterName = Literal["dynamo", "torchscript"]
CaptureName = Literal["export", "strict", "draft", "trace", "script"]
#: The names of the exporters in messages.
EXPORTER_TITLES: Mapping[ExporterName, str] = {"dynamo": "dynamo", "torchscript": "TorchScript"}
CAPTURES: Mapping[ExporterName, tuple[CaptureName, ...]] = {
    "dynamo": ("export", "strict", "draft"),
    "torchscript": ("trace", "script"),
}


def choose_exporter(exporter: str, capture: str | None, opset: int) -> ExporterName:
    """Return the exporter of an opset for the keys `exporter` and `capture` of an entry."""
    common = find_common_exporter(exporter, capture)
    return common or ("dynamo" if opset >= FIRST_DYNAMO_OPSET else "torchscript")


def find_common_exporter(exporter: str, capture: str | None) -> ExporterName | None:
    """Return the exporter of all opsets, or None if `auto` selects it for each opset."""
    if exporter == "auto":
        return next((name for name, captures in CAPTURES.items() if capture in captures), None)
    # The exporter of transformers calls dynamo.
    return "torchscript" if exporter == "torchscript" else "dynamo"


_NUMBER = re.compile(r"\d{1,4}", re.ASCII)
_RANGE = re.compile(r"(\d{1,4}) ?\.\. ?(\d{1,4})", re.ASCII)
_COMPARISON = re.compile(r"(<=?|>=?) ?(\d{1,4})", re.ASCII)


def parse_opsets(value: object) -> tuple[int, ...]:
    """Return the opsets of `17`, `"17"`, `"9..21"` or a list of these, ascending.

    Raises:
        ValueError: If the value contains no opset, or one outside 7..28.
    """
    if isinstance(value, list | tuple):
        return _parse_items(value, _parse_range)
    return tuple(_parse_range(value))


def parse_condition(value: object) -> tuple[int, ...]:
    """Return the opsets of `"<14"`, `">=18"`, `"*"` or any value for `parse_opsets`.

    Raises:
        ValueError: If no opset of 7..28 meets the condition.
    """
    if value == "*":
        return tuple(range(FIRST_OPSET, LAST_OPSET + 1))
    if isinstance(value, list | tuple):
        return _parse_items(value, parse_condition)
    comparison = _COMPARISON.fullmatch(value) if isinstance(value, str) else None
    if comparison is None:
        return parse_opsets(value)
    is_met, bound = _OPERATORS[comparison[1]], (int(comparison[2]),)
    every = range(FIRST_OPSET, LAST_OPSET + 1)
    opsets = tuple(opset for opset in every if is_met((opset,), bound))
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


#: Opsets and problems of a list that a message shows; a list can have 100,000.
_SHOWN = 5


class _UnsupportedOpsets(ValueError):
    """Opsets outside of 7..28, with one message for all of them."""

    def __init__(self, opsets: Iterable[int]) -> None:
        self.opsets = tuple(dict.fromkeys(opsets))
        shown = [format_value(opset) for opset in self.opsets[:_SHOWN]]
        if more := len(self.opsets) - len(shown):
            shown.append(f"{more} more")
        subject = f"opset {shown[0]} is" if len(shown) == 1 else f"opsets {join_words(shown)} are"
        super().__init__(f"{subject} outside {FIRST_OPSET}..{LAST_OPSET}; use one of these")


def _parse_items(
    items: Sequence[object], parse: Callable[[object], Iterable[int]]
) -> tuple[int, ...]:
    """Return the opsets of all items, or raise one error with all their problems."""
    if not items:
        raise ValueError("needs at least one opset")
    opsets: set[int] = set()
    unsupported: list[int] = []
    problems: dict[str, None] = {}
    for item in items:
        try:
            opsets |= set(parse(item))
        except _UnsupportedOpsets as error:
            unsupported += error.opsets
        except ValueError as error:
            problems[str(error)] = None
    if unsupported:
        problems[str(_UnsupportedOpsets(unsupported))] = None
    if len(problems) > _SHOWN:
        more = f"{len(problems) - _SHOWN} more problems of this list"
        problems = dict.fromkeys([*list(problems)[:_SHOWN], more])
    if problems:
        raise ValueError("; ".join(problems))
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
    unsupported = [each for each in (first, last) if not FIRST_OPSET <= each <= LAST_OPSET]
    if unsupported:
        raise _UnsupportedOpsets(unsupported)
    return range(first, last + 1)


#: An index of a tuple or list, or a key of a dict; the first key below `kwargs` is the keyword.
Step = int | str

_ROOT = re.compile(r"(args(?=\[)|kwargs(?=\.))")
_STEP = re.compile(r"\[(0|[1-9][0-9]{0,3})\]|\.([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)


def parse_call_path(text: str) -> tuple[str, tuple[Step, ...]]:
    """Split `kwargs.past[0].key` into `("kwargs", ("past", 0, "key"))`.

    Raises:
        ValueError: If the text is not such a path.
    """
    root = _ROOT.match(text)
    steps: list[Step] = []
    end = root.end() if root else 0
    while root and end < len(text):
        step = _STEP.match(text, end)
        if step is None:
            break
        steps.append(int(step[1]) if step[1] is not None else step[2])
        end = step.end()
    if root is None or end < len(text):
        raise ValueError('expected a path such as "args[0]", "kwargs.mask" or "args[1][0]"')
    return root[1], tuple(steps)


def is_positional_call(paths: Iterable[str], *, others: bool) -> bool:
    """Return whether all values are positional tensors, as a tracer requires.

    `others` are constants, numbers and containers with a type.
    """
    return not others and all(parse_call_path(path)[0] == "args" for path in paths)


def format_call_path(root: str, steps: Iterable[Step]) -> str:
    """Return the text that `parse_call_path` reads."""
    return root + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def find_next_position(last: int, reserved: frozenset[int]) -> int:
    """Return the first position after `last` that is not `reserved`."""
    position = last + 1
    while position in reserved:
        position += 1
    return position


T = TypeVar("T")
_Path = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class _Leaf(Generic[T]):
    """A value, which may be a dict like a container."""

    value: T


_Node = dict[Step, "_Node[T] | _Leaf[T]"]


def assemble_call(
    values: Iterable[tuple[str, T]],
    containers: Mapping[str, str],
    create: Callable[[str, list[T] | dict[Step, T]], T],
) -> tuple[T, T]:
    """Return the positional and the keyword arguments of a call.

    `create` is called with a type and the items of a container. The type is "" if it is not
    declared. Items with only positions are a list, unless the type is `dict`.

    Raises:
        ValueError: If a place is inside another value.
    """
    root: _Node[T] = {"args": {}, "kwargs": {}}
    for location, value in values:
        *parents, last = _parse_path(location)
        _find_node(root, tuple(parents))[last] = _Leaf(value)
    types = {_parse_path(location): type for location, type in containers.items()}
    for path in types:
        _find_node(root, path)
    types |= {("args",): "tuple", ("kwargs",): "dict"}

    def collect(node: _Node[T] | _Leaf[T], path: _Path) -> T:
        if isinstance(node, _Leaf):
            return node.value
        items = {step: collect(child, (*path, step)) for step, child in node.items()}
        type = types.get(path, "")
        if type == "dict" or not all(isinstance(step, int) for step in items):
            return create(type, items)
        return create(type, [items[step] for step in sorted(items, key=int)])

    return collect(root["args"], ("args",)), collect(root["kwargs"], ("kwargs",))


def _parse_path(location: str) -> _Path:
    root, steps = parse_call_path(location)
    return (root, *steps)


def _find_node(root: _Node[T], path: _Path) -> _Node[T]:
    """Return the container at a path; create it if it is missing."""
    node = root
    for step in path:
        child = node.setdefault(step, {})
        if isinstance(child, _Leaf):
            raise ValueError(f"{path} is inside another value")
        node = child
    return node


def format_toml_value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case dt.date() | dt.time():
            return value.isoformat()
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list() | tuple():
            return f"[{', '.join(format_toml_value(item) for item in value)}]"
        case dict():
            items = (f"{format_key((str(k),))} = {format_toml_value(v)}" for k, v in value.items())
            return f"{{ {', '.join(items)} }}" if value else "{}"
        case float() if value.is_integer():
            return f"{value:.1f}"
    return repr(value)
