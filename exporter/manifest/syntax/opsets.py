"""Opsets: how they are written, and which exporter can make which.

In: `17`, `"9..21"`, `[13, "17..20"]`, `"<14"`, `"*"`. Out: sorted tuples of opsets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from exporter.manifest.syntax.message_format import unexpected_value, join_words, format_value

#: The opsets of this tool: what any exporter makes and ONNX Runtime loads.
FIRST_OPSET, LAST_OPSET = 7, 26
#: What each exporter makes natively, without a converter in between.
NATIVE_OPSETS = {"torchscript": (7, 20), "dynamo": (18, 26)}
#: What each can be asked for by name: below 18, dynamo has its file converted down.
REQUESTABLE_OPSETS = {**NATIVE_OPSETS, "dynamo": (7, 26)}

_NUMBER = re.compile(r"\d{1,4}", re.ASCII)
_RANGE = re.compile(r"(\d{1,4}) ?\.\. ?(\d{1,4})", re.ASCII)
_BOUND = re.compile(r"(<=?|>=?) ?(\d{1,4})", re.ASCII)


def parse_opsets(value: object) -> tuple[int, ...]:
    """The opsets that `17`, `"17"`, `"9..21"` or a list of these names, ascending.

    Args:
        value: What the manifest says.

    Raises:
        ValueError: where it names none, or one outside 7 to 26.
    """
    if isinstance(value, list | tuple):
        return _of_all(value, _opsets)
    return tuple(_opsets(value))


def parse_condition(value: object) -> tuple[int, ...]:
    """The opsets of 7 to 26 that `"<14"`, `">=18"`, `"*"`, or what `parse_opsets` reads, names.

    Raises:
        ValueError: where it names none.
    """
    if value == "*":
        return tuple(range(FIRST_OPSET, LAST_OPSET + 1))
    if isinstance(value, list | tuple):
        return _of_all(value, parse_condition)
    bound = _BOUND.fullmatch(value) if isinstance(value, str) else None
    if bound is None:
        return parse_opsets(value)
    number = int(bound[2])
    met = {
        "<": range(FIRST_OPSET, number),
        "<=": range(FIRST_OPSET, number + 1),
        ">": range(number + 1, LAST_OPSET + 1),
        ">=": range(number, LAST_OPSET + 1),
    }[bound[1]]
    opsets = tuple(opset for opset in met if FIRST_OPSET <= opset <= LAST_OPSET)
    if not opsets:
        raise ValueError(f"no opset of {FIRST_OPSET} to {LAST_OPSET} is {format_value(value)}")
    return opsets


class _Outside(ValueError):
    """Opsets that this tool does not know."""

    def __init__(self, opsets: Iterable[int]) -> None:
        self.opsets = tuple(sorted(set(opsets)))
        said = f"opset {format_value(self.opsets[0])} is"
        if len(self.opsets) > 1:
            said = f"opsets {join_words(format_value(opset) for opset in self.opsets)} are"
        super().__init__(f"{said} outside {FIRST_OPSET} to {LAST_OPSET}")


def _of_all(items: Sequence[object], parse: Callable[[object], Iterable[int]]) -> tuple[int, ...]:
    """What the items of a list name together; all that is wrong with them at once."""
    if not items:
        raise ValueError("needs at least one opset")
    found: set[int] = set()
    outside: set[int] = set()
    problems: list[str] = []
    for item in items:
        try:
            found |= set(parse(item))
        except _Outside as error:
            outside |= set(error.opsets)
        except ValueError as error:
            problems.append(str(error))
    if outside:
        problems.append(str(_Outside(outside)))
    if problems:
        raise ValueError("; ".join(dict.fromkeys(problems)))
    return tuple(sorted(found))


def _opsets(value: object) -> range:
    match value:
        case bool():
            pass
        case int():
            return _within(value, value)
        case str() if _NUMBER.fullmatch(value):
            return _within(int(value), int(value))
        case str() if found := _RANGE.fullmatch(value):
            first, last = int(found[1]), int(found[2])
            if first > last:
                raise ValueError(f'the range {format_value(value)} is reversed; write "{last}..{first}"')
            return _within(first, last)
    raise unexpected_value('an opset, a range such as "9..21" or a list of them', value)


def _within(first: int, last: int) -> range:
    outside = [opset for opset in (first, last) if not FIRST_OPSET <= opset <= LAST_OPSET]
    if outside:
        raise _Outside(outside)
    return range(first, last + 1)


def format_opsets(opsets: Iterable[int]) -> str:
    """Opsets as a message lists them: `9 to 13, 17`."""
    runs: list[list[int]] = []
    for opset in sorted(opsets):
        if runs and opset == runs[-1][-1] + 1:
            runs[-1].append(opset)
        else:
            runs.append([opset])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
