"""A preload of `dask worker`: jobs end at once or sleep, so that only the cluster is measured.

Input: `BENCH_JOBS`. With `sleep`, the worker processes run `sleeping_worker.py`. With `none`, there
is no worker process, and each job replies with one record.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from exporter.cluster import host_run
from exporter.cluster.archives import Archive, HostReply, HostRequest, list_results
from exporter.cluster.host_run import Host
from exporter.jobs import JobFolder, write_json
from exporter.pipeline.engine import ExitKind
from exporter.processes import ForkServerStarter
from exporter.records.record import Record, Status

_SCRIPT = Path(__file__).with_name("sleeping_worker.py")


def start_sleeping(variables: Mapping[str, str]) -> ForkServerStarter:
    """Return a starter of sleeping workers."""
    command = [sys.executable, "-m", "exporter.worker.fork_server", str(_SCRIPT)]
    return ForkServerStarter(variables, command)


def reply_at_once(request: HostRequest, host: Host) -> bytes:
    """Return a finished job with one record for each cell."""
    host.report(None)
    with tempfile.TemporaryDirectory() as path, tempfile.TemporaryFile() as file:
        folder = JobFolder(Path(path))
        for cell in request.job.cells():
            fingerprint = request.job.make_fingerprint(cell)
            record = Record(cell=cell, status=Status.SKIP, message="none", fingerprint=fingerprint)
            write_json(folder.record(cell), record)
        archive = Archive.pack(file, folder.path, list_results(folder))
        part = b"".join(part for _, part in archive.read_parts())
    return HostReply(
        host=host.address, exit_kind=ExitKind.EXITED, size=archive.size, sha256=archive.sha256
    ).pack(part)


if os.environ.get("BENCH_JOBS") == "none":
    host_run.run_request = reply_at_once
elif os.environ.get("BENCH_JOBS") == "sleep":
    host_run.make_host_starter = start_sleeping
