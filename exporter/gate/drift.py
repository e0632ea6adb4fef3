"""Drift: figures of a green cell that have grown since it was accepted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from exporter.core.onnxruntime_releases import find_first_release, format_release
from exporter.gate.finding import FindingKind
from exporter.manifest import GatePolicy
from exporter.records.baseline import CellOutcome, Figures
from exporter.records.record import CellId, Status

#: Bytes. Names and versions inside a file may grow by this much without a finding.
_FILE_SLACK = 4096
#: The units of measured ratios.
_RUN, _LOAD = "times PyTorch's time", "times the load time of one node"
_FILE = "times the size of the file"
_WORKING = (Status.PASS, Status.XPASS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One figure of a cell that has become worse."""

    kind: FindingKind
    before: str
    after: str


def find_drift(before: CellOutcome, after: CellOutcome, policy: GatePolicy) -> Iterator[Drift]:
    """Yield each figure of the file that is worse than the accepted one."""
    old, new = before.figures, after.figures
    if old is None or new is None:
        return
    if old.thorough and not new.thorough:
        texts = [f"thorough: {str(figures.thorough).lower()}" for figures in (old, new)]
        yield Drift(kind=FindingKind.RELAXED, before=texts[0], after=texts[1])
    if (
        old.error is not None
        and new.error is not None
        and new.is_short >= old.is_short  # the full proof has more samples
        and new.error > max(old.error * policy.error_factor, policy.error_floor)
    ):
        texts = [f"{figures.error:g} of the tolerance" for figures in (old, new)]
        yield Drift(kind=FindingKind.ERROR_GROWN, before=texts[0], after=texts[1])
    if new.bytes > old.bytes * (1 + policy.file_growth) and new.bytes > old.bytes + _FILE_SLACK:
        texts = [f"{figures.bytes:,} bytes" for figures in (old, new)]
        yield Drift(kind=FindingKind.FILE_GROWN, before=texts[0], after=texts[1])
    if new.nodes > old.nodes * (1 + policy.node_growth):
        texts = [f"{figures.nodes} nodes" for figures in (old, new)]
        yield Drift(kind=FindingKind.NODES_GROWN, before=texts[0], after=texts[1])
    yield from _find_growth(old, new, policy)
    if set(new.domains) - set(old.domains):
        texts = [", ".join(figures.domains) or "only ONNX's own" for figures in (old, new)]
        yield Drift(kind=FindingKind.NEW_DOMAIN, before=texts[0], after=texts[1])
    first, now = (find_first_release(before.cell.opset, each.ir_version) for each in (old, new))
    if first is not None and (now is None or now > first):
        text = format_release(now) if now else "newer than every known release"
        yield Drift(kind=FindingKind.FLOOR_RAISED, before=format_release(first), after=text)


def _find_growth(old: Figures, new: Figures, policy: GatePolicy) -> Iterator[Drift]:
    """Yield each measured ratio that has grown by its factor."""
    for kind, before, after, factor, unit in (
        (FindingKind.LATENCY_GROWN, old.latency, new.latency, policy.latency_factor, _RUN),
        (FindingKind.LOAD_GROWN, old.load, new.load, policy.load_factor, _LOAD),
        (FindingKind.MEMORY_GROWN, old.memory, new.memory, policy.memory_factor, _FILE),
    ):
        if before and after and after > before * factor:
            yield Drift(kind=kind, before=f"{before:g} {unit}", after=f"{after:g} {unit}")


def has_same_figures(before: CellOutcome, after: CellOutcome, policy: GatePolicy) -> bool:
    """Return whether neither outcome is drift in comparison with the other."""
    if (before.figures is None) is not (after.figures is None):
        return False
    drift = (*find_drift(before, after, policy), *find_drift(after, before, policy))
    return not drift


def find_lowest_opsets(outcomes: Iterable[CellOutcome]) -> Mapping[tuple[str, str], int]:
    """Return the lowest opset from which on all cells pass, by model and device.

    Returns:
        No entry for a model if its highest opset does not pass.
    """
    cells: dict[tuple[str, str], list[tuple[int, bool]]] = {}
    for outcome in outcomes:
        cell = outcome.cell
        is_working = outcome.status in _WORKING
        cells.setdefault((cell.model, cell.device), []).append((cell.opset, is_working))
    lowest = {}
    for key, opsets in cells.items():
        for opset, works in sorted(opsets, reverse=True):
            if not works:
                break
            lowest[key] = opset
    return lowest


def find_raised_opsets(
    before: Iterable[CellOutcome], after: Iterable[CellOutcome]
) -> Iterator[tuple[CellId, Drift]]:
    """Yield the models that need a higher opset now, with the cell of the old lowest opset."""
    current = find_lowest_opsets(after)
    for (model, device), old in find_lowest_opsets(before).items():
        new = current.get((model, device))
        # If no opset passes, the cells are red or missing and have findings of their own.
        if new is not None and new > old:
            yield (
                CellId(model=model, opset=old, device=device),
                Drift(
                    kind=FindingKind.LOWEST_RAISED,
                    before=f"from opset {old}",
                    after=f"from opset {new}",
                ),
            )
