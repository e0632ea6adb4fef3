"""Print the use of the store."""

from __future__ import annotations

from pathlib import Path

from exporter.cli.output.terminal import print_line
from exporter.core.files import write_text
from exporter.core.text import format_bytes, pluralize
from exporter.manifest import Project
from exporter.pipeline.decisions import StoreStatistics

#: The file name in the build folder.
_FILE = "store.json"


def show_statistics(project: Project, statistics: StoreStatistics | None) -> None:
    """Print the counts, and write them to `store.json` in the build folder.

    Raises:
        ExporterError: if the file cannot be written.
    """
    counts = statistics or StoreStatistics()
    write_text(Path(project.root) / project.build / _FILE, counts.to_json())
    if statistics is None:
        print_line("store: off")
        return
    hits = f"{counts.local_hits + counts.remote_hits} hits ({counts.remote_hits} remote)"
    restored = format_bytes(counts.restored_bytes)
    print_line(f"store: {hits}, {counts.misses} misses, {restored} restored")
    if counts.waited_seconds:
        received, sent = map(format_bytes, (counts.downloaded_bytes, counts.uploaded_bytes))
        line = f"remote store: {received} downloaded, {sent} uploaded for"
        cells = pluralize(counts.uploaded_cells, "cell")
        print_line(f"{line} {cells}, waited {counts.waited_seconds:.1f} s")
