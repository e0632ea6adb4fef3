"""Entry point of a worker process: `python -m exporter.worker JOB.json`."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from exporter.core.errors import ExitCode
from exporter.jobs.job import Job
from exporter.jobs.job_folder import JobFolder
from exporter.processes.landlock import restrict_process
from exporter.processes.lifetime import die_with_parent, prefer_for_oom_kill


def main() -> int:
    """Run the job on the command line; return only if the environment cannot run it."""
    job = Job.model_validate_json(Path(sys.argv[1]).read_bytes())
    die_with_parent(os.getppid())
    prefer_for_oom_kill()
    try:
        from exporter.worker.job_runner import run_job
        from exporter.worker.process.memory_limit import limit_memory
        from exporter.worker.process.output_log import flush_output
    except ImportError as error:
        sys.stderr.write(f"the worker cannot start: {error}\n")
        return int(ExitCode.ENVIRONMENT)
    if job.sandbox != "none":
        try:
            _enter_sandbox(Path(job.folder), job.sandbox)
        except OSError as error:
            text = 'use another system, or set `sandbox = "none"` in [tool.exporter]'
            sys.stderr.write(f"sandbox: {error.strerror}; {text}\n")
            return int(ExitCode.ENVIRONMENT)
    limit_memory(job.spec)
    run_job(job, traces_files=True)
    flush_output()
    # All results are written. Errors of libraries at interpreter shutdown are no crash of a cell.
    os._exit(int(ExitCode.OK))


def _enter_sandbox(folder: Path, sandbox: str) -> None:
    """Leave only the folder of the job, a folder for temporary files and devices writable."""
    # Beside the job's folder: the private folder of the run is removed with it.
    temporary = JobFolder(folder).temporary
    temporary.mkdir(exist_ok=True)
    tempfile.tempdir = str(temporary)
    os.putenv("TMPDIR", tempfile.tempdir)  # for native code and child processes
    if sandbox == "landlock":  # Bubblewrap restricted the process before its start
        restrict_process((folder, temporary, Path("/dev")))


if __name__ == "__main__":
    sys.exit(main())
