"""The measurement of operators in a child process."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from pydantic import ValidationError

from exporter.cache.fingerprint import read_package_state
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.text import redact
from exporter.manifest import Manifest
from exporter.manifest.syntax.opsets import NATIVE_OPSETS
from exporter.pipeline.folder.build_folder import BuildFolder
from exporter.processes.request import send_request
from exporter.tools.operator_calls.function_files import locate_function
from exporter.tools.operator_calls.protocol import MeasureRequest, MeasureResponse, TestedFunction
from exporter.tools.operator_calls.support_table import (
    MEASUREMENT_FILE,
    OperatorMeasurement,
    summarize_calls,
)

_CHILD = "exporter.tools.operator_calls.child"
_PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime")
#: Increase it if calls are selected, exported or compared in another way.
_METHOD = 1
#: The first opset that both exporters write.
_COMMON_OPSET = 18
_MESSAGE_LENGTH = 2000

OPSETS = {name: (_COMMON_OPSET, last) for name, (_, last) in NATIVE_OPSETS.items()}


def read_measurement(manifest: Manifest) -> OperatorMeasurement | None:
    """Return the measurement beside the reports, or None if there is none.

    Raises:
        ExporterError: UNREADABLE if the file has another format.
    """
    path = locate_measurement(manifest)
    try:
        return OperatorMeasurement.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError):
        name = f"{manifest.project.reports}/{MEASUREMENT_FILE}"
        message = f"{name}: cannot be read; write it again with `exporter ops --measure`"
        raise ExporterError(ExitCode.UNREADABLE, message) from None


def locate_measurement(manifest: Manifest) -> Path:
    """Return the path of the measurement."""
    return Path(manifest.project.root) / manifest.project.reports / MEASUREMENT_FILE


def measure_operators(
    manifest: Manifest,
    names: Sequence[str],
    environment: Mapping[str, str],
    on_progress: Callable[[int, int], None],
) -> OperatorMeasurement:
    """Measure functions that the build folder has no results of.

    Args:
        manifest: The project.
        names: Functions of torch's tests, such as `nn.functional.conv2d`; empty: all.
        environment: Variables of the process.
        on_progress: Called with the number of finished functions, and of all that run.

    Raises:
        ExporterError: ENVIRONMENT if torch's tests cannot be imported; NOTHING_SELECTED if a name
            is unknown; BUG if the process fails.
    """
    folder = _prepare_folder(manifest)
    request = MeasureRequest(
        folder=str(folder.resolve()),
        functions=tuple(names),
        torchscript=OPSETS["torchscript"],
        dynamo=OPSETS["dynamo"],
    )

    def read_line(line: str) -> None:
        words = line.split()
        if len(words) == 3 and words[0] == "progress":
            on_progress(int(words[1]), int(words[2]))

    result = send_request(_CHILD, request.to_json(), environment, on_line=read_line)
    if result.code != ExitCode.OK or not result.response:
        is_environment = result.code == ExitCode.ENVIRONMENT
        reason = result.log if is_environment else result.describe_end()
        message = f"operators cannot be measured: {redact(reason, limit=_MESSAGE_LENGTH)}"
        code = ExitCode.ENVIRONMENT if is_environment else ExitCode.BUG
        raise ExporterError(code, message)
    response = MeasureResponse.model_validate_json(result.response)
    if response.problems:
        raise ExporterError(ExitCode.NOTHING_SELECTED, "\n".join(response.problems))
    functions = [
        TestedFunction.model_validate_json(locate_function(folder, name).read_bytes())
        for name in response.functions
    ]
    columns = [f"{name} {opset}" for name, opsets in OPSETS.items() for opset in opsets]
    return summarize_calls(functions, columns, {name: version(name) for name in _PACKAGES})


def _prepare_folder(manifest: Manifest) -> Path:
    """Create the folder of the calls with the installed tools, and remove those of others."""
    state = [f"{_METHOD} {OPSETS}", *(read_package_state(name) for name in _PACKAGES)]
    digest = hashlib.sha256("\n".join(state).encode()).hexdigest()
    build = BuildFolder.from_project(manifest.project)
    folder = build.path / ".operators" / f"calls-{digest[:16]}"
    for old in folder.parent.glob("calls-*"):
        if old != folder:
            shutil.rmtree(old, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
