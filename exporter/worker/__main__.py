"""Entry of a worker process: `python -m exporter.worker JOB.json`.

In: the path of a job. Out: its records and files; exit code 0 when all of it was done, 4 where the
environment cannot do it. Anything else is a crash, of the model or ours, and the log says which.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from exporter.core.errors import ExitCode
from exporter.jobs.job import Job
from exporter.worker.process.lifetime import die_with_parent, prefer_for_oom_kill


def main() -> int:
    """Reads the job named on the command line and does it; returns only where it cannot."""
    job = Job.model_validate_json(Path(sys.argv[1]).read_bytes())
    die_with_parent(os.getppid())
    prefer_for_oom_kill()
    try:
        from exporter.worker.job_runner import run_job
        from exporter.worker.process.memory_limit import limit_memory
        from exporter.worker.process.output_log import flush_output
    except ImportError as missing:
        sys.stderr.write(f"the worker cannot start: {missing}\n")
        return int(ExitCode.ENVIRONMENT)
    limit_memory(job.spec)
    run_job(job)
    flush_output()
    # Everything is written. What libraries do while Python takes itself down is no crash of a cell.
    os._exit(int(ExitCode.OK))


if __name__ == "__main__":
    sys.exit(main())
