"""Opsets and IR versions."""

from __future__ import annotations

from tests.features.feature import SOUND, Feature, Section, Support, structure

TORCHSCRIPT = Feature(
    name="every opset of TorchScript",
    api="export(..., opset_version=7, dynamo=False)",
    torch="1.2+",
    model="names.py:Affine",
    lines='opsets = "7..20"\nexporter = "torchscript"',
    note="7 and 8 are as old as ONNX Runtime itself. torch would write 21 and more, by 20's rules.",
)
DYNAMO = Feature(
    name="every opset of dynamo",
    api="export(..., opset_version=28, dynamo=True)",
    torch="2.5+",
    model="names.py:Affine",
    lines='opsets = "18..28"',
    note="ONNX Runtime loads 27 and 28 from 1.32 on. Files with some nodes, such as Gelu, are not "
    "converted beyond 25: they stay at 18 and are red. torch 2.13 has no translation to "
    "LinearAttention of opset 27: linear attention becomes a graph of other operators.",
)
AUTO = Feature(
    name="both exporters in one range",
    api="export(..., opset_version=9)",
    torch="1.2+",
    model="names.py:Affine",
    lines="opsets = [9, 17, 18, 21]",
    facts={
        "TorchScript below 18, dynamo from there": lambda p: (
            [route.exporter for n in (9, 17, 18, 21) if (route := p.record(n).route)]
            == ["torchscript", "torchscript", "dynamo", "dynamo"]
        )
    },
)
CONVERTED = Feature(
    name="older opsets by dynamo",
    api="export(..., opset_version=13, dynamo=True)",
    torch="2.5+",
    model="options.py:Stacked",
    lines='opsets = [13, 15, 17]\nexporter = "dynamo"',
    support=Support.DYNAMO,
    verdicts={
        "13": structure("opset", "the file has opset 18, expected 13"),
        ">=15": SOUND,
    },
    note="torch's version converter takes the file down from 18, or leaves it there and logs it.",
)
IR_VERSION = Feature(
    name="an IR version for older runtimes",
    api="ONNXProgram.model.ir_version = 8",
    torch="2.5+, dynamo",
    model="names.py:Affine",
    lines="opsets = 18\nir_version = 8",
    facts={
        "the file is IR version 8, which ONNX Runtime 1.14 loads": lambda p: (
            p.graph(18).ir_version == 8
        )
    },
)
OVERRIDES = Feature(
    name="other settings for some opsets",
    api="one call of export per opset",
    torch="1.2+",
    model="options.py:RepeatedNode",
    rest="opsets = [17, 18, 19]",
    lines="""
[[models.net.overrides]]
opset = 19
exporter = "torchscript"

[[models.net.overrides]]
opset = 18
options = { optimize = false }
ir_version = 8
""",
    facts={
        "opset 19 is TorchScript's": lambda p: (
            (route := p.record(19).route) is not None and route.exporter == "torchscript"
        ),
        "opset 18 has its own options": lambda p: (
            p.operators(18).count("Exp") == 2 and p.graph(18).ir_version == 8
        ),
    },
)

SECTION = Section(
    name="Opsets",
    text=(
        "TorchScript exports opsets 7 to 20, dynamo 18 to 28. Below 18 the version converter "
        "converts the file of dynamo. Each model page lists the release of ONNX Runtime that "
        "loads a file."
    ),
    rows=(TORCHSCRIPT, DYNAMO, AUTO, CONVERTED, IR_VERSION, OVERRIDES),
)
