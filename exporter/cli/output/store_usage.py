"""Show the use of the store in one export."""

from __future__ import annotations

from exporter.cache.store import StoreStatistics
from exporter.cli.output.terminal import print_line
from exporter.core.files import write_text
from exporter.core.text import format_bytes, pluralize
from exporter.manifest import Project
from exporter.pipeline import BuildFolder

#: The file name in the build folder.
_FILE = "store.json"


def show_statistics(project: Project, statistics: StoreStatistics | None) -> None:
    """Print the counts, and write them to `store.json` in the build folder.

    Raises:
        ExporterError: if the file cannot be written.
    """
    counts = statistics or StoreStatistics()
    write_text(BuildFolder.from_project(project).path / _FILE, counts.to_json())
    if statistics is None:
        print_line("store: off")
        return
    hits = f"{counts.local_hits + counts.remote_hits} hits ({counts.remote_hits} remote)"
    restored = format_bytes(counts.restored_bytes)
    print_line(f"store: {hits}, {counts.misses} misses, {restored} restored")
    if counts.downloaded_files or counts.failed_downloads or counts.rejected:
        size = format_bytes(counts.downloaded_bytes)
        line = f"downloaded: {pluralize(counts.downloaded_files, 'file')} ({size})"
        print_line(f"{line}, {counts.failed_downloads} failed, {counts.rejected} rejected")
    if counts.uploaded_cells or counts.failed_uploads:
        cells = pluralize(counts.uploaded_cells, "cell")
        files = pluralize(counts.uploaded_files, "new file")
        size = format_bytes(counts.uploaded_bytes)
        print_line(f"uploaded: {cells}, {files} ({size}), {counts.failed_uploads} failed")
    if counts.waited_seconds:
        print_line(f"waited for the remote store: {counts.waited_seconds:.1f} s")
