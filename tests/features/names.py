"""Names and axes of the file."""

from __future__ import annotations

from tests.features.feature import Feature, Section

DYNAMIC_AXES = Feature(
    name="dynamic axes with names",
    api="export(..., dynamic_axes={'x': {0: 'batch'}})",
    torch="1.2+",
    model="names.py:Affine",
    lines='inputs = [{ name = "x", shape = ["batch", 4] }]',
    holds={
        "the axis has its name in the file of both exporters": lambda proof: all(
            proof.graph(opset).graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
            for opset in (13, 18)
        )
    },
)

SECTION = Section(name="Names and axes", rows=(DYNAMIC_AXES,))
