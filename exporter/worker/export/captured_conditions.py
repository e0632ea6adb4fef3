"""The conditions of a captured program on its sizes, and the promised sizes that break them.

torch.export keeps one branch of each condition. dynamo writes that branch only, so each condition
that the contract allows to break needs a sample: ranges of sizes, assertions, and equal axes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from exporter.manifest import Input, ModelSpec
from exporter.worker.export.size_terms import SizeTerm, list_combinations, parse_term
from exporter.worker.inputs.call import build_call
from exporter.worker.inputs.input_sets import count_elements
from exporter.worker.model.exported_program import order_leaves
from exporter.worker.torch_private.graph_operators import list_conditions

Sizes = Mapping[str, int]

#: A dimension that is a symbol, or a multiple of one.
_SYMBOL = re.compile(r"(?:(\d+)\*)?(\w+)")
#: A number that the model computes from values, such as the count of selected rows.
_COMPUTED = re.compile(r"z?u[fi]?\d+")
#: Combinations of sizes at which one condition is evaluated.
_COMBINATIONS = 1024
#: Sizes that break a condition, of which the one that breaks the fewest others is taken.
_CANDIDATES = 8
#: Conditions that get a sample of their alias, with and without `thorough`.
MOST_SAMPLES, _MOST_THOROUGH = 16, 128
#: Elements of the largest tensor of such a sample, unless the exported one is larger.
_AFFORDABLE = 1 << 22


@dataclass(frozen=True, slots=True)
class CapturedConditions:
    """The conditions of a program, with the axes of its symbols."""

    conditions: tuple[SizeTerm, ...]
    symbols: Mapping[str, tuple[str, int]]
    """The axis of each symbol, and the number of which it is the multiple by the symbol."""
    unread: tuple[str, ...] = ()
    """The conditions that sizes of axes do not decide, with the reason."""

    def find_broken(self, sizes: Sizes) -> frozenset[str]:
        """Return the texts of the conditions that these sizes break."""
        return frozenset(each.text for each in self.conditions if self.is_broken(each, sizes))

    def is_broken(self, condition: SizeTerm, sizes: Sizes) -> bool:
        """Return whether the sizes break one condition; False if it has no value there."""
        try:
            return not condition.evaluate(
                {
                    symbol: sizes[axis] // step
                    for symbol, (axis, step) in self.symbols.items()
                    if axis in sizes
                }
            )
        except (ArithmeticError, ValueError):
            return False

    def list_axes(self, condition: SizeTerm) -> tuple[str, ...]:
        """Return the axes that a condition depends on, sorted."""
        return tuple(sorted({self.symbols[symbol][0] for symbol in condition.symbols}))

    def describe(self, condition: SizeTerm) -> str:
        """Return a condition with the names of the axes."""
        names = {
            symbol: name if step == 1 else f"{name}//{step}"
            for symbol, (name, step) in self.symbols.items()
        }
        text = re.sub(r"\w+", lambda word: names.get(word[0], word[0]), condition.text)
        return f"condition `{text}` of the capture"


def read_conditions(program: ExportedProgram, spec: ModelSpec) -> CapturedConditions:
    """Return the conditions that depend on the axes of the inputs.

    A condition on numbers that the model computes is not among them: the check `values` has other
    values.
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
            texts.append(f"{text} == {alias}")
    texts += [*_list_ranges(program), *list_conditions(program)]
    known: dict[str, SizeTerm] = {}
    unread: list[str] = []
    for text in dict.fromkeys(texts):
        term = parse_term(text)
        if term is None:
            unread.append(f"condition `{text}` of the capture: its notation is unknown")
        elif term.symbols <= symbols.keys():
            known |= {text: term} if term.symbols else {}
        elif not any(map(_COMPUTED.fullmatch, term.symbols)) and text not in _list_ranges(program):
            unread.append(f"condition `{text}` of the capture: it depends on values of inputs")
    return CapturedConditions(tuple(known.values()), symbols, tuple(unread))


def choose_breaking_sizes(
    captured: CapturedConditions, spec: ModelSpec, known: Sequence[Sizes]
) -> tuple[tuple[dict[str, int], ...], tuple[str, ...]]:
    """Return sizes that the contract allows and that break conditions, one after the other.

    Args:
        captured: The conditions.
        spec: The contract.
        known: The sizes of existing samples, which may break conditions already.

    Returns:
        The sizes, and the conditions that the contract allows to break although no sample does.
    """
    declared = {axis.name: axis.example for axis in spec.axes if axis.example is not None}
    broken = {text for sizes in known for text in captured.find_broken(sizes)}
    combinations: list[dict[str, int]] = []
    unproved = list(captured.unread)
    most = _MOST_THOROUGH if spec.thorough else MOST_SAMPLES
    limit = max(_AFFORDABLE, count_elements(spec, declared))
    for condition in captured.conditions:
        if condition.text in broken:
            continue
        breaking = _list_breaking_sizes(captured, condition, spec, declared)
        cheap = (each for each in breaking if count_elements(spec, each) <= limit)
        candidates = list(islice(cheap, 1 if len(combinations) == most else _CANDIDATES))
        if candidates and len(combinations) < most:
            sizes = min(candidates, key=lambda each: len(captured.find_broken(each)))
            combinations.append(sizes)
            broken |= captured.find_broken(sizes)
        elif candidates:
            unproved.append(f"{captured.describe(condition)}: only {most} conditions get a sample")
        elif any(_list_breaking_sizes(captured, condition, spec, declared)):
            problem = f"a tensor has more than {limit} elements if the condition is false"
            unproved.append(f"{captured.describe(condition)}: {problem}")
    return tuple(combinations), tuple(unproved)


def _list_breaking_sizes(
    captured: CapturedConditions, condition: SizeTerm, spec: ModelSpec, declared: Sizes
) -> Iterator[dict[str, int]]:
    """Yield allowed sizes that break a condition, the nearest to the exported ones first."""
    axes = captured.list_axes(condition)
    for sizes in list_combinations(spec, axes, condition.constants, declared, _COMBINATIONS):
        if captured.is_broken(condition, sizes) and spec.allows_sizes(sizes):
            yield sizes


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
