"""Declared outputs: their conversion, the steps of integers, ties and rows of tables."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from exporter.checks.sample_checks import hash_table_parts
from exporter.manifest import Output, Tolerance
from exporter.records.record import Stage, Status
from exporter.worker.model.call_objects import register_output_classes
from exporter.worker.process.failure import Failure
from exporter.worker.reference.eager_run import (
    flatten_outputs,
    require_declared_outputs,
)
from exporter.worker.reference.noise import digest_tables
from exporter.worker.reference.quantization_steps import measure_steps
from exporter.worker.reference.review import SelectionRecorder
from tests.worker.contracts import make_contract

ROW, ROWS = torch.ones(2), [torch.zeros(2), torch.ones(2)]


def _spec(*kinds: str, script: bool = True) -> Any:
    outputs = tuple(
        Output.model_validate({"name": f"y{index}", "shape": (2,), "kind": kind})
        for index, kind in enumerate(kinds)
    )
    return make_contract("Affine", outputs=outputs, capture="script" if script else None)


class _Result(dict[str, Any]):
    """A mapping that PyTorch does not know."""


def test_numbers_and_mappings_are_outputs() -> None:
    returned = {"first": _Result(y0=ROW), "second": (3, 0.5, True)}
    register_output_classes(returned)
    spec = _spec(*["tensor"] * 4, script=False)
    row, *numbers = require_declared_outputs(returned, spec)
    assert row is not ROW
    assert torch.equal(torch.as_tensor(row), ROW)
    assert [(each.dtype, each.item()) for each in numbers if isinstance(each, Tensor)] == [
        (torch.int64, 3),
        (torch.float32, 0.5),
        (torch.bool, True),
    ]


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


class _Net(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def _quantize(x: Tensor, scale: float = 0.1) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that these functions are deprecated
        return torch.quantize_per_tensor(x, scale, 3, torch.quint8)


def _quantize_rows(x: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scales = torch.tensor([0.1, 0.2, 0.3])
        return torch.quantize_per_channel(x, scales, torch.zeros(3), 0, torch.qint8).dequantize()


def _steps(function: Callable[[Tensor], Tensor], tolerance: Tolerance) -> tuple[float | None, ...]:
    spec = make_contract("Net", "x [3, 4] -> y [3, 4]", tolerance=tolerance)
    return measure_steps(_Net(function), spec, {"x": torch.randn(3, 4)})


@pytest.mark.parametrize(
    "function",
    [
        lambda x: _quantize(x).dequantize(),
        lambda x: _quantize(x).dequantize().reshape(4, 3).T,
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255),
        lambda x: _quantize(_quantize(x, 0.5).dequantize()).dequantize(),
    ],
)
def test_the_scale_of_the_last_dequantization(function: Callable[[Tensor], Tensor]) -> None:
    assert _steps(function, Tolerance(steps=1.0)) == (pytest.approx(0.1),)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2,
        lambda x: _quantize(x).dequantize() * 2,
        lambda x: _quantize(x).dequantize().mul_(2),
        _quantize_rows,
    ],
)
def test_an_output_without_one_scale(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(Failure, match="does not dequantize output 'y' from one"):
        _steps(function, Tolerance(steps=1.0))
    assert _steps(function, Tolerance(atol=1.0)) == ()


#: Each value is there five times.
X = torch.tensor([[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 2.0, 2.0]]).repeat(1, 5)


def record(model: Callable[[torch.Tensor], torch.Tensor]) -> tuple[SelectionRecorder, torch.Tensor]:
    recorder = SelectionRecorder()
    with torch.no_grad(), recorder.watch():
        output = model(X).detach().to("cpu", copy=True)
    return recorder, output


@pytest.mark.parametrize(
    ("model", "is_first_promised"),
    [
        (lambda x: x.topk(3, dim=1).indices, False),
        (lambda x: x.topk(3, dim=1, largest=False).indices.t()[1:].to(torch.int32), False),
        (lambda x: x.sort(dim=0, descending=True).indices, False),
        (lambda x: torch.sort(x, dim=1, stable=True).indices, True),
        (lambda x: x.argsort(dim=1).reshape(-1), False),
        (lambda x: x.argmax(dim=1), True),
        (lambda x: x.argmin(), True),
        (lambda x: x.max(dim=1, keepdim=True).indices.squeeze(1), True),
        (lambda x: x.min(dim=0).indices, True),
        (lambda x: x[0, 0].argmax(), True),
        (lambda x: torch.jit.script(torch.nn.Identity())(x.argmax(dim=1)), True),
    ],
)
def test_the_selected_values_are_found(
    model: Callable[[torch.Tensor], torch.Tensor], is_first_promised: bool
) -> None:
    recorder, output = record(model)
    choice = recorder.find(output)
    assert choice is not None
    number, selection = choice
    assert number == 0
    assert selection.rows.shape == output.shape
    assert selection.is_first_promised is is_first_promised
    # The same operator on the values gives the values at the indices.
    with torch.no_grad():
        expected = selection.keys[selection.rows, model(X).long()]
    assert torch.equal(selection.keys[selection.rows, output.long()], expected)


@pytest.mark.parametrize(
    "model",
    [
        lambda x: x.argmax(dim=1) + 1,
        lambda x: x.argmax(dim=1).add_(1),
        lambda x: x.topk(3).values,
        lambda x: x.nonzero(),
        lambda x: torch.cat([x.argmax(dim=1), x.argmin(dim=1)]),
    ],
)
def test_other_outputs_have_no_selection(model: Callable[[torch.Tensor], torch.Tensor]) -> None:
    recorder, output = record(model)
    assert recorder.find(output) is None


@pytest.mark.parametrize("is_largest", [True, False])
def test_the_lower_index_comes_first(is_largest: bool) -> None:
    _, output = record(lambda x: x.topk(5, dim=1, largest=is_largest).indices)
    first = [1, 2, 5, 6, 9] if is_largest else [3, 7, 11, 15, 19]
    assert output.tolist() == [first, [0, 1, 2, 3, 4]]
    _, order = record(lambda x: x.sort(dim=1, descending=is_largest).indices)
    assert order[:, :5].tolist() == [first, [0, 1, 2, 3, 4]]


def test_each_operator_has_a_number() -> None:
    recorder = SelectionRecorder()
    with torch.no_grad(), recorder.watch():
        one, two = X.argmax(dim=1), (-X).argmax(dim=1)
    choices = [recorder.find(one), recorder.find(two)]
    assert [choice[0] for choice in choices if choice] == [0, 1]
    assert len(recorder.keys) == 2


def test_an_embedding_has_a_digest_for_each_part() -> None:
    model = nn.Embedding(100, 4)
    (table,) = digest_tables(model)
    assert (table.dtype, table.shape) == ("FLOAT", (100, 4))
    assert table.parts == hash_table_parts(model.weight.detach().numpy())
    with torch.no_grad():
        model.weight[57, 2] += 1e-3
    changed = digest_tables(model)[0].parts
    assert sum(old != new for old, new in zip(table.parts, changed, strict=True)) == 1


@pytest.mark.parametrize(
    ("dtype", "name"),
    [(torch.float16, "FLOAT16"), (torch.bfloat16, "BFLOAT16"), (torch.float64, "DOUBLE")],
)
def test_every_precision_has_digests(dtype: torch.dtype, name: str) -> None:
    (table,) = digest_tables(nn.Embedding(100, 4, dtype=dtype))
    assert table.dtype == name
    assert len(set(table.parts)) == 64


def test_a_table_under_two_names_counts_once_and_buffers_count_too() -> None:
    model = nn.Module()
    model.table = nn.Embedding(100, 4)
    model.head = nn.Linear(4, 100, bias=False)
    model.head.weight = model.table.weight
    model.register_buffer("positions", torch.randn(50, 4), persistent=False)
    assert [table.shape for table in digest_tables(model)] == [(100, 4), (50, 4)]


def test_weights_without_rows_to_look_up_are_omitted() -> None:
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Linear(16, 2))
    model.register_buffer("steps", torch.arange(100).reshape(50, 2))
    assert digest_tables(model) == ()


def test_a_transposed_weight_is_hashed_in_the_order_of_its_rows() -> None:
    model = nn.Module()
    weight = torch.randn(4, 100)
    model.register_buffer("table", weight.T)
    (table,) = digest_tables(model)
    assert table.parts == hash_table_parts(weight.T.contiguous().numpy())
