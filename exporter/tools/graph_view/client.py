"""The graph of a file, rendered in a child process, because the import of onnx is slow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.text import redact
from exporter.processes.request import send_request
from exporter.tools.graph_view.protocol import GraphForm, GraphRequest

_MODULE = "exporter.tools.graph_view.child"
#: Seconds; files of several gigabytes take some minutes.
_TIMEOUT = 600.0
_MESSAGE_LENGTH = 2000


def render_graph(path: Path, form: GraphForm, environment: Mapping[str, str]) -> str:
    """Return the graph of an ONNX file.

    Raises:
        ExporterError: UNREADABLE if the file is not an ONNX file; BUG if the process fails.
    """
    request = GraphRequest(path=str(path.resolve()), form=form)
    result = send_request(_MODULE, request.to_json(), environment, timeout=_TIMEOUT)
    if result.code == 0 and result.response is not None:
        return result.response.decode("utf-8")
    is_unreadable = result.code == ExitCode.UNREADABLE
    reason = redact(result.log if is_unreadable else result.describe_end(), limit=_MESSAGE_LENGTH)
    code = ExitCode.UNREADABLE if is_unreadable else ExitCode.BUG
    raise ExporterError(code, f"{path.name}: cannot be shown: {reason}")
