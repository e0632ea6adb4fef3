"""Requests about operators to a child process that imports torch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

import exporter
from exporter.cache.fingerprint import hash_source, read_package_state
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import write_text
from exporter.core.text import redact
from exporter.manifest import Manifest
from exporter.pipeline.folder.build_folder import BuildFolder
from exporter.processes.request import send_request
from exporter.tools.operators.protocol import OperatorTable, SurveyRequest, SurveyResponse

_CHILD = "exporter.tools.operators.child"
_MESSAGE_LENGTH = 2000
#: The table depends on these packages and on these modules of ours.
_PACKAGES = ("torch", "onnxscript")
_MODULES = (
    "tools/operators/protocol.py",
    "worker/torch_private/registries.py",
    "tools/operators/child/*.py",
)
#: Seconds. The table takes minutes, because each decomposed operator is exported.
_TABLE_TIMEOUT = 1800.0


def read_stored_table(manifest: Manifest) -> OperatorTable | None:
    """Return the stored table, or None if there is none for the installed tools."""
    try:
        return OperatorTable.model_validate_json(_table_path(manifest).read_bytes())
    except (OSError, ValidationError):
        return None


def build_table(manifest: Manifest, environment: Mapping[str, str]) -> OperatorTable:
    """Build the table in a child process and store it.

    Raises:
        ExporterError: ENVIRONMENT if torch is missing or its registries are unknown; BUG if the
            process fails.
    """
    result = send_request(_CHILD, "table", environment, timeout=_TABLE_TIMEOUT)
    try:
        if result.code:
            raise ValueError
        table = OperatorTable.model_validate_json(result.response or b"")
    except ValueError:
        is_environment = result.code == ExitCode.ENVIRONMENT
        reason = result.log if is_environment else result.describe_end()
        message = f"the table of operators cannot be built: {redact(reason, limit=_MESSAGE_LENGTH)}"
        code = ExitCode.ENVIRONMENT if is_environment else ExitCode.BUG
        raise ExporterError(code, message) from None
    path = _table_path(manifest)
    path.parent.mkdir(parents=True, exist_ok=True)
    for old in path.parent.glob("*.json"):
        old.unlink(missing_ok=True)
    write_text(path, table.to_json())
    return table


def run_survey(request: SurveyRequest, environment: Mapping[str, str]) -> SurveyResponse:
    """Return the operators that one model lacks; a failure of the process is a problem.

    Raises:
        ExporterError: ENVIRONMENT if torch cannot be imported.
    """
    result = send_request(_CHILD, request.to_json(), environment, timeout=request.spec.timeout)
    if result.code == ExitCode.ENVIRONMENT:
        raise ExporterError(ExitCode.ENVIRONMENT, redact(result.log, limit=_MESSAGE_LENGTH))
    if result.code == 0 and result.response:
        return SurveyResponse.model_validate_json(result.response)
    problem = redact(f"its process {result.describe_end()}", limit=_MESSAGE_LENGTH)
    return SurveyResponse(gaps=(), problem=problem)


def _table_path(manifest: Manifest) -> Path:
    package = Path(exporter.__path__[0])
    files = sorted(path for pattern in _MODULES for path in package.glob(pattern))
    state = [read_package_state(name) for name in _PACKAGES] + [hash_source(path) for path in files]
    digest = hashlib.sha256("\n".join(state).encode()).hexdigest()
    build = BuildFolder.from_project(manifest.project)
    return build.path / ".operators" / f"{digest[:16]}.json"
