"""The file that a script left is compared with the promises of the entry."""

from __future__ import annotations

import pytest

from exporter.commands.recording.observation import FileInterface, FileTensor
from exporter.commands.recording.script_file import (
    compare_file,
    free_unknown_sizes,
    rename_inputs,
)
from exporter.manifest.resolved.call import Fill, Input
from exporter.manifest.resolved.model import Output
from tests.unit.factory import make_spec

X = FileTensor(name="x", dtype="float32", shape=("batch", 3))
Y = FileTensor(name="y", dtype="float32", shape=("batch", "2*batch"))
FILE = FileInterface(opset=17, inputs=(X,), outputs=(Y,))


SPEC = make_spec().model_copy(
    update={
        "opsets": (17,),
        "inputs": (Input(name="x", shape=("batch", 3), at="", fill=Fill(kind="normal")),),
        "outputs": (Output(name="y", shape=("batch", "twice")),),
    }
)


def list_differences(file: FileInterface, exporter: str = "dynamo") -> list[str]:
    return list(compare_file(file, exporter, SPEC, "dynamo"))


def test_a_proof_uses_the_names_that_torch_chose_and_not_those_in_another_order() -> None:
    first, second = (SPEC.inputs[0].model_copy(update={"name": name}) for name in ("x", "mask"))
    spec = SPEC.model_copy(update={"inputs": (first, second)})

    def rename(*names: str) -> list[str]:
        tensors = tuple(X.model_copy(update={"name": name}) for name in names)
        file = FILE.model_copy(update={"inputs": tensors})
        return [each.name for each in rename_inputs(file, spec)]

    assert rename("input.1", "onnx::Mul_1") == ["input.1", "onnx::Mul_1"]
    assert rename("mask", "x") == ["x", "mask"]
    assert rename("input.1") == ["x", "mask"]


@pytest.mark.parametrize(
    ("actual", "promised", "proved"),
    [
        (("LSTMhn_dim_1", 3), (1, 3), ("LSTMhn_dim_1", 3)),
        (("batch", 3), (1, 3), (1, 3)),
        ((2, 3), (1, 3), (1, 3)),
        (("Reshape_dim_0", 3), ("twice", 3), ("twice", 3)),
        (("Reshape_dim_0",), (1, 3), (1, 3)),
    ],
)
def test_a_size_that_a_file_does_not_know_is_shown_by_runs(
    actual: tuple[int | str, ...], promised: tuple[int | str, ...], proved: tuple[int | str, ...]
) -> None:
    file = FILE.model_copy(update={"outputs": (Y.model_copy(update={"shape": actual}),)})
    spec = SPEC.model_copy(update={"outputs": (Output(name="y", shape=promised),)})
    assert free_unknown_sizes(file, spec)[0].shape == proved


def test_the_file_of_the_call_has_no_difference() -> None:
    assert not list_differences(FILE)


@pytest.mark.parametrize(
    ("update", "text"),
    [
        ({"opset": 18}, "has opset 18, and the entry proves 17"),
        ({"inputs": (X.model_copy(update={"name": "z"}),)}, "names its inputs z, and the entry x"),
        (
            {"inputs": (X.model_copy(update={"shape": ("n", 3)}),)},
            "input x has the shape [n, 3], and the entry promises [batch, 3]",
        ),
        (
            {"inputs": (X.model_copy(update={"shape": (1, 3)}),)},
            "input x has the shape [1, 3], and the entry promises [batch, 3]",
        ),
        (
            {"outputs": (Y.model_copy(update={"dtype": "float16"}),)},
            "output y is float16, and the entry promises float32",
        ),
        ({"outputs": (Y, Y)}, "names its outputs y, y, and the entry y"),
    ],
)
def test_each_difference_is_a_sentence(update: dict[str, object], text: str) -> None:
    (line,) = list_differences(FILE.model_copy(update=update))
    assert line.startswith(text)


def test_the_exporter_of_the_file_is_a_difference() -> None:
    (line,) = list_differences(FILE, "torchscript")
    assert line.startswith("was written by torchscript, and the entry proves a file of dynamo")
