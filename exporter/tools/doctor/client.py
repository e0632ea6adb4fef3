"""Asks a process of its own what can be loaded and run: that it dies is an answer too.

In: a `Question`. Out: an `ProbeResponse`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from exporter.core.sanitize import redact
from exporter.jobs.job_folder import write_value
from exporter.tools.doctor.protocol import ProbeResponse, Question

_COMMAND = (sys.executable, "-P", "-m", "exporter.tools.doctor.child")
#: Seconds: the first start of a GPU's libraries takes some.
_PATIENCE = 120.0
#: Of what a failed process said, its last line says most.
_TAIL = 300


def ask(question: Question, environment: Mapping[str, str]) -> ProbeResponse:
    """Puts one question; whatever becomes of the process is told as a problem."""
    with tempfile.TemporaryDirectory() as folder:
        request, out, log = (Path(folder) / name for name in ("question", "answer", "log"))
        write_value(request, question)
        ended = _run(request, out, log, environment)
        try:
            return ProbeResponse.model_validate_json(out.read_bytes())
        except (OSError, ValueError):
            lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            last = redact(lines[-1], limit=_TAIL) if lines else ""
            return ProbeResponse(problem=f"its process {ended}{': ' if last else ''}{last}")


def _run(request: Path, out: Path, log: Path, environment: Mapping[str, str]) -> str:
    """How the process ended."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*_COMMAND, str(request), str(out)],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            return f"was not done after {_PATIENCE:.0f} s"
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code < 0:
        with suppress(ValueError):
            return f"died of {signal.Signals(-code).name}"
    return f"ended with {code}"
