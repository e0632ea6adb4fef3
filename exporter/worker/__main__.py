"""Entry point of a worker process: `python -m exporter.worker JOB.json`."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import exporter.worker.dependencies.opened_files  # noqa: F401 - before torch sets variables
from exporter.core.errors import ExitCode
from exporter.core.import_object import ignore_project_bytecode
from exporter.jobs import Job, JobFolder
from exporter.processes.lifetime import die_with_parent, prefer_for_oom_kill
from exporter.processes.worker_variables import KERNEL_CACHES
from exporter.worker.process import landlock
from exporter.worker.process.setup import flush_output, limit_memory

#: Characters of a folder for temporary files. The path of a socket may have 107 characters, and
#: `multiprocessing` adds 32.
_SOCKET_LIMIT = 75


def main() -> int:
    """Run the job on the command line; return only if the environment cannot run it."""
    job = Job.model_validate_json(Path(sys.argv[1]).read_bytes())
    die_with_parent(os.getppid())
    prefer_for_oom_kill()
    ignore_project_bytecode()
    try:
        # It imports torch and onnx, which may be missing.
        from exporter.worker.job_runner import run_job
    except ImportError as error:
        sys.stderr.write(f"the worker cannot start: {error}\n")
        return int(ExitCode.ENVIRONMENT)
    temporary = JobFolder(Path(job.folder)).temporary
    if job.sandbox != "none" or len(str(temporary)) <= _SOCKET_LIMIT:
        temporary.mkdir(exist_ok=True)
        # Files of other programs are no dependencies, and a model's own files do not remain.
        tempfile.tempdir = os.environ["TMPDIR"] = str(temporary)
    # Inside the sandbox, no file outlives the job.
    kernels = job.kernels if job.sandbox == "none" else temporary
    for name in KERNEL_CACHES:
        (kernels / name).mkdir(parents=True, exist_ok=True)  # PyTorch creates no folder
        os.environ[name] = str(kernels / name)
    if job.sandbox == "landlock":
        try:
            writable = (Path(job.folder), temporary, Path("/dev"))
            landlock.restrict_process(writable)
        except OSError as error:
            text = 'use another system, or set `sandbox = "none"` in [tool.exporter]'
            sys.stderr.write(f"sandbox: {error.strerror}; {text}\n")
            return int(ExitCode.ENVIRONMENT)
    limit_memory(job.spec)
    run_job(job, traces_files=True)
    flush_output()
    # All results are written. Errors of libraries at interpreter shutdown are no crash of a cell.
    os._exit(int(ExitCode.OK))


if __name__ == "__main__":
    sys.exit(main())
