"""The public Python interface: plan, export, gate and reports of a project.

The commands of the command line call these functions. Nothing here prints or exits. A problem is an
`ExporterError` with an exit code. See docs/api.md for an example.
"""

from exporter.api.gate_run import (
    Acceptance,
    GateResult,
    accept,
    gate,
    prepare_acceptance,
    read_results,
)
from exporter.core.errors import ExitCode, ExporterError, ExportSummary, Location, Problem
from exporter.export_options import ExportOptions
from exporter.gate.finding import GateFinding
from exporter.manifest import Manifest, load_project
from exporter.pipeline.decisions import Decisions, Results
from exporter.pipeline.supervisor import BuildObserver
from exporter.planning import Selection
from exporter.planning.plan import Plan, PlannedCell, Shard
from exporter.processes import ProcessStarter
from exporter.processes.fork_server_client import make_starter
from exporter.program import BuildPlan, ExportResult, export, plan
from exporter.records.record import CellId, Record, RunRecord, Stage, Status
from exporter.report.reports_folder import find_stale_pages, write_reports

__all__ = [
    "Acceptance",
    "BuildObserver",
    "BuildPlan",
    "CellId",
    "Decisions",
    "ExitCode",
    "ExportOptions",
    "ExportResult",
    "ExportSummary",
    "ExporterError",
    "GateFinding",
    "GateResult",
    "Location",
    "Manifest",
    "Plan",
    "PlannedCell",
    "Problem",
    "ProcessStarter",
    "Record",
    "Results",
    "RunRecord",
    "Selection",
    "Shard",
    "Stage",
    "Status",
    "accept",
    "export",
    "find_stale_pages",
    "gate",
    "load_project",
    "make_starter",
    "plan",
    "prepare_acceptance",
    "read_results",
    "write_reports",
]
