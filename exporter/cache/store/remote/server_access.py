"""Choose the implementation that reads or writes the files at a URL."""

from __future__ import annotations

from exporter.cache.store.remote.http_files import HttpFiles
from exporter.cache.store.remote.remote_files import FsspecFiles, ReadableFiles, WritableFiles
from exporter.manifest.resolved.project import split_url


def open_readable(url: str) -> ReadableFiles:
    """Return the files below a URL for reading."""
    return HttpFiles(url) if split_url(url)[0] in ("http", "https") else FsspecFiles(url)


def open_writable(url: str) -> WritableFiles:
    """Return the files below a URL for writing."""
    return FsspecFiles(url)
