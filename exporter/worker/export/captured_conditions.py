"""The conditions of a captured program on its sizes, and the promised sizes that break them.

torch.export keeps one branch of each condition. dynamo writes that branch only, so each condition
that the contract allows to break needs a sample: ranges of sizes, assertions, and equal axes.
Output: `CapturedConditions`, and combinations of sizes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from exporter.manifest import Axis, Input, ModelSpec
from exporter.manifest.resolved.size_rule import find_bases
from exporter.worker.export.size_conditions import SizeCondition, parse_conditions
from exporter.worker.inputs.call import build_call
from exporter.worker.inputs.size_combinations import count_elements
from exporter.worker.model.exported_program import order_leaves

Sizes = Mapping[str, int]

_ASSERTION = "aten._assert_scalar.default"
#: A dimension that is a symbol, or a multiple of one.
_SYMBOL = re.compile(r"(?:(\d+)\*)?(\w+)")
#: Combinations of sizes at which one condition is evaluated.
_COMBINATIONS = 1024
#: The smallest sizes of an axis that are tried; more than the usual alignments.
_SMALL_STEPS = 40
_LARGE_SIZES = (65, 101, 257, 513, 1025)
#: Sizes that break a condition, of which the one that breaks the fewest others is taken.
_CANDIDATES = 8
#: Conditions that get a sample of their alias, with and without `thorough`.
_MOST, _MOST_THOROUGH = 16, 128
#: Elements of the largest tensor of such a sample, unless the exported one is larger.
_AFFORDABLE = 1 << 22


@dataclass(frozen=True, slots=True)
class CapturedConditions:
    """The conditions of a program, with the axes of its symbols."""

    conditions: tuple[SizeCondition, ...]
    symbols: Mapping[str, tuple[str, int]]
    """The axis of each symbol, and the number of which it is the multiple by the symbol."""

    def find_broken(self, sizes: Sizes) -> frozenset[str]:
        """Return the texts of the conditions that these sizes break."""
        values = self._convert(sizes)
        return frozenset(each.text for each in self.conditions if not each.holds(values))

    def is_broken(self, condition: SizeCondition, sizes: Sizes) -> bool:
        """Return whether the sizes break one condition."""
        return not condition.holds(self._convert(sizes))

    def list_axes(self, condition: SizeCondition) -> tuple[str, ...]:
        """Return the axes that a condition depends on, sorted."""
        return tuple(sorted({self.symbols[symbol][0] for symbol in condition.symbols}))

    def _convert(self, sizes: Sizes) -> dict[str, int]:
        return {
            symbol: sizes[axis] // step
            for symbol, (axis, step) in self.symbols.items()
            if axis in sizes
        }


def read_conditions(program: ExportedProgram, spec: ModelSpec) -> CapturedConditions:
    """Return the conditions that depend on the axes of the inputs.

    A condition on values is not among them: the check `values` has other values.
    """
    symbols: dict[str, tuple[str, int]] = {}
    texts: list[str] = []
    for index, (text, name) in enumerate(_list_dimensions(program, spec)):
        matched = _SYMBOL.fullmatch(text)
        if matched and not matched[2].isdigit() and matched[2] not in symbols:
            symbols[matched[2]] = (name, int(matched[1] or 1))
        else:
            # Two axes have one symbol, or an axis is an expression of others.
            alias = f"_dimension{index}"
            symbols[alias] = (name, 1)
            texts.append(f"Eq({text}, {alias})")
    texts += _list_ranges(program)
    texts += _list_assertions(program)
    parts = (parse_conditions(text) or () for text in texts)
    known = {each.text: each for group in parts for each in group}
    conditions = tuple(
        each for each in known.values() if each.symbols and each.symbols <= symbols.keys()
    )
    return CapturedConditions(conditions, symbols)


def choose_breaking_sizes(
    captured: CapturedConditions, spec: ModelSpec, known: Sequence[Sizes]
) -> tuple[dict[str, int], ...]:
    """Return sizes that the contract allows and that break conditions, one after the other.

    Args:
        captured: The conditions.
        spec: The contract.
        known: The sizes of existing samples, which may break conditions already.
    """
    declared = {axis.name: axis.example for axis in spec.axes if axis.example is not None}
    broken = {text for sizes in known for text in captured.find_broken(sizes)}
    combinations: list[dict[str, int]] = []
    for condition in captured.conditions:
        if len(combinations) == (_MOST_THOROUGH if spec.thorough else _MOST):
            break
        if condition.text in broken:
            continue
        candidates = islice(_list_breaking_sizes(captured, condition, spec, declared), _CANDIDATES)
        sizes = min(candidates, key=lambda each: len(captured.find_broken(each)), default=None)
        if sizes is not None:
            combinations.append(sizes)
            broken |= captured.find_broken(sizes)
    return tuple(combinations)


def _list_breaking_sizes(
    captured: CapturedConditions, condition: SizeCondition, spec: ModelSpec, declared: Sizes
) -> Iterator[dict[str, int]]:
    """Yield allowed sizes that break a condition, the nearest to the exported ones first."""
    names = find_bases(captured.list_axes(condition), spec.size_rules)
    bases = [spec.find_axis(name) for name in names if name in declared]
    examples = [declared[axis.name] for axis in bases]
    count = max(2, int(_COMBINATIONS ** (1 / max(1, len(bases)))))
    choices = [islice(_list_sizes(axis, condition.constants, examples), count) for axis in bases]
    limit = max(_AFFORDABLE, count_elements(spec, declared))
    ordered = sorted(
        product(*choices),
        key=lambda sizes: sum(
            abs(size - example) for size, example in zip(sizes, examples, strict=True)
        ),
    )
    for values in ordered:
        chosen = {axis.name: size for axis, size in zip(bases, values, strict=True)}
        sizes = spec.complete_sizes({**declared, **chosen})
        if (
            captured.is_broken(condition, sizes)
            and spec.allows_sizes(sizes)
            and count_elements(spec, sizes) <= limit
        ):
            yield sizes


def _list_sizes(axis: Axis, constants: Iterable[int], examples: Iterable[int]) -> Iterator[int]:
    """Yield allowed sizes of one axis: near the example, the constants and the ends."""
    step, low = axis.multiple_of, axis.smallest
    near = [*examples, low, low + step, *((axis.max,) if axis.max is not None else ())]
    near += [
        size + shift
        for constant in sorted(constants)
        for size in (constant, 2 * constant, constant // 2)
        for shift in (0, step, -step)
    ]
    near += [*range(low, low + _SMALL_STEPS * step, step), *_LARGE_SIZES]
    rounded = dict.fromkeys(size - size % step for size in near)
    return (size for size in rounded if axis.allows(size))


def _list_dimensions(program: ExportedProgram, spec: ModelSpec) -> Iterator[tuple[str, str]]:
    """Yield the expression of each named dimension of the inputs with its axis."""
    call = build_call(spec, {item.name: item for item in spec.inputs}, lambda value: value)
    leaves = order_leaves(program, call.args, call.kwargs)
    names = [
        str(getattr(item.arg, "name", ""))
        for item in program.graph_signature.input_specs
        if item.kind is InputKind.USER_INPUT
    ]
    if leaves is None or len(leaves) != len(names):
        return
    examples = {node.name: node.meta.get("val") for node in program.graph.nodes}
    for leaf, name in zip(leaves, names, strict=True):
        example = examples.get(name)
        if isinstance(leaf, Input) and isinstance(example, torch.Tensor):
            for dim, size in zip(leaf.shape, example.shape, strict=False):
                if isinstance(dim, str):
                    yield str(size), dim


def _list_ranges(program: ExportedProgram) -> Iterator[str]:
    """Yield the limits of each symbol; an unlimited one has no number as its end."""
    for symbol, limits in program.range_constraints.items():
        low, high = str(limits.lower), str(limits.upper)
        if low.isdigit():
            yield f"{low} <= {symbol}"
        if high.isdigit():
            yield f"{symbol} <= {high}"


def _list_assertions(program: ExportedProgram) -> Iterator[str]:
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                if str(node.target) == _ASSERTION and isinstance(node.args[0], torch.fx.Node):
                    yield str(node.args[0].meta.get("val", ""))
