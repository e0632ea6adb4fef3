"""Conditions on sizes in the notation of torch.export, such as `Ne(Mod(s77, 8), 0)`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from exporter.worker.export.size_expressions import FUNCTIONS, OPERATORS

_Evaluate = Callable[[Mapping[str, Any]], Any]

_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_RELATIONS: Mapping[str, Callable[..., Any]] = {
    "Eq": operator.eq,
    "Ne": operator.ne,
    "Lt": operator.lt,
    "Le": operator.le,
    "Gt": operator.gt,
    "Ge": operator.ge,
    "And": lambda *parts: all(parts),
    "Or": lambda *parts: any(parts),
    "Not": operator.not_,
    "PowByNatural": operator.pow,
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.Invert: operator.not_,
    ast.Not: operator.not_,
}
_BINARY: Mapping[type[ast.operator], Callable[..., Any]] = {
    **OPERATORS,
    ast.BitOr: _RELATIONS["Or"],
    ast.BitAnd: _RELATIONS["And"],
    ast.Pow: operator.pow,
}


@dataclass(frozen=True, slots=True)
class SizeCondition:
    """One condition, which is true for the example sizes."""

    text: str
    symbols: frozenset[str]
    constants: frozenset[int]
    """Its numbers: the sizes that break it are near them."""
    _evaluate: _Evaluate

    def holds(self, sizes: Mapping[str, Any]) -> bool:
        """Return whether it is true for the sizes of its symbols; true if it has no value."""
        try:
            return bool(self._evaluate(sizes))
        except (ArithmeticError, ValueError):
            return True


def parse_conditions(text: str) -> tuple[SizeCondition, ...] | None:
    """Return the parts of a conjunction, or None if a part has an unknown notation."""
    try:
        parts = [*_split(ast.parse(text, mode="eval").body)]
        return tuple(_create_condition(part) for part in parts)
    except (SyntaxError, _UnknownNotation):
        return None


class _UnknownNotation(ValueError):
    """A part of an expression that sizes do not determine."""


def _split(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the parts of `a & b` and `And(a, b)`."""
    match node:
        case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
            yield from _split(left)
            yield from _split(right)
        case ast.Call(func=ast.Name(id="And"), args=parts):
            for part in parts:
                yield from _split(part)
        case _:
            yield node


def _create_condition(node: ast.expr) -> SizeCondition:
    functions = {id(each.func) for each in ast.walk(node) if isinstance(each, ast.Call)}
    names = (each for each in ast.walk(node) if isinstance(each, ast.Name))
    numbers = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))
    return SizeCondition(
        text=ast.unparse(node),
        symbols=frozenset(name.id for name in names if id(name) not in functions),
        constants=frozenset(number for number in numbers if isinstance(number, int)),
        _evaluate=_compile(node),
    )


def _compile(node: ast.expr) -> _Evaluate:
    """Return a function of sizes: a condition is evaluated for thousands of sizes.

    Raises:
        _UnknownNotation: If a part is no known operator or function.
    """
    match node:
        case ast.Constant(value=bool() | int() | float() as number):
            return lambda _: number
        case ast.Name(id=name):
            return operator.itemgetter(name)
    function, operands = _find_function(node)
    if function is None:
        raise _UnknownNotation(ast.unparse(node))
    return _apply(function, operands)


def _find_function(node: ast.expr) -> tuple[Callable[..., Any] | None, list[ast.expr]]:
    """Return the function of an operator or a call, None if it is unknown, and its operands."""
    match node:
        case ast.UnaryOp(op=sign, operand=operand):
            return _UNARY.get(type(sign)), [operand]
        case ast.BinOp(left=left, op=sign, right=right):
            return _BINARY.get(type(sign)), [left, right]
        case ast.Compare(left=left, ops=[sign], comparators=[right]):
            return _COMPARISONS.get(type(sign)), [left, right]
        case ast.Call(func=ast.Name(id=name), args=operands, keywords=[]):
            return _RELATIONS.get(name) or FUNCTIONS.get(name), operands
    return None, []


def _apply(function: Callable[..., Any], arguments: list[ast.expr]) -> _Evaluate:
    parts = [_compile(argument) for argument in arguments]
    if len(parts) == 2:
        first, second = parts
        return lambda sizes: function(first(sizes), second(sizes))
    return lambda sizes: function(*(part(sizes) for part in parts))
