"""Probes of the environment in a child process, because an import or a runtime may crash."""

from __future__ import annotations

from collections.abc import Mapping

from exporter.core.text import redact
from exporter.processes.request import send_request
from exporter.tools.doctor.protocol import ProbeRequest, ProbeResponse

_MODULE = "exporter.tools.doctor.child"
#: Seconds: the first start of the libraries of a GPU is slow.
_TIMEOUT = 120.0
_MESSAGE_LENGTH = 300


def run_probe(request: ProbeRequest, environment: Mapping[str, str]) -> ProbeResponse:
    """Return the response of the child process, or a problem if the process fails."""
    result = send_request(_MODULE, request.to_json(), environment, timeout=_TIMEOUT)
    try:
        return ProbeResponse.model_validate_json(result.response or b"")
    except ValueError:
        message = redact(f"its process {result.describe_end()}", limit=_MESSAGE_LENGTH)
        return ProbeResponse(problem=message)
