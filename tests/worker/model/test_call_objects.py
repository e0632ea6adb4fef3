"""Objects of user code in the call and among the outputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from exporter.manifest import Constant, Container, ModelSpec
from exporter.worker.inputs.call import build_call, build_tensor_call
from exporter.worker.model.call_objects import (
    CallObjectWrapper,
    has_object_outputs,
    record_object_outputs,
    register_output_classes,
    wrap_with_call_objects,
)
from exporter.worker.reference.eager_run import build_float64_model
from tests.worker.contracts import ROOT, declare_input, make_contract


class Affine(nn.Module):
    """`x @ W + b`."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class Recorder(nn.Module):
    def forward(self, *args: object, **kwargs: object) -> Tensor:
        self.call = (args, kwargs)
        return torch.ones(1)


def build_spec(*, containers: tuple[Container, ...] = (), **changes: object) -> ModelSpec:
    return make_contract("Affine", containers=containers, **changes)


def test_objects_are_built_from_the_values_at_their_paths() -> None:
    spec = build_spec(
        inputs=(declare_input("x"), declare_input("inner", at="kwargs.boxes[0].inner")),
        constants=(Constant(at="kwargs.boxes[0].size", value=7),),
        containers=(
            Container(at="kwargs.boxes", type="list"),
            Container(at="kwargs.boxes[0]", type="calls.py:Box"),
            Container(at="args[1]", type="calls.py:OpaqueObject"),
        ),
    )
    model = wrap_with_call_objects(recorder := Recorder(), spec, ROOT)
    assert isinstance(model, CallObjectWrapper)
    call = build_tensor_call(spec, {"x": torch.ones(3, 4), "inner": torch.zeros(3, 4)})
    model(*call.args, **call.kwargs)
    args, kwargs = recorder.call
    assert torch.equal(args[0], torch.ones(3, 4))
    assert type(args[1]).__name__ == "OpaqueObject"
    (box,) = kwargs["boxes"]
    assert isinstance(kwargs["boxes"], list)
    assert (type(box).__name__, box.size) == ("Box", 7)
    assert torch.equal(box.inner, torch.zeros(3, 4))


def test_the_model_receives_python_numbers() -> None:
    inputs = (
        declare_input("x"),
        declare_input("n", at="args[1]", shape=(), dtype="int64", scalar=True),
        declare_input("f", at="args[2]", shape=(), scalar=True),
        declare_input("b", at="kwargs.b", shape=(), dtype="bool", scalar=True),
    )
    spec = build_spec(inputs=inputs)
    tensors = {
        "x": torch.ones(3, 4),
        "n": torch.tensor(3),
        "f": torch.tensor(0.5),
        "b": torch.tensor(False),
    }
    model = wrap_with_call_objects(recorder := Recorder(), spec, ROOT)
    call = build_tensor_call(spec, tensors)
    model(*call.args, **call.kwargs)
    args, kwargs = recorder.call
    assert (args[1:], kwargs) == ((3, 0.5), {"b": False})
    assert [type(value) for value in (*args[1:], kwargs["b"])] == [int, float, bool]
    script = build_tensor_call(spec.model_copy(update={"capture": "script"}), tensors)
    assert (script.args[1:], script.kwargs) == ((3, 0.5), {"b": False})


def test_a_model_of_plain_values_is_not_wrapped() -> None:
    spec = build_spec(containers=(Container(at="args[1]", type="list"),))
    model = Affine()
    assert wrap_with_call_objects(model, spec, ROOT) is model


def test_a_float64_copy_of_a_wrapped_model_runs() -> None:
    spec = build_spec(containers=(Container(at="args[1]", type="calls.py:OpaqueObject"),))

    class Both(Affine):
        def forward(self, x: Tensor, odd: object) -> Tensor:
            return super().forward(x)

    model = wrap_with_call_objects(Both(), spec, ROOT)
    copied, reason = build_float64_model(model)
    assert not reason
    assert copied is not None
    call = build_call(spec, {"x": torch.ones(3, 4, dtype=torch.float64)}, lambda value: value)
    assert copied(*call.args, **call.kwargs).dtype is torch.float64


def test_omitted_optional_inputs_are_none() -> None:
    spec = build_spec(inputs=(declare_input("x"), declare_input("m", at="kwargs.m", optional=True)))
    call = build_tensor_call(spec, {"x": torch.ones(3, 4)})
    assert call.kwargs == {"m": None}
    with pytest.raises(KeyError):
        build_tensor_call(
            build_spec(inputs=(declare_input("x"), declare_input("m", at="kwargs.m"))),
            {"x": torch.ones(1)},
        )


@dataclass
class Result:
    logits: Tensor
    extra: Tensor | None = None


def test_dataclasses_are_flattened_by_field(tmp_path: Path) -> None:
    returned = (torch.ones(1), Result(logits=torch.zeros(2)))
    register_output_classes(returned)
    pairs, _ = pytree.tree_flatten_with_path(returned)
    leaves = [(pytree.keystr(path), tuple(leaf.shape)) for path, leaf in pairs if leaf is not None]
    assert leaves == [("[0]", (1,)), ("[1].logits", (2,))]


def test_a_model_with_object_outputs_is_marked() -> None:
    plain, other = Affine(), Affine()
    record_object_outputs(plain, (torch.ones(1), {"a": [torch.ones(1)]}))
    returned = [Result(logits=torch.ones(1))]
    register_output_classes(returned)
    record_object_outputs(other, returned)
    assert not has_object_outputs(plain)
    assert has_object_outputs(other)
