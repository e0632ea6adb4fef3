"""Facts for the reviewer of a finding: its locations, its acceptance, and commands to repeat it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from exporter.core.text import join_lines
from exporter.gate import NOT_ACCEPTED, FindingKind, GateFinding
from exporter.manifest import Manifest
from exporter.records.record import CellId, Record
from exporter.report.rows.cells import format_export_command
from exporter.report.rows.failure_clusters import list_locations
from exporter.report.rows.failure_reasons import FailureReasons, explain_failure

_GREEN = ("pass", "xfail")
#: Lines of a difference on a page.
_DIFF_LINES = 60
_DIFF_HEADERS = ("diff --git ", "index ", "--- ", "old mode ", "new mode ")


@dataclass(frozen=True, slots=True, kw_only=True)
class GateContext:
    """The state of a project at the time of its gate."""

    manifest: Manifest
    records: Mapping[CellId, Record] = field(default_factory=dict)
    accepted_in: str = ""
    """Commit and date of the baseline: `2a9548ebe314 of 2026-11-21`; empty if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingContext:
    """The facts about a finding; a field is empty if its content is unknown."""

    settings: str = ""
    """The key of the gate's policy: `pyproject.toml:12`."""
    locations: tuple[str, ...] = ()
    """The entries of the models: `manifests/vision.toml:14`."""
    lines: tuple[str, ...] = ()
    """Lines of the model: `models/vision.py:31`."""
    acceptance: str = ""
    """`last green in 2a9548ebe314 of 2026-11-21`."""
    export_command: str = ""
    repro_command: str = ""
    diff: str = ""
    """The difference of the model's files since the acceptance."""


def find_context(findings: Sequence[GateFinding], context: GateContext) -> FindingContext:
    """Return the facts about equal findings."""
    first = findings[0]
    if first.setting:  # a failure of its cells has a finding of its own
        return FindingContext(settings=str(first.setting.location))
    record = context.records.get(first.cell)
    command = context.manifest.project.command
    is_promised = any(spec.id == first.cell.model for spec in context.manifest.models)
    reasons = explain_failure(record, command) if record else FailureReasons()
    # A relaxed promise and a removed cell have no failure to show.
    has_failure = record is not None and first.kind is not FindingKind.RELAXED and is_promised
    return FindingContext(
        locations=list_locations([finding.cell for finding in findings], context.manifest),
        lines=tuple(join_lines(line) for line in reasons.lines) if has_failure else (),
        acceptance=_describe_acceptance(first, context.accepted_in),
        export_command=format_export_command(str(first.cell), command) if is_promised else "",
        repro_command=reasons.repro_command if has_failure else "",
        diff=shorten_diff(first.cause.diff, _DIFF_LINES) if first.cause else "",
    )


def shorten_diff(diff: str, limit: int) -> str:
    """Return the changed lines of a difference with their context, at most `limit` lines."""
    lines = [line for line in diff.splitlines() if not line.startswith(_DIFF_HEADERS)]
    more = len(lines) - limit
    return "\n".join(lines[:limit]) + (f"\n… and {more} more lines" if more > 0 else "")


def _describe_acceptance(finding: GateFinding, accepted_in: str) -> str:
    if finding.before == NOT_ACCEPTED:
        return "new: it was never accepted"
    if not accepted_in or finding.kind is FindingKind.RELAXED:
        return ""
    if finding.before.split(maxsplit=1)[0] in _GREEN:
        return f"last green in {accepted_in}"
    return f"accepted in {accepted_in}: {join_lines(finding.before)}"
