"""The page of the operators: the support of each exporter, and the models that use them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from exporter.manifest import Manifest
from exporter.manifest.syntax.opsets import format_opsets
from exporter.records.record import RunRecord
from exporter.report.pages.templates import render
from exporter.tools.operator_calls.support_table import OperatorMeasurement
from exporter.tools.operators.measured_view import MeasuredView, view_measurement
from exporter.tools.operators.protocol import OperatorRow, OperatorTable

OPERATORS_FILE = "OPERATORS.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorView:
    """One row, with opsets as ranges."""

    operator: str
    """`add`, without the namespace."""
    overloads: str
    """"" if the row is for all of them."""
    torchscript: str
    dynamo: str
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorGroup:
    """The rows of one letter; `_` comes before `a`."""

    name: str
    anchor: str
    rows: tuple[OperatorView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorsPage:
    """The values of the page."""

    operators: int
    convertible: int
    groups: tuple[OperatorGroup, ...]
    unproved: tuple[OperatorView, ...]
    """Operators that dynamo decomposes, without a proof for any opset."""
    unsupported: tuple[OperatorView, ...]
    foreign: tuple[OperatorView, ...]
    """Operators of the project's models that are not ATen operators."""
    unexported: tuple[str, ...]
    """Models without a record of their operators."""
    torchscript: str
    dynamo: str
    folded: int
    tools: tuple[tuple[str, str], ...]
    measured: MeasuredView | None
    """None if no calls were measured."""


def render_operators(
    manifest: Manifest,
    table: OperatorTable,
    run: RunRecord,
    measurement: OperatorMeasurement | None,
    templates: Path,
) -> str:
    """Return the page as markdown."""
    page = build_page(manifest, table, run, measurement)
    return render("operators.md", templates, page=page)


def build_page(
    manifest: Manifest,
    table: OperatorTable,
    run: RunRecord,
    measurement: OperatorMeasurement | None = None,
) -> OperatorsPage:
    """Return the values of the page, with rows in the order of the table."""
    aten = {row.operator for row in table.rows}
    uses: dict[str, set[str]] = defaultdict(set)
    for record in run.records:
        for name in record.torch_operators:
            uses[resolve_packet(name, aten)].add(record.cell.model)
    exported = set().union(*uses.values())
    counts = Counter(row.operator for row in table.rows)
    views = [(row, _view_row(row, uses, is_only=counts[row.operator] == 1)) for row in table.rows]
    return OperatorsPage(
        operators=len(aten),
        convertible=len({row.operator for row in table.rows if row.is_convertible}),
        groups=tuple(_group_by_letter(view for row, view in views if row.is_convertible)),
        unproved=tuple(view for row, view in views if not row.is_convertible and row.unproved),
        unsupported=tuple(
            view for row, view in views if not row.is_convertible and not row.unproved
        ),
        foreign=tuple(
            OperatorView(
                operator=name,
                overloads="",
                torchscript="",
                dynamo="",
                models=tuple(sorted(uses[name])),
            )
            for name in sorted(uses)
            if name not in aten
        ),
        unexported=tuple(spec.id for spec in manifest.models if spec.id not in exported),
        torchscript=format_opsets(table.torchscript),
        dynamo=format_opsets(table.dynamo),
        folded=table.folded,
        tools=tuple(sorted(table.tools.items())),
        measured=None if measurement is None else view_measurement(measurement, len(aten)),
    )


def resolve_packet(name: str, packets: Iterable[str] = ()) -> str:
    """Return the operator of a row: `aten::add` for `aten.add.Tensor` and `aten::add_`."""
    if "::" not in name:
        parts = name.split(".")
        name = f"{parts[0]}::{'.'.join(parts[1:-1]) or parts[-1]}"
    plain = name.removesuffix("_")
    return name if name in packets or plain not in packets else plain


def _view_row(row: OperatorRow, uses: Mapping[str, set[str]], *, is_only: bool) -> OperatorView:
    kinds = (
        (row.translated, ""),
        (row.decomposed, " by decomposition"),
        (row.unproved, " not proved"),
    )
    return OperatorView(
        operator=row.operator.removeprefix("aten::"),
        overloads="" if is_only else ", ".join(row.overloads),
        torchscript=format_opsets(row.torchscript),
        dynamo="; ".join(f"{format_opsets(opsets)}{kind}" for opsets, kind in kinds if opsets),
        models=tuple(sorted(uses.get(row.operator, ()))),
    )


def _group_by_letter(views: Iterable[OperatorView]) -> Iterator[OperatorGroup]:
    ordered = sorted(views, key=lambda view: (view.operator[0].lower(), view.operator))
    for initial, rows in groupby(ordered, key=lambda view: view.operator[0].lower()):
        name = "With an underscore" if initial == "_" else initial.upper()
        yield OperatorGroup(name=name, anchor=re.sub(r"\W+", "-", name.lower()), rows=tuple(rows))
