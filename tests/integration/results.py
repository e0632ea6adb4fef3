"""Create a project with invented results, for commands that read results without an export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from exporter.cache.states import hash_source
from exporter.manifest import load_project
from exporter.pipeline.decisions import FingerprintCache
from exporter.planning.plan import make_plan
from exporter.records.record import Record, RunRecord, Source, Status
from tests.integration.project import format_entry, write_project
from tests.unit.factory import make_record

TOOLS = {"torch": "2.13.0"}
MANIFEST = f"format = 1{format_entry('net', 'net.py:Net', opsets='[17, 18]')}"


def make_green_project(root: Path) -> Path:
    """Create a project with one model and two green cells; it has no baseline yet."""
    write_project(root, {"net.toml": MANIFEST, "net.py": "class Net: ...\n"})
    write_results(root)
    return root


def write_results(
    root: Path,
    status: Status = Status.PASS,
    *,
    message: str = "",
    sources: Sequence[str] = (),
    tools: Mapping[str, str] = TOOLS,
    **statuses: Status,
) -> None:
    """Write a result for each cell of the plan, with current fingerprints.

    Args:
        root: The project.
        status: The status of the cells that `statuses` does not contain.
        message: The message of each record; `{}` stands for the model.
        sources: The files of the models.
        tools: The versions of the tools.
        statuses: Statuses by opset, such as `_17`.
    """
    manifest = load_project(root)
    fingerprints = FingerprintCache(manifest)
    records: list[Record] = []
    for planned in make_plan(manifest).cells:
        promised_status = statuses.get(f"_{planned.cell.opset}", status)
        records.append(
            make_record(
                str(planned.cell),
                Status.SKIP if planned.skip else promised_status,
                route=planned.route,
                message=message.format(planned.cell.model),
                fingerprint=fingerprints.get_cell_parts(planned.cell),
                sources=[Source(file=file, state=hash_source(root / file)) for file in sources],
            )
        )
    (root / "build").mkdir(exist_ok=True)
    run = RunRecord(tools={**tools}, records=tuple(records))
    (root / "build/results.json").write_text(run.to_json())
