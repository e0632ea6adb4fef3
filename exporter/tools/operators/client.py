"""Asks torch what its exporters can convert, in a process of its own.

In: the project, and a `SurveyRequest` for a question about one model. Out: the `OperatorCounts`, kept in
the build folder for as long as the tools are the same; or `SurveyResponse`.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

import exporter
from exporter.build.folder.build_folder import BuildFolder
from exporter.cache.fingerprint import file_digest, read_package_state
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.sanitize import redact
from exporter.jobs.job_folder import write_json
from exporter.manifest import Manifest
from exporter.tools.operators.protocol import SurveyResponse, OperatorTable, SurveyRequest

_COMMAND = (sys.executable, "-P", "-m", "exporter.tools.operators.child")
#: Of a failed process's output, its end says most.
_TAIL = 2000
#: What the table is made from; our own part of it too.
_PACKAGES = ("torch", "onnxscript")
_MODULES = (
    "tools/operators/protocol.py",
    "worker/torch_private/registries.py",
    "tools/operators/child/*.py",
)
#: Seconds that the table may take: each operator that is taken apart is exported.
_TABLE_SECONDS = 1800.0


def read_stored_table(manifest: Manifest) -> OperatorTable | None:
    """The table of an earlier call with the same tools; None where there is none."""
    return _read(_table_path(manifest))


def build_table(manifest: Manifest, environment: Mapping[str, str]) -> OperatorTable:
    """Has the table made, and keeps it.

    Raises:
        ExporterError: ENVIRONMENT, where torch is missing or its registries are not known; BUG,
            where the process fails.
    """
    path = _table_path(manifest)
    path.parent.mkdir(parents=True, exist_ok=True)
    code, said = _run("table", path, environment, _TABLE_SECONDS)
    table = _read(path) if code == 0 else None
    if table is None:
        kind = ExitCode.ENVIRONMENT if code == ExitCode.ENVIRONMENT else ExitCode.BUG
        raise ExporterError(kind, f"the table of operators cannot be made: {said or code}")
    for old in path.parent.glob("*.json"):
        if old != path:
            old.unlink(missing_ok=True)
    return table


def run_survey(question: SurveyRequest, environment: Mapping[str, str]) -> SurveyResponse:
    """Asks about one model; whatever becomes of its process is an answer."""
    with tempfile.TemporaryDirectory() as folder:
        request, out = Path(folder) / "survey.json", Path(folder) / "lacking.json"
        write_json(request, question)
        code, said = _run(str(request), out, environment, question.spec.timeout)
        if code == 0:
            return SurveyResponse.model_validate_json(out.read_bytes())
    if code == ExitCode.ENVIRONMENT:
        raise ExporterError(ExitCode.ENVIRONMENT, said)
    last = said.splitlines()[-1] if said else ""
    return SurveyResponse(found=(), problem=f"{_ending(code, question.spec.timeout)}{last and ': '}{last}")


def _read(path: Path) -> OperatorTable | None:
    try:
        return OperatorTable.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def _ending(code: int | None, seconds: float) -> str:
    if code is None:
        return f"not done after {seconds:.0f} seconds"
    how = f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
    return f"its process {how}"


def _run(
    request: str, out: Path, environment: Mapping[str, str], seconds: float
) -> tuple[int | None, str]:
    """The exit code, None where the time was up, and the end of what was said on stderr."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*_COMMAND, request, str(out)],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
        code: int | None = None
        try:
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(timeout=seconds)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.seek(0, os.SEEK_END)
        log.seek(max(0, log.tell() - _TAIL))
        text = log.read().decode("utf-8", errors="replace")
    return code, redact(text, limit=_TAIL).strip()


def _table_path(manifest: Manifest) -> Path:
    package = Path(exporter.__path__[0])
    files = sorted(path for pattern in _MODULES for path in package.glob(pattern))
    made_from = [read_package_state(name) for name in _PACKAGES] + [file_digest(path) for path in files]
    digest = hashlib.sha256("\n".join(made_from).encode()).hexdigest()
    return BuildFolder.from_project(manifest.project).path / ".operators" / f"{digest[:16]}.json"
