"""Expressions of sizes in the notation of torch.export, such as `(batch*Min(64, s77))//s77`."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, product

from exporter.manifest import Axis, ModelSpec
from exporter.manifest.resolved.size_rule import find_bases

_Number = int | Fraction
#: Combinations of sizes at which an expression is evaluated.
_COMBINATIONS = 4096
#: Steps above the smallest size that are tried; more than the period of most remainders.
_SMALL_STEPS = 40
#: Large sizes, rounded down to the promised multiples.
_LARGE_SIZES = (101, 1009, 65_537)

OPERATORS: Mapping[type[ast.operator], Callable[[_Number, _Number], _Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: Fraction,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
#: The functions of `torch.utils._sympy.functions` that sizes contain.
FUNCTIONS: Mapping[str, Callable[..., _Number]] = {
    "Min": min,
    "Max": max,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "FloorDiv": operator.floordiv,
    "CleanDiv": Fraction,
    "IntTrueDiv": Fraction,
    "CeilDiv": lambda number, divisor: -(-number // divisor),
    "CeilToInt": math.ceil,
    "FloorToInt": math.floor,
    "TruncToInt": math.trunc,
    "ToFloat": lambda number: number,
}


@dataclass(frozen=True, slots=True)
class SizeExpression:
    """A parsed expression."""

    root: ast.expr

    @property
    def symbols(self) -> frozenset[str]:
        """The names of its symbols."""
        functions = {id(node.func) for node in ast.walk(self.root) if isinstance(node, ast.Call)}
        names = (node for node in ast.walk(self.root) if isinstance(node, ast.Name))
        return frozenset(node.id for node in names if id(node) not in functions)

    @property
    def constants(self) -> frozenset[int]:
        """Its numbers: the sizes at which its branches change are near them."""
        constants = (node for node in ast.walk(self.root) if isinstance(node, ast.Constant))
        return frozenset(node.value for node in constants if isinstance(node.value, int))

    def evaluate(self, sizes: Mapping[str, _Number]) -> _Number:
        """Return the value for the sizes of its symbols.

        Raises:
            ZeroDivisionError: If the expression has no value there.
        """
        return _evaluate(self.root, sizes)


def parse_expression(text: str) -> SizeExpression | None:
    """Return the expression, or None if it contains more than sizes and known functions."""
    try:
        root = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    return SizeExpression(root) if _is_known(root) else None


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
    expression = parse_expression(text)
    if expression is None or not symbols.keys() >= expression.symbols:
        return False
    axes = [symbols[symbol][0] for symbol in expression.symbols]
    axes += [declared] if isinstance(declared, str) else []
    if any(name not in {axis.name for axis in spec.axes} for name in axes):
        return False
    evaluated = 0
    for sizes in _list_promised_sizes(spec, axes, expression.constants):
        if any(name not in sizes for name in axes):
            return False
        values = {
            symbol: Fraction(sizes[axis], step)
            for symbol, (axis, step) in symbols.items()
            if symbol in expression.symbols
        }
        try:
            value = expression.evaluate(values)
        except ZeroDivisionError:
            continue
        evaluated += 1
        if value != (sizes[declared] if isinstance(declared, str) else declared):
            return False
    return evaluated > 0


def _list_promised_sizes(
    spec: ModelSpec, axes: list[str], constants: frozenset[int]
) -> Iterator[dict[str, int]]:
    """Yield combinations of promised sizes: small and large ones, and those near constants."""
    bases = [spec.find_axis(name) for name in find_bases(axes, spec.size_rules)]
    choices = [list(_list_sizes(axis, constants)) for axis in bases]
    count = max(2, int(_COMBINATIONS ** (1 / max(1, len(bases)))))
    names = [axis.name for axis in bases]
    for values in product(*(islice(sizes, count) for sizes in choices)):
        sizes = dict(zip(names, values, strict=True))
        if spec.allows_sizes(sizes):
            yield spec.complete_sizes(sizes)


def _list_sizes(axis: Axis, constants: frozenset[int]) -> Iterator[int]:
    """Yield the sizes of one axis, the most different ones first."""
    step, low = axis.multiple_of, axis.smallest
    near = [low, low + step] + ([axis.max] if axis.max is not None else [])
    near += [size + shift for size in sorted(constants) for shift in (0, -step, step)]
    near += [*_LARGE_SIZES, *range(low, low + _SMALL_STEPS * step, step)]
    rounded = dict.fromkeys(size - size % step for size in near)
    return (size for size in rounded if axis.allows(size))


def _is_known(node: ast.expr) -> bool:
    match node:
        case ast.Constant():
            return type(node.value) is int
        case ast.Name():
            return True
        case ast.UnaryOp(op=ast.USub()):
            return _is_known(node.operand)
        case ast.BinOp():
            is_power = isinstance(node.op, ast.Pow) and _is_small_power(node.right)
            is_operator = type(node.op) in OPERATORS or is_power
            return is_operator and _is_known(node.left) and _is_known(node.right)
        case ast.Call(keywords=[]):
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            return name in FUNCTIONS and all(map(_is_known, node.args))
    return False


def _is_small_power(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in range(1, 9)


def _evaluate(node: ast.expr, sizes: Mapping[str, _Number]) -> _Number:
    match node:
        case ast.Constant(value=int() as number):
            return number
        case ast.Name():
            return sizes[node.id]
        case ast.UnaryOp():
            return -_evaluate(node.operand, sizes)
        case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=int() as power)):
            return _evaluate(node.left, sizes) ** power
        case ast.BinOp():
            left, right = _evaluate(node.left, sizes), _evaluate(node.right, sizes)
            return OPERATORS[type(node.op)](left, right)
        case ast.Call(func=ast.Name(id=name)):
            return FUNCTIONS[name](*(_evaluate(item, sizes) for item in node.args))
    raise TypeError(f"no size: {ast.dump(node)}")
