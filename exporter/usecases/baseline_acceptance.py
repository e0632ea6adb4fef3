"""Accept the current results: write the baseline and the reports."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from exporter.gate import GateFinding, accept_all, accept_some, compare_results
from exporter.manifest import Manifest
from exporter.planning.plan import make_plan
from exporter.records.baseline import Baseline, extract_outcomes, read_baseline, write_baseline
from exporter.records.record import CellId, RunRecord
from exporter.usecases.current_results import ValidResults, read_results
from exporter.usecases.report_pages import ReportPaths, write_reports


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """The current results and the baseline before they are accepted."""

    manifest: Manifest
    current: ValidResults
    run: RunRecord
    """The records of the cells in the manifests."""
    planned: frozenset[CellId]
    before: Baseline

    @property
    def findings(self) -> tuple[GateFinding, ...]:
        """The differences between the results and the baseline."""
        return compare_results(self.before, self.run, self.planned, self.manifest.project.gate)


def prepare_acceptance(manifest: Manifest) -> Acceptance:
    """Read the results and the baseline.

    Raises:
        ExporterError: UNREADABLE if the results or the baseline cannot be read.
    """
    current = read_results(manifest)
    run = current.results.run
    planned = frozenset(planned.cell for planned in make_plan(manifest).cells)
    # Cells that left the manifests also leave the baseline.
    records = tuple(record for record in run.records if record.cell in planned)
    path = ReportPaths(manifest.project).baseline
    return Acceptance(
        manifest=manifest,
        current=current,
        run=run.model_copy(update={"records": records}),
        planned=planned,
        before=read_baseline(path) if path.exists() else Baseline(tools=run.tools, cells=()),
    )


def accept(
    acceptance: Acceptance, cells: Collection[CellId] | None = None, reason: str = ""
) -> None:
    """Write the results into the baseline, and write the reports.

    Args:
        acceptance: The results and the previous baseline.
        cells: The cells to accept. None for all.
        reason: The reason for each of them.

    Raises:
        ExporterError: ENVIRONMENT if a file cannot be written.
        KeyError: A cell is in neither the manifests, the results nor the baseline.
    """
    manifest, before, run = acceptance.manifest, acceptance.before, acceptance.run
    outcomes = extract_outcomes(run)
    if cells is None:
        accepted = accept_all(before, outcomes, run.tools, manifest.project.gate)
    else:
        known = {*outcomes, *before.by_cell(), *before.dropped, *acceptance.planned}
        if unknown := [cell for cell in cells if cell not in known]:
            raise KeyError(
                f"{unknown[0]}: is in neither the manifests, the results nor the baseline"
            )
        accepted = accept_some(before, outcomes, cells, reason)
    paths = ReportPaths(manifest.project)
    write_baseline(paths.baseline, accepted)
    write_reports(manifest, acceptance.current.results.run)
