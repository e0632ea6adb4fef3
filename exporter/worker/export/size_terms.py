"""Expressions and conditions of sizes in the notation of torch, such as `8*(s77//2) <= 30`."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from types import CodeType, SimpleNamespace
from typing import Any

import torch
from torch.export import ExportedProgram

from exporter.manifest import Axis, Input, ModelSpec
from exporter.manifest.resolved.call import find_bases
from exporter.worker.inputs.input_sets import count_elements
from exporter.worker.model.exported_program import pair_inputs
from exporter.worker.torch_private.graph_operators import list_conditions

#: Combinations of sizes at which a term is evaluated.
_COMBINATIONS = 4096
#: Steps above the smallest size that are tried; more than most alignments and remainders.
_SMALL_STEPS = 40
_LARGE_SIZES = (65, 101, 257, 513, 1009, 65_537)
#: torch prints them for whole numbers; the class names of its terms are in expressions of files.
_FUNCTIONS: Mapping[str, Any] = {
    "math": math,
    "torch": SimpleNamespace(sym_float=float, _sym_sqrt=math.sqrt),
    **{function.__name__: function for function in (min, max, abs, round)},
    **dict.fromkeys(("Mod", "PythonMod"), operator.mod),
    **dict.fromkeys(("FloorDiv", "CleanDiv"), operator.floordiv),
    **dict.fromkeys(("IntTrueDiv", "FloatTrueDiv"), operator.truediv),
    **dict.fromkeys(("FloatPow", "PowByNatural"), pow),
    "Min": min,
    "Max": max,
    "CeilDiv": lambda number, divisor: -(-number // divisor),
    "CeilToInt": math.ceil,
    "FloorToInt": math.floor,
    "TruncToInt": math.trunc,
    "RoundToInt": round,
    "ToFloat": float,
    "LShift": operator.lshift,
    "RShift": operator.rshift,
}
_NODES = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Call, ast.Attribute, ast.Compare),
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)


@dataclass(frozen=True, slots=True)
class SizeTerm:
    """One expression or condition."""

    text: str
    symbols: frozenset[str]
    constants: frozenset[int]
    """Its whole numbers: the sizes at which its branches change are near them."""
    _code: CodeType

    def evaluate(self, sizes: Mapping[str, int]) -> Any:
        """Return the value for sizes; ArithmeticError or ValueError if there is none."""
        scope = {"__builtins__": {}, **_FUNCTIONS}
        return eval(self._code, scope, sizes)  # noqa: S307 - the code has only `_NODES`


def parse_term(text: str) -> SizeTerm | None:
    """Return the term, or None if it contains more than sizes, numbers and known functions."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        return None
    nodes = list(ast.walk(tree))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    functions = {name.id for name in called if isinstance(name, ast.Name)}
    functions |= {
        node.value.id
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    if functions - _FUNCTIONS.keys() or not all(map(_is_known, nodes)):
        return None
    numbers = (node.value for node in nodes if isinstance(node, ast.Constant))
    return SizeTerm(
        text=text,
        symbols=frozenset(names - functions),
        constants=frozenset(number for number in numbers if isinstance(number, int)),
        _code=compile(tree, "<size>", "eval"),
    )


def equals_declared_size(
    text: str, declared: int | str, symbols: Mapping[str, tuple[str, int]], spec: ModelSpec
) -> bool:
    """Return whether an expression has the declared size at all promised sizes that are tried.

    `symbols`: The axis of each symbol, and the number of which it is the multiple by the
    symbol.
    """
    term = parse_term(text)
    if term is None or not symbols.keys() >= term.symbols:
        return False
    axes = [symbols[symbol][0] for symbol in term.symbols]
    if isinstance(declared, str):
        axes.append(declared)
    if any(name not in {axis.name for axis in spec.axes} for name in axes):
        return False
    evaluated = 0
    for sizes in list_combinations(spec, axes, term.constants, {}, _COMBINATIONS):
        if not spec.allows_sizes(sizes):
            continue
        if any(name not in sizes for name in axes):
            return False
        try:
            value = term.evaluate(
                {each: sizes[symbols[each][0]] // symbols[each][1] for each in term.symbols}
            )
        except (ArithmeticError, ValueError):
            continue
        evaluated += 1
        if value != (sizes[declared] if isinstance(declared, str) else declared):
            return False
    return evaluated > 0


def list_combinations(
    spec: ModelSpec,
    axes: Iterable[str],
    constants: Iterable[int],
    declared: Mapping[str, int],
    limit: int,
) -> Iterator[dict[str, int]]:
    """Yield sizes of all axes for combinations of some, the nearest to the exported ones first.

    `constants`: Numbers near which the sizes are interesting.
    `declared`: The exported sizes; without them, the order is that of the sizes.
    """
    names = find_bases(axes, spec.size_rules)
    bases = [spec.find_axis(name) for name in names if name in declared or not declared]
    examples = [declared[axis.name] for axis in bases] if declared else []
    count = max(2, int(limit ** (1 / max(1, len(bases)))))
    choices = (islice(_list_sizes(axis, constants, examples), count) for axis in bases)
    combinations: Iterable[tuple[int, ...]] = product(*choices)
    if declared:
        combinations = sorted(
            combinations,
            key=lambda sizes: sum(abs(a - b) for a, b in zip(sizes, examples, strict=True)),
        )
    for values in combinations:
        chosen = {axis.name: size for axis, size in zip(bases, values, strict=True)}
        yield spec.complete_sizes({**declared, **chosen})


def _list_sizes(axis: Axis, constants: Iterable[int], examples: Iterable[int]) -> Iterator[int]:
    """Yield allowed sizes of one axis: near the examples, the constants and the ends."""
    step, low = axis.multiple_of, axis.smallest
    near = [*examples, low, low + step, *((axis.max,) if axis.max is not None else ())]
    near += [
        size + shift
        for constant in sorted(constants)
        for size in (constant, 2 * constant, constant // 2)
        for shift in (0, step, -step)
    ]
    near += [*_LARGE_SIZES, *range(low, low + _SMALL_STEPS * step, step)]
    rounded = dict.fromkeys(size - size % step for size in near)
    return (size for size in rounded if axis.allows(size))


def _is_known(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=value):
            return isinstance(value, (int, float))
        case ast.Call(keywords=keywords):
            return not keywords
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return owner in ("math", "torch") and hasattr(_FUNCTIONS[owner], name)
    return isinstance(node, _NODES) and not isinstance(node, (ast.Attribute, ast.Invert))


Sizes = Mapping[str, int]

#: A dimension that is a symbol, or a multiple of one.
_SYMBOL = re.compile(r"(?:(\d+)\*)?(\w+)")
#: A number that the model computes from values, such as the count of selected rows.
_COMPUTED = re.compile(r"z?u[fi]?\d+")
#: Combinations of sizes at which one condition is evaluated.
_SIZE_COMBINATIONS = 1024
#: Sizes that break a condition, of which the one that breaks the fewest others is taken.
_CANDIDATES = 8
#: Conditions that get a sample of their alias, with and without `thorough`.
MOST_SAMPLES, _MOST_THOROUGH = 16, 128
#: Elements of the largest tensor of such a sample, unless the exported one is larger.
_AFFORDABLE = 1 << 22


@dataclass(frozen=True, slots=True)
class CapturedConditions:
    """The conditions of a program, with the axes of its symbols.

    torch.export keeps one branch of each condition. dynamo writes that branch only, so each
    condition that the contract allows to break needs a sample: ranges of sizes, assertions, and
    equal axes.
    """

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
            if term.symbols:
                known |= {text: term}
        elif not any(map(_COMPUTED.fullmatch, term.symbols)) and text not in _list_ranges(program):
            unread.append(f"condition `{text}` of the capture: it depends on values of inputs")
    return CapturedConditions(tuple(known.values()), symbols, tuple(unread))


def choose_breaking_sizes(
    captured: CapturedConditions, spec: ModelSpec, known: Sequence[Sizes]
) -> tuple[tuple[dict[str, int], ...], tuple[str, ...]]:
    """Return sizes that the contract allows and that break conditions, one after the other.

    `known`: The sizes of existing samples, which may break conditions already.

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
    for sizes in list_combinations(spec, axes, condition.constants, declared, _SIZE_COMBINATIONS):
        if captured.is_broken(condition, sizes) and spec.allows_sizes(sizes):
            yield sizes


def _list_dimensions(program: ExportedProgram, spec: ModelSpec) -> Iterator[tuple[str, str]]:
    """Yield the expression of each named dimension of the inputs with its axis."""
    _, pairs = pair_inputs(program, spec)
    for leaf, example in pairs or ():
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
