"""What slipped while every promise was still kept: errors, sizes, operators, what loads the file.

In: two outcomes of a cell and a `GatePolicy`. Out: `Drift`s. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from exporter.core.onnxruntime_releases import find_first_release, format_release
from exporter.gate.finding import FindingKind
from exporter.manifest import GatePolicy
from exporter.records.baseline import CellOutcome, Figures
from exporter.records.record import CellId, Status

#: Bytes by which a file may grow whatever its share: names and versions inside it are not its size.
_SLACK = 4096
_WORKS = (Status.PASS, Status.XPASS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One figure of a cell that got worse."""

    kind: FindingKind
    before: str
    after: str


def find_drift(before: CellOutcome, after: CellOutcome, policy: GatePolicy) -> Iterator[Drift]:
    """How the file of a cell differs from the accepted one, for the worse."""
    old, new = before.figures, after.figures
    if old is None or new is None:
        return
    if _error_grew(old, new, policy):
        yield Drift(kind=FindingKind.ERROR_GROWN, before=_error_text(old), after=_error_text(new))
    if new.bytes > old.bytes * (1 + policy.file_growth) and new.bytes > old.bytes + _SLACK:
        yield Drift(
            kind=FindingKind.FILE_GROWN, before=f"{old.bytes:,} bytes", after=f"{new.bytes:,} bytes"
        )
    if new.nodes > old.nodes * (1 + policy.node_growth):
        yield Drift(
            kind=FindingKind.NODES_GROWN, before=f"{old.nodes} nodes", after=f"{new.nodes} nodes"
        )
    if old.latency and new.latency and new.latency > old.latency * policy.latency_factor:
        yield Drift(
            kind=FindingKind.LATENCY_GROWN, before=_latency_text(old), after=_latency_text(new)
        )
    if set(new.domains) - set(old.domains):
        yield Drift(kind=FindingKind.NEW_DOMAIN, before=_domains(old), after=_domains(new))
    yield from _raised_floor(before.id.opset, old, new)


def has_same_figures(before: CellOutcome, after: CellOutcome, policy: GatePolicy) -> bool:
    """Whether neither would be drift after the other: the accepted figures still describe it."""
    if (before.figures is None) is not (after.figures is None):
        return False
    return not any(find_drift(before, after, policy)) and not any(find_drift(after, before, policy))


def find_lowest_opsets(outcomes: Iterable[CellOutcome]) -> Mapping[tuple[str, str], int]:
    """The lowest opset that passes and above which all do, by model and device.

    What passes at no opset, or not at the highest, has no entry.
    """
    cells: dict[tuple[str, str], list[tuple[int, bool]]] = {}
    for outcome in outcomes:
        cell = outcome.id
        works = outcome.status in _WORKS
        cells.setdefault((cell.model, cell.device), []).append((cell.opset, works))
    lowest = {}
    for key, found in cells.items():
        for opset, works in sorted(found, reverse=True):
            if not works:
                break
            lowest[key] = opset
    return lowest


def find_raised_opsets(
    before: Iterable[CellOutcome], after: Iterable[CellOutcome]
) -> Iterator[tuple[CellId, Drift]]:
    """Models that need a higher opset than before, each with the cell at the lowest one before."""
    now = find_lowest_opsets(after)
    for (model, device), opset in find_lowest_opsets(before).items():
        lowest = now.get((model, device))
        # What passes nowhere any more is red or gone, and said so cell by cell.
        if lowest is not None and lowest > opset:
            cell = CellId(model=model, opset=opset, device=device)
            then, today = f"from opset {opset}", f"from opset {lowest}"
            yield cell, Drift(kind=FindingKind.LOWEST_RAISED, before=then, after=today)


def _error_grew(old: Figures, new: Figures, policy: GatePolicy) -> bool:
    if old.error is None or new.error is None:
        return False
    return new.error > max(old.error * policy.error_factor, policy.error_floor)


def _error_text(figures: Figures) -> str:
    return f"{figures.error:g} of what is allowed"


def _latency_text(figures: Figures) -> str:
    return f"{figures.latency:g} times PyTorch's time"


def _domains(figures: Figures) -> str:
    return ", ".join(figures.domains) or "ONNX's own alone"


def _raised_floor(opset: int, old: Figures, new: Figures) -> Iterator[Drift]:
    first, now = (
        find_first_release(opset, old.ir_version),
        find_first_release(opset, new.ir_version),
    )
    if first is not None and (now is None or now > first):
        said = format_release(now) if now else "newer than any that is known"
        yield Drift(kind=FindingKind.FLOOR_RAISED, before=format_release(first), after=said)
