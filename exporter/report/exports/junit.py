"""`reports/junit.xml`: the cells as test cases, for the pages of a CI system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from exporter.core.errors import Problem
from exporter.core.text import remove_controls
from exporter.manifest import Manifest, ModelSpec
from exporter.records.record import Status
from exporter.report.formats import clean_detail, clean_message
from exporter.report.rows.acceptance import AcceptanceHistory
from exporter.report.rows.cells import Cell, format_export_command
from exporter.report.rows.failures import explain_failure, summarize_failure

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
    """Return the XML document."""
    cells = [cell for each in by_model.values() for cell in each]
    counts = _count_results(cells, errors=len(manifest.problems))
    tree = Element("testsuites", {"name": "exporter", **counts})
    if manifest.problems:
        _add_problems(tree, manifest.problems)
    for spec in manifest.models:
        attributes = {"name": spec.id, **_count_results(by_model[spec.id])}
        suite = _add_element(tree, "testsuite", attributes)
        for cell in by_model[spec.id]:
            hints = _list_hints(spec, cell, manifest.project.command, history)
            _add_case(suite, spec, cell, hints)
    indent(tree)
    return f"{tostring(tree, encoding='unicode')}\n"


def _add_problems(tree: Element, problems: Sequence[Problem]) -> None:
    """Add an error for each problem of a manifest file, because its cells are unknown."""
    attributes = {"name": "manifests", **_count_results((), errors=len(problems))}
    suite = _add_element(tree, "testsuite", attributes)
    for problem in problems:
        attributes = {"classname": "manifests", "name": str(problem.location or "manifests")}
        case = _add_element(suite, "testcase", attributes)
        details = {"type": "error at source", "message": problem.message}
        _add_element(case, "error", details, str(problem))


def _add_element(parent: Element, tag: str, attributes: dict[str, str], text: str = "") -> Element:
    """Append an element with text from models, tools and manifests."""
    cleaned = {name: remove_controls(value) for name, value in attributes.items()}
    child = SubElement(parent, tag, cleaned)
    child.text = remove_controls(text) or None
    return child


def _get_result(cell: Cell) -> _CaseResult:
    return _RESULTS[cell.record.status] if cell.record else "skipped"


def _count_results(cells: Sequence[Cell], *, errors: int = 0) -> dict[str, str]:
    """Return the number of cases by their result, with further errors."""
    results = [_get_result(cell) for cell in cells]
    return {
        "tests": str(len(results) + errors),
        "failures": str(results.count("failure")),
        "errors": str(results.count("error") + errors),
        "skipped": str(results.count("skipped")),
    }


def _list_hints(
    spec: ModelSpec, cell: Cell, command: str, history: AcceptanceHistory
) -> tuple[str, ...]:
    """Return the locations, the acceptance and the commands of a red cell, one per line."""
    if cell.record is None or not cell.is_red:
        return ()
    reasons = explain_failure(cell.record, command)
    hints = {
        "promised at": str(spec.location),
        "in the model": ", ".join(reasons.lines),
        "accepted before": history.describe(cell),
        "run again": format_export_command(str(cell.id), command),
        "reproduce": reasons.repro_command,
    }
    return tuple(f"{name}: {value}" for name, value in hints.items() if value)


def _add_case(suite: Element, spec: ModelSpec, cell: Cell, hints: Sequence[str]) -> None:
    attributes = {"classname": spec.id, "name": str(cell.id), "file": spec.manifest}
    if cell.is_red:
        attributes["line"] = str(spec.line)
    case = _add_element(suite, "testcase", attributes)
    if result := _get_result(cell):
        message = cell.expected_reason or cell.reason
        attributes = {"type": cell.outcome, "message": message}
        _add_element(case, result, attributes, _format_details(cell, hints))


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
