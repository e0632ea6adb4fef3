"""The command `ops`: the operators of a model that an exporter lacks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from exporter.core.frozen_model import FrozenModel, Items
from exporter.manifest import ModelSpec
from exporter.processes.child_call import ChildFailure, call_in_child
from exporter.records.record import MissingOperator, Route

_FUNCTION = "exporter.plugins.ops.child:find_operator_gaps"


class OperatorGaps(FrozenModel):
    """The operators that one exporter lacks at one opset."""

    exporter: Literal["dynamo", "torchscript"]
    opset: int
    missing: Items[MissingOperator] = ()
    problem: str = ""
    """The reason if the operators are unknown: the capture failed, or the conversion failed for
    another reason."""


class SurveyResponse(FrozenModel):
    """The operators that each exporter lacks at each opset."""

    gaps: Items[OperatorGaps]
    problem: str = ""
    """The reason if the model cannot be built."""


def run_survey(
    spec: ModelSpec, root: Path, routes: Mapping[int, Route], environment: Mapping[str, str]
) -> SurveyResponse:
    """Return the operators that one model lacks; a failure of the process is a problem."""
    arguments = {"spec": spec, "root": root, "routes": routes}
    try:
        return call_in_child(
            _FUNCTION, arguments, SurveyResponse, environment, seconds=spec.timeout
        )
    except ChildFailure as failure:
        return SurveyResponse(gaps=(), problem=f"its process {failure}")
