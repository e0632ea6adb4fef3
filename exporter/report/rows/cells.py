"""Promised cells with their records."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from exporter.core.device_name import DeviceName
from exporter.core.text import format_command, join_lines, pluralize
from exporter.gate.baseline_comparison import find_drift
from exporter.gate.finding import MEASURED_KINDS, NOT_ACCEPTED
from exporter.manifest import GatePolicy, Manifest
from exporter.manifest.syntax.values import format_opsets
from exporter.records.baseline import (
    Baseline,
    CellOutcome,
    Figures,
    extract_outcome,
)
from exporter.records.record import CellId, Record, RunRecord, Status
from exporter.report.formats import Mark, choose_mark, clean_message

T = TypeVar("T")
#: A row of a table, which only templates read: they write `row.name`.
Row: TypeAlias = dict[str, Any]

_NUMBER = re.compile(r"\d+(?:\.\d+)*(?:e[+-]?\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsetGroup(Generic[T]):
    """Members with equal keys, for one model on one device."""

    model: str
    device: str
    opsets: tuple[int, ...]
    members: tuple[T, ...]
    """The members, in the order of `opsets`."""

    @property
    def opset_ranges(self) -> str:
        """`13..17`."""
        return format_opsets(self.opsets)

    @property
    def label(self) -> str:
        """`alexnet/9..13,17/cpu`; for a single member, the id of its cell."""
        return f"{self.model}/{self.opset_ranges.replace(', ', ',')}/{self.device}"

    @property
    def first(self) -> T:
        """The member with the lowest opset, which represents the group."""
        return self.members[0]


def group_by_opset(
    items: Iterable[T], cell_of: Callable[[T], CellId], key_of: Callable[[T], Hashable]
) -> tuple[OpsetGroup[T], ...]:
    """Group the items with equal model, device and key, in the order of their first item."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        cell = cell_of(item)
        groups.setdefault((cell.model, cell.device, key_of(item)), []).append(item)
    results = []
    for group in groups.values():
        group.sort(key=lambda item: cell_of(item).opset)
        cell = cell_of(group[0])
        results.append(
            OpsetGroup(
                model=cell.model,
                device=cell.device,
                opsets=tuple(cell_of(item).opset for item in group),
                members=tuple(group),
            )
        )
    return tuple(results)


def mask_numbers(message: str) -> str:
    """Return the message with `#` for each number, so equal failures have equal texts."""
    return _NUMBER.sub("#", message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A promised cell."""

    id: CellId
    record: Record | None
    is_beyond_runtime: bool = False
    """Whether it is unavailable because the pinned release of its device loads no such opset."""

    @property
    def mark(self) -> Mark:
        return choose_mark(self.record)

    @property
    def is_pass(self) -> bool:
        """Whether all promises are proved; a foreseen failure is no pass."""
        return self.record is not None and self.record.status is Status.PASS

    @property
    def is_red(self) -> bool:
        return self.record is not None and self.record.status.is_red

    @property
    def outcome(self) -> str:
        """`pass`, `error at convert`, `fail at parity (axes)`, `not run`."""
        if self.record is None:
            return self.mark.word
        if self.is_beyond_runtime:
            return "unavailable by its runtime"
        return self.record.outcome

    @property
    def reason(self) -> str:
        """The message of the record on one line; never empty, because red rows need a text."""
        if self.record is None:
            return self.mark.meaning
        message = clean_message(self.record.message) or self.mark.meaning
        expectation = join_lines(self.record.expectation)
        return f"{message} ({expectation})" if expectation else message

    @property
    def runs(self) -> bool:
        """Whether an export runs it: neither the manifest nor its runtime excludes it."""
        is_skipped = self.record is not None and self.record.status is Status.SKIP
        return not is_skipped and not self.is_beyond_runtime

    def format_command(self, command: str) -> str:
        """Return the shell command that exports it, or "" if it does not run."""
        return format_export_command(str(self.id), command) if self.runs else ""

    @property
    def expected_reason(self) -> str:
        return join_lines(self.record.foreseen) if self.record else ""


def format_export_command(pattern: str, command: str) -> str:
    """Return the shell command that exports the cells of a pattern."""
    quoted = shlex.quote(pattern) if "'" in pattern else f"'{pattern}'"
    return format_command(command, "export", quoted)


def collect_cells(manifest: Manifest, run: RunRecord) -> dict[str, tuple[Cell, ...]]:
    """Return the cells of each model by opset; models in the order of the manifest."""
    records = {record.cell.sort_key: record for record in run.records}
    last_opsets = {device.name: device.last_opset for device in manifest.project.devices}

    def make_cell(model_id: str, opset: int, device_name: DeviceName) -> Cell:
        record, last = (
            records.get((model_id, opset, device_name)),
            last_opsets.get(device_name.base),
        )
        id = record.cell if record else CellId(model=model_id, opset=opset, device=device_name)
        is_unavailable = record is not None and record.status is Status.UNAVAILABLE
        is_beyond = is_unavailable and last is not None and id.opset > last
        return Cell(id=id, record=record, is_beyond_runtime=is_beyond)

    return {
        spec.id: tuple(
            make_cell(spec.id, opset, device_name)
            for opset in sorted(set(spec.opsets))
            for device_name in dict.fromkeys(spec.devices)
        )
        for spec in manifest.models
    }


def format_head(cells: Collection[Cell]) -> str:
    """Return the head figure: `21 models, 2 with initial weights, 0 red; 1053 proved`."""
    statuses = Counter(cell.record.status if cell.record else None for cell in cells)
    red = sum(count for status, count in statuses.items() if status and status.is_red)
    foreseen = statuses[Status.XFAIL]
    others = {
        f"foreseen failure{'s' if foreseen > 1 else ''}": foreseen,
        "not run here": statuses[Status.SKIP] + statuses[Status.UNAVAILABLE],
        "without a result": statuses[None],
    }
    models = pluralize(len({cell.id.model for cell in cells}), "model")
    if initial := list_initial_models(cell.record for cell in cells):
        models += f", {len(initial)} with initial weights"
    counts = (f", {count} {text}" for text, count in others.items() if count)
    return f"{models}, {red} red; {statuses[Status.PASS]} proved{''.join(counts)}"


def list_initial_models(records: Iterable[Record | None]) -> list[str]:
    drawn = (each.cell.model for each in records if each and each.initial_weights)
    return list(dict.fromkeys(drawn))


def group_cells(
    cells: Iterable[Cell], key_of: Callable[[Cell], Hashable] = lambda _: None
) -> tuple[OpsetGroup[Cell], ...]:
    """Group cells that differ only in their opset: same outcome, same reason, same key."""
    return group_by_opset(
        cells,
        lambda cell: cell.id,
        lambda cell: (
            cell.outcome,
            mask_numbers(cell.reason),
            cell.expected_reason,
            key_of(cell),
        ),
    )


def describe_reason(group: OpsetGroup[Cell]) -> str:
    """Return the reason of the group; if its figures differ, name the opset of the first cell."""
    reason = group.first.reason
    if all(cell.reason == reason for cell in group.members):
        return reason
    return f"{reason} (figures of opset {group.first.id.opset})"


#: Tools that create and run the files.
_EXPORT_TOOLS = ("torch", "onnx", "onnxscript", "onnxruntime")
AS_ACCEPTED = "as accepted"


class AcceptanceHistory:
    """The accepted outcomes; without a baseline, all texts are empty."""

    def __init__(
        self,
        baseline: Baseline | None = None,
        trend: Sequence[Any] = (),
        commit: str = "",
    ) -> None:
        """Store the accepted state; trend and commit are for pages that are not committed."""
        self.trend = tuple(trend)
        self.commit = commit
        self.baseline = baseline
        self._outcomes: Mapping[CellId, CellOutcome] = baseline.by_cell() if baseline else {}
        self._found: dict[CellId, str] = {}
        self._drift: dict[CellId, tuple[Record, str]] = {}

    def find_outcome(self, cell: Cell) -> str:
        """Return the outcome in the baseline.

        Returns:
            `AS_ACCEPTED` if the current outcome is equal, or "" without a baseline or a record.
        """
        if self.baseline is None or cell.record is None:
            return ""
        # Several pages and tables show each cell.
        if cell.id not in self._found:
            accepted = str(self._outcomes.get(cell.id, NOT_ACCEPTED))
            is_equal = accepted == cell.record.outcome
            self._found[cell.id] = AS_ACCEPTED if is_equal else accepted
        return self._found[cell.id]

    def find_figures(self, cell: Cell) -> Figures | None:
        outcome = self._outcomes.get(cell.id)
        return outcome.figures if outcome else None

    def is_changed(self, cell: Cell) -> bool:
        """Return whether the baseline has another outcome for the cell, or figures of drift."""
        outcome = self.find_outcome(cell)
        return bool(self.describe_drift(cell)) if outcome == AS_ACCEPTED else bool(outcome)

    def describe_drift(self, cell: Cell) -> str:
        """Return the figures that are worse than the accepted ones, without measured times."""
        old = self._outcomes.get(cell.id)
        if old is None or cell.record is None:
            return ""
        record, text = self._drift.get(cell.id, (None, ""))
        if record is not cell.record:
            drift = find_drift(old, extract_outcome(cell.record), GatePolicy())
            known = (each for each in drift if each.kind not in MEASURED_KINDS)
            text = "; ".join(f"{each.kind}: {each.before} -> {each.after}" for each in known)
            self._drift[cell.id] = cell.record, text
        return text

    def describe(self, cell: Cell) -> str:
        """Return the accepted outcome, or the reason for accepting the current one."""
        outcome = self.find_outcome(cell)
        if self.baseline is None or not outcome:
            return ""
        if outcome == NOT_ACCEPTED:
            return "never accepted: it is not in the baseline"
        if outcome != AS_ACCEPTED:
            tools = format_export_tools(self.baseline.models[cell.id.model].tools)
            return f"{outcome} in the baseline{f', with {tools}' if tools else ''}"
        reason = join_lines(self._outcomes[cell.id].reason)
        if drift := self.describe_drift(cell):
            return drift
        if not cell.is_red and not reason:
            return ""  # a foreseen failure that is accepted needs no text
        return f"{outcome}{f': {reason}' if reason else ''}"


def format_changed_tools(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return the tools with a different version: `torch 2.12.0 to 2.13.0`.

    Returns:
        "" if the versions before are unknown.
    """
    names = {**before, **after} if before else {}
    pairs = {name: (before.get(name, "none"), after.get(name, "none")) for name in names}
    return join_lines(", ".join(f"{name} {a} to {b}" for name, (a, b) in pairs.items() if a != b))


def format_export_tools(tools: Mapping[str, str]) -> str:
    """Return the versions of the tools that create and run the files."""
    return join_lines(", ".join(f"{name} {tools[name]}" for name in _EXPORT_TOOLS if name in tools))
