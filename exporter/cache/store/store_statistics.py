"""Count the lookups, restores and transfers of a store in one run."""

from __future__ import annotations

from exporter.core.frozen_model import FrozenModel


class StoreStatistics(FrozenModel):
    """The counts of one run. A cell is a hit in one place or a miss."""

    local_hits: int = 0
    remote_hits: int = 0
    misses: int = 0
    rejected: int = 0
    """Entries of the remote store that are damaged or not signed with the key."""
    restored_bytes: int = 0
    """The size of the files of restored cells, in the build folder."""
    downloaded_files: int = 0
    downloaded_bytes: int = 0
    failed_downloads: int = 0
    """Files that are missing, damaged or not received within the time limit."""
    uploaded_cells: int = 0
    uploaded_files: int = 0
    """Files that the remote store did not have."""
    uploaded_bytes: int = 0
    failed_uploads: int = 0
    """Cells that are not in the remote store because of an error or the time limit."""
    waited_seconds: float = 0.0
    """The time that the run waited for the remote store."""
