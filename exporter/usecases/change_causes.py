"""Find the edits that caused the findings of a gate or the red cells of an export."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from exporter.core.git import diff_files
from exporter.gate import Cause, find_cause
from exporter.manifest import Manifest
from exporter.records.record import CellId, Record


def find_causes(
    manifest: Manifest,
    records: Iterable[Record],
    tools: tuple[Mapping[str, str], Mapping[str, str]],
    commit: str,
    environment: Mapping[str, str],
) -> dict[CellId, Cause]:
    """Return the cause for each record, if one is known.

    Args:
        manifest: The current manifests.
        records: The records to explain.
        tools: The versions of the accepted results and of the current ones.
        commit: The accepted state; "" if it is unknown, so only tools are compared.
        environment: The environment variables for git.
    """
    records = tuple(records)
    files = {source.file for record in records for source in record.sources}
    files |= {spec.manifest for spec in manifest.models}
    root = Path(manifest.project.root)
    diffs = diff_files(root, commit, files, environment) if commit and records else {}
    causes = {each.cell: find_cause(each, manifest, tools, diffs) for each in records}
    return {cell: cause for cell, cause in causes.items() if cause}
