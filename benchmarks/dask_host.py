"""A preload of `dask worker`: jobs end at once or sleep, so that only the cluster is measured.

Input: `BENCH_JOBS`. With `sleep`, the worker processes run `sleeping_worker.py`. With `none`, there
is no worker process, and each job replies with one record.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from exporter.jobs.job import Job
from exporter.pipeline.cluster import host_run
from exporter.pipeline.cluster.host_folder import HostFolder, hash_content
from exporter.pipeline.cluster.protocol import HostReply, HostRequest, SentFile
from exporter.pipeline.engine import ExitKind
from exporter.processes import ForkServerStarter
from exporter.records.record import Record, Status

_SCRIPT = Path(__file__).with_name("sleeping_worker.py")


def start_sleeping(variables: Mapping[str, str], _sandbox: str) -> ForkServerStarter:
    """Return a starter of sleeping workers."""
    command = [sys.executable, "-m", "exporter.worker.fork_server", str(_SCRIPT)]
    return ForkServerStarter(variables, command)


def reply_at_once(
    request: HostRequest,
    _folder: HostFolder,
    host: str,
    report: Callable[[str, str], None],
    _is_cancelled: Callable[[], bool],
) -> HostReply:
    """Return a finished job with one record for each cell."""
    job = Job.model_validate_json(request.job)
    report("started", "")
    files = []
    for cell in job.cells():
        record = Record(
            cell=cell, status=Status.SKIP, message="none", fingerprint=job.make_fingerprint(cell)
        )
        content = record.to_json().encode()
        name = f"records/{cell.opset}.{cell.device}.json"
        digest = hash_content(content)
        files.append(SentFile(name=name, sha256=digest, size=len(content), content=content))
    return HostReply(host=host, exit_kind=ExitKind.EXITED, files=tuple(files))


if os.environ.get("BENCH_JOBS") == "none":
    host_run.run_request = reply_at_once
elif os.environ.get("BENCH_JOBS") == "sleep":
    host_run.make_host_starter = start_sleeping
