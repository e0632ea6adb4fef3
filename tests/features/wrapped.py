"""Models in a form that torch.onnx has words of its own for."""

from __future__ import annotations

from exporter.record import Stage
from tests.features.feature import (
    SOUND,
    Feature,
    Section,
    Standing,
    refused,
)

_SINCE_10 = {"<10": refused(Stage.CONVERT, "added in version 10"), "10..17": SOUND}

SECTION = Section(
    name="Modules of other kinds",
    rows=(
        Feature(
            name="ExportableModule",
            api="ExportableModule",
            torch="2.11+",
            model="wrapped.py:Exportable",
            lines='inputs = [{ name = "x", shape = ["batch", 4] }]',
            holds={
                "each file is by the exporter that its record names": lambda proof: (
                    proof.graph(13).ir_version < proof.graph(18).ir_version
                )
            },
            note="The manifest says how it is called. `torch.onnx.export` gives it to dynamo even "
            "where `dynamo=False`; here TorchScript makes the lower opsets.",
        ),
        Feature(
            name="DataParallel",
            api="nn.DataParallel",
            torch="1.0+",
            model="wrapped.py:parallel",
            lines="",
            standing=Standing.DYNAMO,
            verdicts={
                "<18": refused(Stage.CONVERT, "DataParallel is not supported"),
                ">=18": SOUND,
            },
            note="Under TorchScript let `source` give the `module` inside.",
        ),
        Feature(
            name="fake quantization",
            api="torch.fake_quantize_per_tensor_affine",
            torch="1.8+",
            model="wrapped.py:FakeQuantized",
            lines="opsets = [9, 10, 13, 18]",
            standing=Standing.TORCHSCRIPT,
            verdicts={**_SINCE_10, ">=18": refused(Stage.CAPTURE, "fake_quantize_per_tensor")},
            holds={
                "QuantizeLinear and DequantizeLinear are in the file": lambda proof: (
                    {"QuantizeLinear", "DequantizeLinear"} <= set(proof.operators(13))
                )
            },
        ),
        Feature(
            name="quantized modules",
            api="torch.ao.nn.quantized",
            torch="1.8+",
            model="wrapped.py:Quantized",
            lines="opsets = [9, 10, 13, 18]",
            standing=Standing.TORCHSCRIPT,
            verdicts={**_SINCE_10, ">=18": refused(Stage.CAPTURE, "LinearPackedParamsBase")},
        ),
    ),
)
