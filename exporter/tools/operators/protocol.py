"""What the exporters can convert: of torch as a whole, and of one model.

In: nothing. Out: `OperatorCounts`, a row for each ATen operator; `SurveyRequest`, the question what a model
uses that its exporters lack, and `SurveyResponse`, the answer. JSON between the parent and a process that
imports torch.
"""

from __future__ import annotations

from typing import Literal

from exporter.core.frozen_model import FrozenModel, Items
from exporter.manifest import ModelSpec
from exporter.records.record import MissingOperator, Route


class OperatorRow(FrozenModel):
    """An operator, or those of its overloads that the exporters treat alike."""

    operator: str
    """`aten::add`."""
    overloads: Items[str]
    """All of them: `Tensor`, `Scalar`; the one without a name is `default`."""
    torchscript: Items[int] = ()
    """Opsets with a symbolic function that does not merely refuse; it sees no overloads."""
    translated: Items[int] = ()
    """Opsets at which dynamo has a translation."""
    decomposed: Items[int] = ()
    """Opsets at which dynamo has none, and a call of the operator was seen to be taken apart into
    operators with one."""
    apart: Items[int] = ()
    """Opsets at which torch takes it apart, and no call was seen to end in translated ones."""

    @property
    def is_convertible(self) -> bool:
        """Whether some exporter has a way at some opset."""
        return bool(self.torchscript or self.translated or self.decomposed)


class OperatorTable(FrozenModel):
    """Every ATen operator of one torch."""

    format: Literal[1] = 1
    tools: dict[str, str]
    """Versions of what it was read from: torch and onnxscript."""
    torchscript: Items[int]
    """The opsets that TorchScript was asked for."""
    dynamo: Items[int]
    rows: Items[OperatorRow]
    """Sorted by operator."""
    folded: int
    """Overloads that have no row: in place or with `out`, exporters make them the plain one."""


class SurveyRequest(FrozenModel):
    """Which operators of a model each exporter lacks: the question."""

    spec: ModelSpec
    root: str
    """The project's root, absolute."""
    routes: dict[int, Route]
    """By opset: the exporter that makes its file."""


class OperatorGaps(FrozenModel):
    """What one exporter lacks at one opset."""

    exporter: Literal["dynamo", "torchscript"]
    opset: int
    missing: Items[MissingOperator] = ()
    problem: str = ""
    """Why it could not be found out: the model cannot be captured, or converting it fails for
    another reason."""


class SurveyResponse(FrozenModel):
    """The answer to a `SurveyRequest`."""

    found: Items[OperatorGaps]
    problem: str = ""
    """Why nothing could be found out: the model cannot be built."""
