"""Where values go in the model's call: `args[0]`, `kwargs.mask`, `kwargs.past[0].key`.

In: the `at` texts of inputs and constants. Out: parsed paths, default positions, and what is wrong
with them together: two values in one place, a place inside another value, a gap.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

#: An index of a tuple or a list, or a key of a dict; for `kwargs` the first is the keyword.
Step = int | str

_ROOT = re.compile(r"(args(?=\[)|kwargs(?=\.))")
_STEP = re.compile(r"\[(0|[1-9][0-9]{0,3})\]|\.([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)


def parse_call_path(text: str) -> tuple[str, tuple[Step, ...]]:
    """Splits `kwargs.past[0].key` into its root and steps: `("kwargs", ("past", 0, "key"))`.

    Args:
        text: `args[INDEX]` or `kwargs.NAME`, followed by any number of `[INDEX]` and `.KEY`.

    Returns:
        `"args"` or `"kwargs"`, and at least one step: an int for a position in a tuple or list, a
        str for a key of a dict.

    Raises:
        ValueError: where `text` is no such path.
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
        raise ValueError('expected a place such as "args[0]", "kwargs.mask" or "args[1][0]"')
    return root[1], tuple(steps)


def is_positional_call(places: Iterable[str], *, others: bool) -> bool:
    """Whether a call holds tensors in positions and nothing else, as a tracer wants it.

    Args:
        places: Where its tensors go.
        others: Whether it has anything else: constants, numbers, containers that say their type.
    """
    return not others and all(parse_call_path(at)[0] == "args" for at in places)


def format_call_path(root: str, steps: Iterable[Step]) -> str:
    """The text that `parse_call_path` reads back."""
    return root + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def find_next_position(used: Iterable[tuple[Step, ...]], taken: frozenset[int]) -> int:
    """The position after the last one in `used`, past those that constants have `taken`."""
    position = 1 + max((path[0] for path in used if isinstance(path[0], int)), default=-1)
    while position in taken:
        position += 1
    return position


def find_conflicts(places: Sequence[tuple[str, str]]) -> Mapping[int, str]:
    """What is wrong with places that must fit into one call.

    Args:
        places: (`at`, what stands there) for each value; every `at` parses.

    Returns:
        For the index of each place that does not fit, why. Gaps stand with the place after them.
    """
    found: dict[int, str] = {}
    owners: dict[tuple[Step, ...], int] = {}
    inner: dict[tuple[Step, ...], dict[Step, int]] = {}
    for index, (text, _) in enumerate(places):
        root, steps = parse_call_path(text)
        path = (root, *steps)
        ahead = [path[:end] for end in range(2, len(path) + 1)]
        clash = next((owners[part] for part in ahead if part in owners), None)
        if clash is None and path in inner:
            clash = min(inner[path].values())
        if clash is not None:
            found[index] = f"'{text}' is already taken by {places[clash][1]}"
            continue
        owners[path] = index
        for end in range(1, len(path)):
            inner.setdefault(path[:end], {}).setdefault(path[end], index)
    for container, children in inner.items():
        if container != ("kwargs",):
            found = {**_misfits(format_call_path("", container)[1:], children), **found}
    return found


def _misfits(container: str, children: Mapping[Step, int]) -> dict[int, str]:
    """Positions that are missing in a tuple, and keys that stand beside positions."""
    positions = sorted(step for step in children if isinstance(step, int))
    if len(positions) < len(children) and positions:
        index = max(children.values())
        return {index: f"'{container}' cannot have both positions and keys"}
    for expected, position in enumerate(positions):
        if position != expected:
            return {children[position]: f"'{container}[{expected}]' is missing before this one"}
    return {}
