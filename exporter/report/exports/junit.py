"""The cells as test cases, for the pages of a CI system: `reports/junit.xml`.

In: every model's contract and `Cell`s. Out: JUnit's XML: a suite for each model, a case for each
cell. A check that says no is a failure, a stage that raised an error. What was not run, what is
unavailable and what fails as foreseen is skipped there, with the reason: JUnit knows no fourth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal
from xml.etree.ElementTree import Element

from exporter.manifest import Manifest, ModelSpec
from exporter.records.record import Status
from exporter.report.rows.acceptance import AcceptanceHistory
from exporter.report.rows.cells import Cell
from exporter.report.rows.failure_reasons import explain_failure, summarize_failure
from exporter.report.rows.failures import format_export_command
from exporter.report.text import number_format as figures
from exporter.report.text import xml_elements as elements

Kind = Literal["", "failure", "error", "skipped"]

_KINDS: dict[Status, Kind] = {
    Status.PASS: "",
    Status.FAIL: "failure",
    Status.INCONCLUSIVE: "failure",
    Status.XPASS: "failure",
    Status.ERROR: "error",
    Status.CRASH: "error",
    Status.TIMEOUT: "error",
    Status.KILLED: "error",
    Status.XFAIL: "skipped",
    Status.SKIP: "skipped",
    Status.UNAVAILABLE: "skipped",
}


def format_junit(
    manifest: Manifest, by_model: Mapping[str, Sequence[Cell]], past: AcceptanceHistory
) -> str:
    """The whole document."""
    every = [cell for cells in by_model.values() for cell in cells]
    tree = elements.create_root("testsuites", {"name": "exporter", **_counts(every)})
    for spec in manifest.models:
        cells = by_model[spec.id]
        suite = elements.add_element(tree, "testsuite", {"name": spec.id, **_counts(cells)})
        for cell in cells:
            _case(suite, spec, cell, _how(spec, cell, manifest.project.command, past))
    return elements.format_document(tree)


def _kind(cell: Cell) -> Kind:
    return _KINDS[cell.record.status] if cell.record else "skipped"


def _counts(cells: Sequence[Cell]) -> dict[str, str]:
    kinds = [_kind(cell) for cell in cells]
    return {
        "tests": str(len(kinds)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
        "skipped": str(kinds.count("skipped")),
    }


def _how(spec: ModelSpec, cell: Cell, command: str, past: AcceptanceHistory) -> tuple[str, ...]:
    """Where a red cell is promised and goes wrong, what was accepted, and how to see it again."""
    if cell.record is None or not cell.is_red:
        return ()
    reasons = explain_failure(cell.record, command)
    said = {
        "promised at": str(spec.location),
        "in the model": ", ".join(reasons.lines),
        "accepted before": past.since(cell),
        "run it again": format_export_command(str(cell.id), command),
        "show it without this tool": reasons.reproduce,
    }
    return tuple(f"{name}: {value}" for name, value in said.items() if value)


def _case(suite: Element, spec: ModelSpec, cell: Cell, how: Sequence[str]) -> None:
    about = {"classname": spec.id, "name": str(cell.id), "file": spec.manifest}
    if cell.is_red:
        about["line"] = str(spec.line)
    case = elements.add_element(suite, "testcase", about)
    if kind := _kind(cell):
        message = cell.foreseen or cell.why
        said = {"type": cell.outcome, "message": message}
        elements.add_element(case, kind, said, _text(cell, how))


def _text(cell: Cell, how: Sequence[str]) -> str:
    """What a person needs who sees the case alone."""
    record = cell.record
    if record is None or record.status in (Status.SKIP, Status.UNAVAILABLE):
        return ""
    refused = (
        f"{result.check}: {result.status}: {figures.clean_message(result.message)}"
        for result in record.checks
        if result.status is not Status.PASS
    )
    short, detail = (
        figures.clean_message(summarize_failure(record)),
        figures.clean_detail(record.detail),
    )
    parts = (cell.why, *refused, short, *how, detail)
    return "\n".join(dict.fromkeys(part for part in parts if part))
