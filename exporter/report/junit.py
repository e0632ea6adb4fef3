"""The results as JUnit, for CI systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from exporter.core.text import remove_controls
from exporter.manifest import Manifest, ModelSpec, Project
from exporter.records.record import Status
from exporter.report.formats import clean_detail, clean_message
from exporter.report.rows.cells import (
    AcceptanceHistory,
    Cell,
    format_export_command,
)
from exporter.report.rows.failures import (
    find_model_lines,
    format_repro_command,
    summarize_failure,
)

#: In the folder of a site.
JUNIT = "junit.xml"
_CaseResult = Literal["", "failure", "error", "skipped"]

_RESULTS: dict[Status, _CaseResult] = {
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
    manifest: Manifest, by_model: Mapping[str, Sequence[Cell]], history: AcceptanceHistory
) -> str:
    cells = [cell for each in by_model.values() for cell in each]
    counts = _count_results(cells, errors=len(manifest.problems))
    tree = Element("testsuites", {"name": "exporter", **counts})
    if manifest.problems:
        # An error for each problem of a manifest file, because its cells are unknown.
        attributes = {"name": "manifests", **_count_results((), errors=len(manifest.problems))}
        suite = _add_element(tree, "testsuite", attributes)
        for problem in manifest.problems:
            attributes = {"classname": "manifests", "name": str(problem.location or "manifests")}
            case = _add_element(suite, "testcase", attributes)
            details = {"type": "error at source", "message": problem.message}
            _add_element(case, "error", details, str(problem))
    for spec in manifest.models:
        attributes = {"name": spec.id, **_count_results(by_model[spec.id])}
        suite = _add_element(tree, "testsuite", attributes)
        for cell in by_model[spec.id]:
            attributes = {"classname": spec.id, "name": str(cell.id), "file": spec.manifest}
            if cell.is_red:
                attributes["line"] = str(spec.line)
            case = _add_element(suite, "testcase", attributes)
            if result := _get_result(cell):
                message = cell.expected_reason or cell.reason
                attributes = {"type": cell.outcome, "message": message}
                hints = _list_hints(spec, cell, manifest.project, history)
                _add_element(case, result, attributes, _format_details(cell, hints))
    indent(tree)
    return f"{tostring(tree, encoding='unicode')}\n"


def _add_element(parent: Element, tag: str, attributes: dict[str, str], text: str = "") -> Element:
    """Append an element with text from models, tools and manifests."""
    cleaned = {name: remove_controls(value) for name, value in attributes.items()}
    child = SubElement(parent, tag, cleaned)
    child.text = remove_controls(text) or None
    return child


def _get_result(cell: Cell) -> _CaseResult:
    return _RESULTS[cell.record.status] if cell.record else "skipped"


def _count_results(cells: Sequence[Cell], *, errors: int = 0) -> dict[str, str]:
    results = [_get_result(cell) for cell in cells]
    return {
        "tests": str(len(results) + errors),
        "failures": str(results.count("failure")),
        "errors": str(results.count("error") + errors),
        "skipped": str(results.count("skipped")),
    }


def _list_hints(
    spec: ModelSpec, cell: Cell, project: Project, history: AcceptanceHistory
) -> tuple[str, ...]:
    """Return the locations, the acceptance and the commands of a red cell, one per line."""
    if cell.record is None or not cell.is_red:
        return ()
    hints = {
        "code": cell.record.failure_code,
        "promised at": str(spec.location),
        "in the model": ", ".join(find_model_lines(cell.record)),
        "accepted before": history.describe(cell),
        "run again": format_export_command(str(cell.id), project.command),
        "reproduce": format_repro_command(cell.record, project),
    }
    return tuple(f"{name}: {value}" for name, value in hints.items() if value)


def _format_details(cell: Cell, hints: Sequence[str]) -> str:
    """Return all facts about a failed case, because a CI system may show nothing else."""
    record = cell.record
    if record is None or record.status in (Status.SKIP, Status.UNAVAILABLE):
        return ""
    checks = (
        f"{result.check}: {result.status}: {clean_message(result.message)}"
        for result in record.checks
        if result.status is not Status.PASS
    )
    summary = clean_message(summarize_failure(record))
    parts = (cell.reason, *checks, summary, *hints, clean_detail(record.detail))
    return "\n".join(dict.fromkeys(part for part in parts if part))
