"""Entry of a worker process: `python -m exporter.worker JOB.json`.

In: the path of a job. Out: its records and files; exit code 0 when all of it was done, 4 where the
environment cannot do it. Anything else is a crash, of the model or ours, and the log says which.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

from exporter.errors import ExitCode
from exporter.job import Job

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Reads the job named on the command line and does it; returns only where it cannot."""
    job = Job.model_validate_json(Path(sys.argv[1]).read_bytes())
    die_with_parent(os.getppid())
    go_first()
    try:
        from exporter.worker.console import flushed
        from exporter.worker.drive import drive
        from exporter.worker.limit import limit_memory
    except ImportError as missing:
        sys.stderr.write(f"the worker cannot start: {missing}\n")
        return int(ExitCode.ENVIRONMENT)
    limit_memory(job.spec)
    drive(job)
    flushed()
    # Everything is written. What libraries do while Python takes itself down is no crash of a cell.
    os._exit(int(ExitCode.OK))


def die_with_parent(parent: int) -> None:
    """Linux: the kernel ends this process when its parent ends, however that ends."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above
        os._exit(int(ExitCode.BUG))


def outlive_parent() -> None:
    """Takes `die_with_parent` back."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0)


def go_first() -> None:
    """Linux: where memory runs out the kernel ends this process, and not the one that started it.

    https://man7.org/linux/man-pages/man5/proc_pid_oom_score_adj.5.html
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


if __name__ == "__main__":
    sys.exit(main())
