"""What a reviewer needs beside a finding: where it is, since when, and how to see it again.

In: findings, with the manifest, the records and the commit of the baseline. Out: a `FindingContext` for the
findings that are alike; the first speaks for all where there is one command for one cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from exporter.core.sanitize import join_lines
from exporter.gate import NOT_ACCEPTED, FindingKind, GateFinding
from exporter.manifest import Manifest
from exporter.records.record import Record
from exporter.report.rows.failure_clusters import list_locations
from exporter.report.rows.failure_reasons import Reasons, explain_failure
from exporter.report.rows.failures import format_export_command

_GREEN = ("pass", "xfail")


@dataclass(frozen=True, slots=True, kw_only=True)
class GateContext:
    """What is known of a project at the time of its gate."""

    manifest: Manifest
    records: Mapping[str, Record] = field(default_factory=dict)
    """By the text of their cell."""
    accepted_in: str = ""
    """The commit of the baseline and its day: `2a9548ebe314 of 2026-11-21`; empty: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingContext:
    """Empty fields where nothing is known."""

    places: tuple[str, ...] = ()
    """Where the models are promised: `manifests/vision.toml:14`."""
    lines: tuple[str, ...] = ()
    """Of the model: `models/vision.py:31`."""
    since: str = ""
    """`last green in 2a9548ebe314 of 2026-11-21`."""
    format_export_command: str = ""
    reproduce: str = ""
    """Shell commands."""


def find_context(findings: Sequence[GateFinding], known: GateContext) -> FindingContext:
    """The lead of findings that are alike."""
    first = findings[0]
    record = known.records.get(str(first.cell))
    command = known.manifest.project.command
    is_promised = any(spec.id == first.cell.model for spec in known.manifest.models)
    reasons = explain_failure(record, command) if record else Reasons()
    # Of a promise that asks less now, and of a cell that is gone, there is nothing to run.
    is_seen = record is not None and first.kind is not FindingKind.RELAXED and is_promised
    return FindingContext(
        places=list_locations([finding.cell for finding in findings], known.manifest),
        lines=tuple(join_lines(line) for line in reasons.lines) if is_seen else (),
        since=_since(first, known.accepted_in),
        rerun=format_export_command(str(first.cell), command) if is_promised else "",
        reproduce=reasons.reproduce if is_seen else "",
    )


def _since(finding: GateFinding, accepted_in: str) -> str:
    if finding.before == NOT_ACCEPTED:
        return "new: it was never accepted"
    if not accepted_in or finding.kind is FindingKind.RELAXED:
        return ""
    if finding.before.split(maxsplit=1)[0] in _GREEN:
        return f"last green in {accepted_in}"
    return f"accepted so in {accepted_in}: {join_lines(finding.before)}"
