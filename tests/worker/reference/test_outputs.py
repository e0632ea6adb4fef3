"""Conversion of a returned object to the declared outputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from exporter.manifest import Output
from exporter.records.record import Stage, Status
from exporter.worker.process.failure import Failure
from exporter.worker.reference.eager_run import flatten_outputs, require_declared_outputs
from tests.worker.contracts import make_contract

ROW, ROWS = torch.ones(2), [torch.zeros(2), torch.ones(2)]


def _spec(*kinds: str, script: bool = True) -> Any:
    outputs = tuple(
        Output.model_validate({"name": f"y{index}", "shape": (2,), "kind": kind})
        for index, kind in enumerate(kinds)
    )
    return make_contract("Affine", outputs=outputs, capture="script" if script else None)


def test_a_list_of_a_script_is_one_output() -> None:
    rows, row = require_declared_outputs((ROWS, ROW), _spec("sequence", "tensor"))
    assert isinstance(rows, list)
    assert [item.tolist() for item in rows] == [[0, 0], [1, 1]]
    assert isinstance(row, torch.Tensor)
    assert require_declared_outputs([], _spec("sequence")) == ([],)


def test_each_item_of_a_traced_list_is_an_output() -> None:
    outputs = require_declared_outputs(
        (ROWS, ROW), _spec("tensor", "tensor", "tensor", script=False)
    )
    assert [type(output) for output in outputs] == [torch.Tensor] * 3
    assert len(flatten_outputs(ROWS, _spec("tensor", script=False))) == 2


@pytest.mark.parametrize(
    ("returned", "kinds", "script", "message"),
    [
        (ROWS, ("tensor",), True, "a list of tensors is declared with kind = 'sequence' (y0)"),
        (
            ROWS,
            ("tensor", "tensor"),
            True,
            "(the result: list of 2); the entry declares 2 (y0, y1), and a list as one output has ",
        ),
        (ROWS, ("tensor",), False, "a list as one output has kind = 'sequence' and capture = 'sc"),
        (ROW, ("sequence",), True, "declared as a sequence, but not a list: y0"),
        ([ROW, 3], ("sequence",), True, "only tensors can be outputs of a graph"),
        (
            ROW.to_sparse(),
            ("tensor",),
            False,
            "(the result: sparse_coo float32 [2]); only dense tensors can be outputs",
        ),
        ((ROW, ROW), ("sequence",), True, "the model returns 2 outputs ([0]: float32 [2], [1]"),
    ],
)
def test_another_kind_of_output_fails(
    returned: Any, kinds: tuple[str, ...], script: bool, message: str
) -> None:
    with pytest.raises(Failure) as raised:
        require_declared_outputs(returned, _spec(*kinds, script=script))
    assert (raised.value.stage, raised.value.status) == (Stage.SOURCE, Status.FAIL)
    assert message in raised.value.message


def test_two_outputs_without_a_list_have_no_hint_about_lists() -> None:
    with pytest.raises(Failure) as raised:
        require_declared_outputs({"a": ROW, "b": ROW}, _spec("tensor", script=False))
    assert "sequence" not in raised.value.message
