"""The reproducer of a trap, written as by `exporter repro`, and one trap of each kind of red."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from exporter.commands.repro.repro import ReproducedCell, write_reproducer
from exporter.jobs import JobFolder
from exporter.planning.plan import choose_route
from exporter.records.record import Record
from tests.traps.prove import CPU
from tests.traps.trap import ROOT, Trap


def write_script(trap: Trap, record: Record, built: Path, folder: Path) -> Path:
    """Write the reproducer of a record and return its script.

    Raises:
        ExporterError: If a script cannot show the failure.
    """
    cell = ReproducedCell(
        spec=trap.spec.resolve_cell(trap.opset, CPU.name),
        record=record,
        device=CPU,
        tools={},
        root=ROOT,
        built=JobFolder(built),
    )
    write_reproducer(cell, folder)
    return folder / "repro.py"


def pick_kinds(traps: Iterable[Trap]) -> list[Trap]:
    """Return the first trap of each status, stage and check; of most, for each exporter."""
    kinds: dict[tuple[object, ...], Trap] = {}
    for trap in traps:
        verdict = trap.verdict
        # Checks of outputs and of the structure do not depend on the exporter of the file.
        by_exporter = verdict.check in (None, "parity")
        exporter = choose_route(trap.spec, trap.opset).exporter if by_exporter else ""
        kinds.setdefault((verdict.status, verdict.stage, verdict.check, exporter), trap)
    return list(kinds.values())
