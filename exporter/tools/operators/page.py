"""The page of the operators: which of them each exporter can convert, and which models use them.

In: an `OperatorCounts` and the records of a run. Out: rows for `templates/operators.md.jinja`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from exporter.manifest import Manifest
from exporter.records.record import RunRecord
from exporter.report.pages.templates import render
from exporter.report.rows.opset_ranges import fold_opsets
from exporter.tools.operators.protocol import OperatorRow, OperatorTable

OPERATORS = "OPERATORS.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorView:
    """One row: opsets as ranges."""

    operator: str
    """`add`, without the namespace."""
    overloads: str
    """Empty where the row stands for all of them."""
    torchscript: str
    dynamo: str
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorGroup:
    """The rows of one letter; `_` stands before `a`."""

    name: str
    anchor: str
    rows: tuple[OperatorView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorsPage:
    """All that the page shows."""

    operators: int
    convertible: int
    letters: tuple[OperatorGroup, ...]
    unknown: tuple[OperatorView, ...]
    """Taken apart by dynamo, into what is not known."""
    neither: tuple[OperatorView, ...]
    others: tuple[OperatorView, ...]
    """Operators of our models that are no ATen operators."""
    silent: tuple[str, ...]
    """Models of which no export told what they use."""
    torchscript: str
    dynamo: str
    folded: int
    tools: tuple[tuple[str, str], ...]


def render_operators(
    manifest: Manifest, table: OperatorTable, run: RunRecord, templates: Path
) -> str:
    """The page as markdown."""
    return render("operators.md", templates, page=operators_page(manifest, table, run))


def operators_page(manifest: Manifest, table: OperatorTable, run: RunRecord) -> OperatorsPage:
    """The rows in the order of the table."""
    known = {row.operator for row in table.rows}
    uses, models = _uses(run, known)
    counts: dict[str, int] = defaultdict(int)
    for row in table.rows:
        counts[row.operator] += 1
    views = [(row, _view(row, uses, alone=counts[row.operator] == 1)) for row in table.rows]
    good = [view for row, view in views if row.is_convertible]
    others = sorted(name for name in uses if name not in known)
    return OperatorsPage(
        operators=len(known),
        convertible=len({row.operator for row in table.rows if row.is_convertible}),
        letters=tuple(_letters(good)),
        unknown=tuple(view for row, view in views if not row.is_convertible and row.apart),
        neither=tuple(view for row, view in views if not row.is_convertible and not row.apart),
        others=tuple(_other(name, uses[name]) for name in others),
        silent=tuple(spec.id for spec in manifest.models if spec.id not in models),
        torchscript=fold_opsets(table.torchscript),
        dynamo=fold_opsets(table.dynamo),
        folded=table.folded,
        tools=tuple(sorted(table.tools.items())),
    )


def packet_of(name: str, known: Iterable[str] = ()) -> str:
    """`aten.add.Tensor` and `aten::add_` are both `aten::add`, by its row."""
    if "::" not in name:
        parts = name.split(".")
        name = f"{parts[0]}::{'.'.join(parts[1:-1]) or parts[-1]}"
    plain = name.removesuffix("_")
    return name if name in known or plain not in known else plain


def _uses(run: RunRecord, known: set[str]) -> tuple[dict[str, set[str]], set[str]]:
    """Which models use an operator, and which models were told of at all."""
    uses: dict[str, set[str]] = defaultdict(set)
    models = set()
    for record in run.records:
        if record.torch_operators:
            models.add(record.cell.model)
        for name in record.torch_operators:
            uses[packet_of(name, known)].add(record.cell.model)
    return uses, models


def _view(row: OperatorRow, uses: Mapping[str, set[str]], *, alone: bool) -> OperatorView:
    return OperatorView(
        operator=row.operator.removeprefix("aten::"),
        overloads="" if alone else ", ".join(row.overloads),
        torchscript=fold_opsets(row.torchscript),
        dynamo=_dynamo(row),
        models=tuple(sorted(uses.get(row.operator, ()))),
    )


def _dynamo(row: OperatorRow) -> str:
    """`23-26; 18-22 by decomposition`."""
    ways = (
        (row.translated, ""),
        (row.decomposed, " by decomposition"),
        (row.apart, " not known"),
    )
    return "; ".join(f"{fold_opsets(opsets)}{how}" for opsets, how in ways if opsets)


def _other(name: str, models: set[str]) -> OperatorView:
    return OperatorView(
        operator=name, overloads="", torchscript="", dynamo="", models=tuple(sorted(models))
    )


def _letters(views: Iterable[OperatorView]) -> Iterable[OperatorGroup]:
    ordered = sorted(views, key=lambda view: (_initial(view.operator), view.operator))
    for initial, rows in groupby(ordered, key=lambda view: _initial(view.operator)):
        name = "With an underscore" if initial == "_" else initial.upper()
        yield OperatorGroup(name=name, anchor=re.sub(r"\W+", "-", name.lower()), rows=tuple(rows))


def _initial(operator: str) -> str:
    return operator[0].lower()
