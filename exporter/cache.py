"""Whether a stored record still holds, or why its cell must run.

In: a stored `Record` and today's fingerprint. Out: an empty text, or the reason in a line.

This decides which earlier records a report and a gate may still show after a run of some cells. A
selected cell is run in any case.
"""

from __future__ import annotations

from pathlib import Path

from exporter.fingerprint import file_digest
from exporter.record import Record

_REASONS = {
    "entry": "its manifest entry changed",
    "devices": "the definition of its devices changed",
    "tools": "the tools changed",
}


def why_stale(record: Record, fingerprint: dict[str, str], root: Path) -> str:
    """Why the record no longer speaks for its cell; empty where it does.

    Args:
        record: As it was stored.
        fingerprint: Of the model today.
        root: The project's root, which the record's sources are relative to.
    """
    for part, digest in fingerprint.items():
        if record.fingerprint.get(part) != digest:
            return _REASONS[part]
    for source in record.sources:
        if file_digest(root / source.file) != source.sha256:
            return f"{source.file} changed"
    return ""
