"""Axes whose sizes other axes determine: the keys `sum`, `difference`, `product` and `of`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice, product

from exporter.core.errors import suggest_name
from exporter.manifest.resolved.call import Axis, SizeRule, complete_sizes, find_bases
from exporter.manifest.rules.axis_sizes import find_free_sizes, format_size_limits, list_sizes
from exporter.manifest.rules.layers import EffectiveSettings
from exporter.manifest.rules.signature import NamedShape
from exporter.manifest.schema.tables import AxisTable
from exporter.manifest.syntax.values import join_words, quote

_KINDS = ("sum", "difference", "product", "of")
_WINDOW_KEYS = ("stride", "kernel", "padding")
#: Combinations of examples that are tried.
_COMBINATIONS = 20_000
#: Half of the examples to try for an axis that determines others.
_PROPOSALS = 12


def list_needed_axes(tables: Mapping[str, AxisTable], shapes: Iterable[str]) -> tuple[str, ...]:
    """Return the axes of shapes, those that they are computed from, and limits of their sizes.

    A derived axis that no shape has is a limit if its table has one: `max = 64` for a sum. The
    tables may contain axes of other models.
    """
    pending = [*shapes]
    pending += [
        name
        for name, table in tables.items()
        if _find_kinds(table) and {"min", "max", "multiple_of"} & table.model_fields_set
    ]
    needed: dict[str, None] = {}
    while pending:
        name = pending.pop(0)
        if name not in needed:
            needed[name] = None
            if table := tables.get(name):
                operands = (*(table.sum or ()), *(table.difference or ()), *(table.product or ()))
                pending += [each for each in (*operands, table.of) if isinstance(each, str)]
    return tuple(needed)


def resolve_size_rules(
    entry: EffectiveSettings, tables: Mapping[str, AxisTable], inputs: Collection[str]
) -> dict[str, SizeRule]:
    """Return the valid rules by the name of the derived axis."""
    rules = {}
    count = len(entry.report)
    for name, table in tables.items():
        if rule := _read_rule(entry, name, table):
            rules[name] = rule
    for cycle in _find_cycles(rules):
        text = " -> ".join((*cycle, cycle[0]))
        message = f"is a cycle: {text}; compute one of these axes from other axes"
        entry.add_problem(("axes", cycle[0], _find_kinds(tables[cycle[0]])[0]), message)
    # A declared axis that no shape has is valid if it determines an axis of an input.
    determining = find_bases((name for name in inputs if name in rules), rules)
    known = {*inputs, *(name for name in determining if name in tables)}
    for name, rule in rules.items():
        for operand in rule.axes:
            if operand not in rules and operand not in known:
                hint = suggest_name(operand, [*inputs, *rules])
                message = f"no input has the axis {quote(operand)}{hint}"
                entry.add_problem(("axes", name, _find_kinds(tables[name])[0]), message)
    return rules if len(entry.report) == count else {}


def complete_examples(
    entry: EffectiveSettings,
    shapes: Sequence[NamedShape],
    axes: Sequence[Axis],
    inputs: Collection[str],
) -> list[Axis]:
    """Return the axes with the examples of derived ones; report others that a shape has."""
    chosen = _choose_examples(entry, axes, inputs)
    complete = [
        axis.model_copy(update={"example": chosen.get(axis.name, axis.example)}) for axis in axes
    ]
    _check_written_sizes(entry, shapes, complete)
    return complete


def _choose_examples(
    entry: EffectiveSettings,
    axes: Sequence[Axis],
    inputs: Collection[str],
) -> dict[str, int]:
    """Return the examples of all derived axes and of the axes that determine them.

    The sizes of all axes differ if possible, so that the exported graph distinguishes them. Axes
    with an example keep it.
    """
    rules = {axis.name: axis.rule for axis in axes if axis.rule}
    by_name = {axis.name: axis for axis in axes}
    bases = [by_name[name] for name in find_bases(rules, rules)]
    given = {axis.name: axis.example for axis in axes if axis.example is not None}
    open_axes = [axis for axis in bases if axis.name not in given]
    # Multiples by primes, then small sizes.
    choices = [
        [
            *islice(find_free_sizes(axis, set()), _PROPOSALS),
            *islice(list_sizes(axis, max(2, axis.min)), _PROPOSALS),
        ]
        for axis in open_axes
    ]
    names = [axis.name for axis in open_axes]

    def complete(sizes: Sequence[int]) -> dict[str, int]:
        return complete_sizes({**given, **dict(zip(names, sizes, strict=True))}, rules)

    options = [complete(sizes) for sizes in islice(product(*choices), _COMBINATIONS)]
    allowed = [
        sizes
        for sizes in options
        if all(by_name[name].allows(size) for name, size in sizes.items() if name in rules)
    ]
    dynamic = [
        sizes
        for sizes in allowed
        if all(size > 1 for name, size in sizes.items() if name in inputs or name not in rules)
    ]
    distinct = (
        sizes
        for sizes in dynamic
        if len({*sizes.values()}) == len(sizes) and min(sizes.values()) > 1
    )
    if dynamic:
        _check_smallest(entry, by_name, rules)
        return next(distinct, dynamic[0])
    for sizes in (allowed or options)[:1]:
        for name in rules:
            _check_example(entry, by_name, name, sizes)
    return {}


def _read_rule(entry: EffectiveSettings, name: str, table: AxisTable) -> SizeRule | None:
    """Return the rule of a table, or None if it has none or an invalid one."""
    kinds = _find_kinds(table)
    extra = [key for key in _WINDOW_KEYS if key in table.model_fields_set]
    if len(kinds) > 1:
        message = f"has {join_words(f'`{key}`' for key in kinds)}; write only one of them"
        entry.add_problem(("axes", name, kinds[-1]), message)
        return None
    if extra and kinds != ["of"]:
        entry.add_problem(("axes", name, extra[0]), "needs `of`, the axis that it applies to")
        return None
    if not kinds:
        return None
    if kinds == ["of"]:
        if not extra:
            message = f'needs `stride` or `kernel`: {{ of = "{table.of}", stride = 2 }}'
            entry.add_problem(("axes", name, "of"), message)
            return None
        kernel = table.kernel or table.stride
        return SizeRule.from_fields(table, kind="window", operands=(table.of,), kernel=kernel)
    rule = SizeRule.model_validate({"kind": kinds[0], "operands": getattr(table, kinds[0])})
    if len(rule.operands) < 2 or not rule.axes:
        message = "needs two or more axes and sizes, and at least one axis"
        entry.add_problem(("axes", name, kinds[0]), message)
        return None
    return rule


def _find_kinds(table: AxisTable) -> list[str]:
    return [key for key in _KINDS if getattr(table, key) is not None]


def _find_cycles(rules: Mapping[str, SizeRule]) -> list[tuple[str, ...]]:
    """Return each cycle once, from its first name in the alphabet."""
    cycles: dict[tuple[str, ...], None] = {}

    def follow(path: tuple[str, ...]) -> None:
        for name in rules[path[-1]].axes:
            if name in path:
                cycle = path[path.index(name) :]
                first = cycle.index(min(cycle))
                cycles[cycle[first:] + cycle[:first]] = None
            elif name in rules:
                follow((*path, name))

    for name in rules:
        follow((name,))
    return list(cycles)


def _check_smallest(
    entry: EffectiveSettings, axes: Mapping[str, Axis], rules: Mapping[str, SizeRule]
) -> None:
    """Report a derived axis that is too small if every other axis has its smallest size.

    A difference may be too small, because it relates the sizes of two inputs.
    """
    for name, rule in rules.items():
        if not _is_rising(name, rules):
            continue
        bases = find_bases((name,), rules)
        smallest = {base: axes[base].smallest for base in bases}
        size = complete_sizes(smallest, rules)[name]
        if size < axes[name].min:
            fix = f"write a larger min for {join_words(map(quote, bases), 'or')}"
            fix += f", or axes.{name}.min = {size}" if size >= 0 else ""
            message = f"is {_format_size(size, rule, smallest)}, but takes sizes of "
            entry.add_problem(("axes", name), f"{message}at least {axes[name].min}; {fix}")


def _check_example(
    entry: EffectiveSettings, axes: Mapping[str, Axis], name: str, sizes: Mapping[str, int]
) -> None:
    """Report a derived axis without a possible example."""
    axis, size = axes[name], sizes[name]
    if axis.rule is None:
        return
    bases = find_bases((name,), {each.name: each.rule for each in axes.values() if each.rule})
    text = f"is {_format_size(size, axis.rule, {base: sizes[base] for base in bases})}"
    fix = f"change the example or the limits of {join_words(map(quote, bases), 'or')}"
    if not axis.allows(size):
        message = f"{text}, but takes sizes of {format_size_limits(axis)}; {fix}"
        entry.add_problem(("axes", name), message)
    elif size < 2:
        message = f"{text}, which the exporter would turn into a constant; {fix}"
        entry.add_problem(("axes", name), message)


def find_size_problem(axes: Sequence[Axis], sizes: Mapping[str, int]) -> str:
    """Return the first derived axis that does not allow the sizes of the others, or ""."""
    rules = {axis.name: axis.rule for axis in axes if axis.rule}
    complete = complete_sizes(sizes, rules)
    for axis in axes:
        size = complete.get(axis.name)
        if axis.rule and size is not None and not axis.allows(size):
            bases = {name: complete[name] for name in find_bases((axis.name,), rules)}
            text = f"the axis {quote(axis.name)} is {_format_size(size, axis.rule, bases)}"
            return f"{text}, but takes sizes of {format_size_limits(axis)}"
    return ""


def _is_rising(name: str, rules: Mapping[str, SizeRule]) -> bool:
    rule = rules.get(name)
    return rule is None or (
        rule.is_rising and all(_is_rising(operand, rules) for operand in rule.axes)
    )


def _format_size(size: int, rule: SizeRule, sizes: Mapping[str, int]) -> str:
    """Return `8 (past + seq) with past=3, seq=5`."""
    values = ", ".join(f"{name}={each}" for name, each in sizes.items())
    return f"{size} ({rule.formula}) with {values}"


def _check_written_sizes(
    entry: EffectiveSettings, shapes: Sequence[NamedShape], axes: Sequence[Axis]
) -> None:
    """Report sizes in `shape` that differ from the computed ones, with `dynamic_axes`."""
    derived = {axis.name: axis for axis in axes if axis.rule and axis.example is not None}
    for shape in shapes:
        for index, size in shape.sizes.items():
            axis = derived.get(str(shape.dims[index]))
            if axis and axis.rule and size != axis.example:
                message = f"the axis {quote(axis.name)} has the size {size} here, but "
                message += f"{axis.rule.formula} is {axis.example}"
                entry.add_problem((*shape.path, "shape", index), message)
