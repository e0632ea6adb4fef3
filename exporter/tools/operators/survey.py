"""The survey of a model: the operators that its exporters lack, from a child process with torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.frozen_model import FrozenModel, Items
from exporter.core.text import redact
from exporter.manifest import ModelSpec
from exporter.processes.request import send_request
from exporter.records.record import MissingOperator, Route

_CHILD = "exporter.tools.operators.child"
_MESSAGE_LENGTH = 2000


class SurveyRequest(FrozenModel):
    """A request for the operators of a model that each exporter lacks."""

    spec: ModelSpec
    root: str
    """The project's root, absolute."""
    routes: dict[int, Route]
    """The route of each opset."""


class OperatorGaps(FrozenModel):
    """The operators that one exporter lacks at one opset."""

    exporter: Literal["dynamo", "torchscript"]
    opset: int
    missing: Items[MissingOperator] = ()
    problem: str = ""
    """The reason if the operators are unknown: the capture failed, or the conversion failed for
    another reason."""


class SurveyResponse(FrozenModel):
    """The result of a `SurveyRequest`."""

    gaps: Items[OperatorGaps]
    problem: str = ""
    """The reason if the model cannot be built."""


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
