"""Types of values: precisions, dtypes, sequences."""

from __future__ import annotations

from exporter.records.record import Stage
from tests.features.feature import (
    SOUND,
    Feature,
    Proof,
    Referred,
    Section,
    Support,
    parity,
    refused,
    structure,
)

_CONVOLUTION = """
inputs = [{ name = "x", shape = ["batch", 2, 8] }]
outputs = [{ name = "y", shape = ["batch", 3, 8] }]
"""
_VARIANT = """
[models.half]
extends = "net"
precision = "float16"
"""


def _input(dtype: str, fill: str) -> str:
    return f'inputs = [{{ name = "x", shape = ["batch", 4], dtype = "{dtype}"{fill} }}]'


def _output(dtype: str) -> str:
    return f'outputs = [{{ name = "y", shape = ["batch", 4], dtype = "{dtype}" }}]'


def _integers(dtype: str) -> Feature:
    return Feature(
        name=f"{dtype} in and out",
        api="export(model, args)",
        torch="1.2+",
        model="kinds.py:Doubled",
        lines=_input(dtype, ", fill = { randint = [0, 50] }"),
        rest=_output(dtype),
    )


def _dtypes(proof: Proof, opset: int, model: str) -> set[int]:
    graph = proof.graph(opset, model).graph
    return {end.type.tensor_type.elem_type for end in (*graph.input, *graph.output)}


SECTION = Section(
    name="Types",
    text="The dtype of the computation, and the kinds of inputs and outputs. A dtype without a "
    "kernel in the runtime is red at `load`, with operator, dtype and provider.",
    rows=(
        Feature(
            name="a variant in float16",
            api="export(model.half(), args)",
            torch="1.2+",
            model="kinds.py:Norm",
            lines=_VARIANT,
            facts={
                "inputs and outputs of the variant are float16, those of its parent float32": (
                    lambda proof: (
                        _dtypes(proof, 13, "half") == {10}
                        and _dtypes(proof, 18, "half") == {10}
                        and _dtypes(proof, 18, "net") == {1}
                    )
                )
            },
            note="`precision` casts the model and is the default dtype of inputs and outputs. The"
            " tolerance is measured in float16, too.",
        ),
        Feature(
            name="float16 that overflows",
            api="export(model.half(), args)",
            torch="1.2+",
            model="kinds.py:Beyond",
            lines='precision = "float16"',
            rest="opsets = 13",
            verdicts={"*": parity("parity", "float16 overflows in PyTorch")},
            note="ONNX Runtime continues in float32 when PyTorch rounds to Inf.",
        ),
        Feature(
            name="bfloat16",
            api="export(model.bfloat16(), args)",
            torch="1.10+",
            model="kinds.py:Norm",
            lines='precision = "bfloat16"\ndevices = ["cpu", "reference"]',
            rest="opsets = 18",
            support=Support.DYNAMO,
            verdicts={
                "net/18/cpu: *": refused(Stage.LOAD, "has no kernel for Gemm in bfloat16"),
                "*": SOUND,
            },
            note="ONNX Runtime lacks most kernels for it on the CPU; `onnx.reference` has them.",
        ),
        Feature(
            name="float64",
            api="export(model.double(), args)",
            torch="1.2+",
            model="kinds.py:Norm",
            lines='precision = "float64"',
        ),
        Feature(
            name="an operator without a kernel in the dtype",
            api="export(model.double(), args)",
            torch="1.2+",
            model="kinds.py:Convolved",
            lines='precision = "float64"',
            rest=_CONVOLUTION,
            verdicts={
                "*": refused(Stage.LOAD, "CPUExecutionProvider has no kernel for Conv in float64")
            },
        ),
        Feature(
            name="an operator that ONNX lacks in the dtype",
            api="export(model.bfloat16(), args)",
            torch="1.10+",
            model="kinds.py:Convolved",
            lines='precision = "bfloat16"',
            rest=_CONVOLUTION,
            verdicts={"*": structure("wellformed", "has unsupported type: tensor(bfloat16)")},
            note="Conv has bfloat16 since opset 22.",
        ),
        *(_integers(dtype) for dtype in ("int8", "uint8", "int16", "int32", "int64")),
        Feature(
            name="bool in and out",
            api="export(model, args)",
            torch="1.2+",
            model="kinds.py:Inverted",
            lines=_input("bool", ", fill = { bernoulli = 0.5 }"),
            rest=_output("bool"),
        ),
        Feature(
            name="complex numbers in and out",
            api="export(model, args, dynamo=True)",
            torch="2.5+",
            model="kinds.py:Turned",
            lines=_input("complex64", ""),
            rest=_output("complex64"),
            support=Support.DYNAMO,
            verdicts={
                "<18": refused(Stage.CONVERT, "TorchScript exports no complex numbers"),
                "*": SOUND,
            },
            facts={
                "in the file they are float32 with a last dimension of 2": (
                    lambda proof: (
                        _dtypes(proof, 18, "net") == {1}
                        and proof.graph(18).graph.input[0].type.tensor_type.shape.dim[2].dim_value
                        == 2
                    )
                )
            },
        ),
        Feature(
            name="complex numbers out",
            api="torch.fft",
            torch="2.5+",
            model="kinds.py:Spectrum",
            lines='outputs = [{ name = "y", shape = ["batch", 4], dtype = "complex64" }]',
            rest="opsets = 18",
            support=Support.DYNAMO,
        ),
        Feature(
            name="scalars in and out",
            api="export(model, args)",
            torch="1.2+",
            model="kinds.py:Scaled",
            lines='inputs = [{ name = "x", shape = ["batch", 4] }, { name = "k", shape = [] }]\n'
            'outputs = [{ name = "y", shape = ["batch", 4] }, { name = "sum", shape = [] }]',
        ),
        Feature(
            name="tensors without elements",
            api="export(model, args)",
            torch="1.2+",
            model="kinds.py:Cached",
            lines='inputs = [{ name = "x", shape = ["n", 4] },'
            ' { name = "past", shape = ["n", 0] }]\n'
            'outputs = [{ name = "y", shape = ["n", 4] }, { name = "kept", shape = ["n", 0] }]',
        ),
        Feature(
            name="a list of tensors as one output",
            api="torch.jit.script",
            torch="1.6+",
            model="kinds.py:Pieces",
            lines='capture = "script"\n'
            'outputs = [{ name = "pieces", shape = [4], kind = "sequence" }]',
            rest="opsets = [11, 13]",
            support=Support.TORCHSCRIPT,
            facts={
                "the file returns a sequence": (
                    lambda proof: proof.graph(13).graph.output[0].type.HasField("sequence_type")
                )
            },
            note="The number of items is compared first, then each item.",
        ),
        Feature(
            name="a list of tensors, each an output",
            api="export(model, args)",
            torch="1.2+",
            model="kinds.py:Halves",
            lines='outputs = [{ name = "left", shape = ["batch", 2] },'
            ' { name = "right", shape = ["batch", 2] }]',
            note="A trace and dynamo put out each item by itself, as many as the example has.",
        ),
        Feature(
            name="a list of tensors under dynamo",
            api="export(model, args, dynamo=True)",
            torch="2.5+",
            model="kinds.py:Pieces",
            lines='outputs = [{ name = "pieces", shape = [4], kind = "sequence" }]',
            rest="opsets = 18",
            invalid="dynamo return each item separately; use capture",
        ),
        Referred(
            name="a list with wrong items",
            api="torch.jit.script",
            torch="1.6+",
            traps=(
                "list: an item missing",
                "list: another order",
                "list: one item off",
                "list: items of another dtype",
            ),
        ),
    ),
)
