"""Names and axes of the file."""

from __future__ import annotations

from tests.features.feature import (
    SOUND,
    Elsewhere,
    Feature,
    Proof,
    Section,
    parity,
    structure,
)

_FIXED_INPUT = 'inputs = [{ name = "x", shape = [3, 4] }]\n'
_FIXED_OUTPUT = 'outputs = [{ name = "y", shape = [3, 4] }]\n'


def _dims(proof: Proof, opset: int) -> list[list[str | int]]:
    """Return the shapes of the inputs, then of the outputs."""
    graph = proof.graph(opset).graph
    return [
        [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.output)
    ]


def _both(proof: Proof, *shapes: list[str | int]) -> bool:
    return all(_dims(proof, opset) == list(shapes) for opset in (13, 18))


def _inputs(proof: Proof, *names: str) -> bool:
    return all([item.name for item in proof.graph(n).graph.input] == [*names] for n in (13, 18))


def _weights(proof: Proof, *names: str) -> bool:
    return all(
        set(names) <= {item.name for item in proof.graph(opset).graph.initializer}
        for opset in (13, 18)
    )


DYNAMIC_AXES = Feature(
    name="dynamic axes with names",
    api="export(..., dynamic_axes={'x': {0: 'batch'}})",
    torch="1.2+",
    model="names.py:Affine",
    lines='inputs = [{ name = "x", shape = ["batch", 4] }]',
    facts={
        "the axis has its name in the file of both exporters": lambda p: _both(
            p, ["batch", 4], ["batch", 4]
        )
    },
)
AXES_TABLE = Feature(
    name="dynamic axes as torch.onnx writes them",
    api="export(..., dynamic_axes={'x': {0: 'batch'}, 'y': {0: 'batch'}})",
    torch="1.2+",
    model="names.py:Affine",
    lines="""
inputs = [{ name = "x", shape = [3, 4] }]
dynamic_axes = { x = { 0 = "batch" }, y = { 0 = "batch" } }
""",
    rest=_FIXED_OUTPUT,
    facts={"the names are in both files": lambda p: _both(p, ["batch", 4], ["batch", 4])},
)
AXES_LISTED = Feature(
    name="dynamic axes by index alone",
    api="export(..., dynamic_axes={'x': [0], 'y': [0]})",
    torch="1.2+",
    model="names.py:Affine",
    lines="dynamic_axes = { x = [0], y = [0] }",
    rest=f"{_FIXED_INPUT}{_FIXED_OUTPUT}",
    facts={
        "both files have the names that torch.onnx generates": lambda p: _both(
            p, ["x_dynamic_axes_1", 4], ["y_dynamic_axes_1", 4]
        )
    },
)
AXES_MIXED = Feature(
    name="dynamic axes, some by index and some by name",
    api="export(..., dynamic_axes={'x': {0: 'rows'}, 'y': [0]})",
    torch="1.2+",
    model="names.py:Affine",
    lines='dynamic_axes = { x = { 0 = "rows" }, y = [0] }',
    rest=f"{_FIXED_INPUT}{_FIXED_OUTPUT}",
    facts={
        "both names are in both files": lambda p: _both(p, ["rows", 4], ["y_dynamic_axes_1", 4])
    },
)
RANGES = Feature(
    name="an axis with limits",
    api="export(..., dynamic_shapes={'x': {0: Dim('batch', min=2, max=16)}})",
    torch="2.5+, dynamo",
    model="names.py:Affine",
    lines="axes.batch = { min = 2, max = 16 }",
    facts={"the axis has its name": lambda p: _both(p, ["batch", 4], ["batch", 4])},
    note="Sizes inside the limits are tried, and none outside; TorchScript takes them as well.",
)
MULTIPLES = Feature(
    name="an axis of multiples",
    api="export(..., dynamic_shapes={'x': {1: 8 * Dim('w')}})",
    torch="2.5+, dynamo",
    model="names.py:Patches",
    rest="""
inputs = [{ name = "x", shape = ["batch", "width"] }]
outputs = [{ name = "y", shape = ["batch", "patches"] }]
""",
    lines="axes.width.multiple_of = 8",
    facts={
        "the axis is called width, and not `8*w`": lambda p: _both(
            p, ["batch", "width"], ["batch", "patches"]
        )
    },
)
OUTPUT_AXIS = Feature(
    name="an axis that only an output has",
    api="export(..., dynamic_axes={'y': {0: 'found'}})",
    torch="1.2+",
    model="names.py:SizeByValues",
    rest="axes.batch.example = 5\n",
    lines='outputs = [{ name = "y", shape = ["found", 2], dtype = "int64" }]',
    facts={"it has its name": lambda p: _both(p, ["batch", 4], ["found", 2])},
)
FIXED = Feature(
    name="an axis that the model fixes",
    api="export(..., dynamic_axes={'x': {0: 'batch'}})",
    torch="1.2+",
    model="names.py:Fixed",
    verdicts={"<18": parity("axes", "batch=7: the runtime fails"), ">=18": SOUND},
    note="torch.onnx.export returns normally under TorchScript. Strict capture keeps the size.",
)
NAMES = Feature(
    name="names of inputs and outputs",
    api="export(..., input_names=['image'], output_names=['logits'])",
    torch="1.0+",
    model="names.py:Affine",
    lines="""
inputs = [{ name = "image", shape = ["batch", 4] }]
outputs = [{ name = "logits", shape = ["batch", 4] }]
""",
    facts={
        "the names are in both files": lambda p: all(
            (p.graph(n).graph.input[0].name, p.graph(n).graph.output[0].name) == ("image", "logits")
            for n in (13, 18)
        )
    },
)
DEFAULT_NAMES = Feature(
    name="names of inputs, by default",
    api="export(..., input_names=None)",
    torch="1.0+",
    model="names.py:Scaled",
    lines='inputs = [{ shape = ["batch", 4] }, { shape = ["batch", 4] }]',
    facts={"both files have the names of the parameters": lambda p: _inputs(p, "x", "scale")},
    note="They are those of `forward`, read from the source without running it.",
)
FIRST_NAMES = Feature(
    name="names of the first inputs only",
    api="export(..., input_names=['image'])",
    torch="1.0+",
    model="names.py:Scaled",
    lines='inputs = [{ name = "image", shape = ["batch", 4] }, { shape = ["batch", 4] }]',
    facts={"the other one has its default": lambda p: _inputs(p, "image", "scale")},
)
PARAMETERS = Feature(
    name="names of parameters",
    api="export(..., input_names=['actual_input_1'] + ['learned_%d' % i for i in range(16)])",
    torch="1.0+, TorchScript",
    model="names.py:Affine",
    lines='parameters = "learned_{}"',
    facts={"the weights have the names": lambda p: _weights(p, "learned_0", "learned_1")},
    note="They have the order of `named_parameters`, under both exporters.",
)
PARAMETERS_TABLE = Feature(
    name="names of some parameters",
    api="export(..., input_names=[...])",
    torch="1.0+, TorchScript",
    model="names.py:Affine",
    lines='parameters = { "*.weight" = "kernel" }',
    facts={"one is named, one keeps its own": lambda p: _weights(p, "kernel", "linear.bias")},
)
PARAMETERS_FIRST = Feature(
    name="names of the first parameters only",
    api="export(..., input_names=['x', 'learned_0'])",
    torch="1.0+, TorchScript",
    model="names.py:Affine",
    lines='parameters = ["learned_0"]',
    facts={"the other one keeps its own": lambda p: _weights(p, "learned_0", "linear.bias")},
    note="`input_names` has the names of inputs before those of parameters; here each has its key.",
)
PARAMETERS_UNREAD = Feature(
    name="names of parameters that nothing reads",
    api="export(..., input_names=[...])",
    torch="1.0+, TorchScript",
    model="names.py:Half",
    lines='parameters = "learned_{}"',
    facts={
        "the weights that the model reads have their names": lambda p: _weights(
            p, "learned_0", "learned_1"
        ),
        "the weight that it never reads is missing": lambda p: not _weights(p, "learned_2"),
    },
)
PARAMETERS_LOST = Feature(
    name="names of parameters that the exporter computed away",
    api="export(..., input_names=[...])",
    torch="1.0+, TorchScript",
    model="options.py:Folded",
    rest="opsets = 17",
    lines='parameters = "learned_{}"',
    verdicts={"*": structure("signature", "no weight has the name 'learned_0' (weight)")},
    note="The message names the option that keeps the weight unchanged.",
)

SECTION = Section(
    name="Names and axes",
    rows=(
        NAMES,
        DEFAULT_NAMES,
        FIRST_NAMES,
        DYNAMIC_AXES,
        AXES_TABLE,
        AXES_LISTED,
        AXES_MIXED,
        RANGES,
        MULTIPLES,
        OUTPUT_AXIS,
        FIXED,
        PARAMETERS,
        PARAMETERS_FIRST,
        PARAMETERS_TABLE,
        PARAMETERS_UNREAD,
        PARAMETERS_LOST,
        Elsewhere(
            name="other names for the axes of a finished program",
            api="ONNXProgram.rename_axes(...)",
            torch="2.11+, dynamo",
            instead="The names in `shape` are the file's, under both exporters.",
        ),
    ),
)
