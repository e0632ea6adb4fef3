"""The operators that exporters support: of torch as a whole, and of one model."""

from __future__ import annotations

from typing import Literal

from exporter.core.frozen_model import FrozenModel, Items
from exporter.manifest import ModelSpec
from exporter.records.record import MissingOperator, Route


class OperatorRow(FrozenModel):
    """An operator, or a group of its overloads with the same support."""

    operator: str
    """`aten::add`."""
    overloads: Items[str]
    """All overloads of the row: `Tensor`, `Scalar`, and `default` for the one without a name."""
    torchscript: Items[int] = ()
    """Opsets with a symbolic function that does more than refuse; it ignores overloads."""
    translated: Items[int] = ()
    """Opsets with a translation of dynamo."""
    decomposed: Items[int] = ()
    """Opsets without a translation, at which a call was decomposed into translated operators."""
    unproved: Items[int] = ()
    """Opsets at which torch decomposes it, but no tested call had only translated operators."""

    @property
    def is_convertible(self) -> bool:
        """True if an exporter can convert it at one opset or more."""
        return bool(self.torchscript or self.translated or self.decomposed)


class OperatorTable(FrozenModel):
    """Every ATen operator of one torch."""

    format: Literal[2] = 2
    tools: dict[str, str]
    """The versions of torch and onnxscript."""
    torchscript: Items[int]
    """The opsets of TorchScript's exporter."""
    dynamo: Items[int]
    rows: Items[OperatorRow]
    """Sorted by operator."""
    folded: int
    """The number of overloads without a row, because exporters replace them by the plain one:
    in-place overloads and those with `out`."""


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
