"""Expressions and conditions of sizes in the notation of torch, such as `8*(s77//2) <= 30`."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product
from types import CodeType, SimpleNamespace
from typing import Any

from exporter.manifest import Axis, ModelSpec
from exporter.manifest.resolved.call import find_bases

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
        """Return the value for the sizes of its symbols.

        Raises:
            ArithmeticError: If the term has no value there; also ValueError.
        """
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

    Args:
        text: The expression.
        declared: A size, or the name of an axis.
        symbols: The axis of each symbol, and the number of which it is the multiple by the symbol.
        spec: The contract.
    """
    term = parse_term(text)
    if term is None or not symbols.keys() >= term.symbols:
        return False
    axes = [symbols[symbol][0] for symbol in term.symbols]
    axes += [declared] if isinstance(declared, str) else []
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

    Args:
        spec: The contract, which may forbid a combination.
        axes: The names of the axes that change.
        constants: Numbers near which the sizes are interesting.
        declared: The exported sizes; without them, the order is that of the sizes.
        limit: The largest number of combinations.
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
