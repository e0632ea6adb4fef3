"""Convertible operators, and the runtimes that execute the file."""

from __future__ import annotations

from exporter.records.record import Stage, Status
from tests.features.feature import SOUND, Feature, Proof, Section, Verdict, refused

_BACKEND = """
[tool.exporter.devices.ort-backend]
runtime = "backend"
module = "onnxruntime.backend"
"""
_ABSENT = """
[tool.exporter.devices.caffe2]
runtime = "backend"
module = "caffe2.python.onnx.backend"
device = "CUDA:0"
"""


def _missing(proof: Proof, opset: int) -> list[tuple[str, int, int]]:
    """Return each missing operator, its uses, and its number of lines in the model."""
    operators = proof.record(opset).missing
    return [(item.operator, item.count, len(item.sources)) for item in operators]


def _reports_device(proof: Proof, message: str) -> bool:
    placement = [item for item in proof.record(17).checks if item.check == "placement"]
    return len(placement) == 1 and message in placement[0].message


OPERATORS = (
    Feature(
        name="operators that no exporter has",
        api="OnnxExporterError: Unsupported operators; utils.unconvertible_ops",
        model="operators.py:Rare",
        lines="opsets = [13, 18]",
        verdicts={
            "<18": refused(Stage.CONVERT, "special_bessel_j0' to ONNX opset version 13"),
            ">=18": refused(Stage.CONVERT, "prims.bessel_j0"),
        },
        is_diagnosed=True,
        facts={
            "the record of 13 lists both with uses and lines": lambda proof: (
                _missing(proof, 13)
                == [("aten::special_bessel_j0", 2, 1), ("aten::special_airy_ai", 1, 1)]
            ),
            "the record of 18 lists both with uses and lines": lambda proof: (
                _missing(proof, 18)
                == [("prims.bessel_j0.default", 2, 1), ("aten.special_airy_ai.default", 1, 1)]
            ),
        },
        note="reports/OPERATORS.md has the measured support of all ATen operators.",
    ),
    Feature(
        name="an operator that dynamo takes apart",
        api="ExportedProgram.run_decompositions",
        torch="2.5+",
        model="operators.py:Squeezed",
        lines="opsets = [13, 18]",
        verdicts={
            "<18": refused(Stage.CONVERT, "only one element tensors can be converted to Python"),
            ">=18": SOUND,
        },
        facts={
            "the record of 18 has the operator as PyTorch calls it": lambda proof: (
                "aten.squeeze.dims" in proof.record(18).torch_operators
            ),
            "the file of 18 has an operator of ONNX for it": lambda proof: (
                "Squeeze" in proof.operators(18)
            ),
        },
        note="`squeeze` of two axes. Dynamo decomposes it. TorchScript has a function for "
        "`squeeze`, which refuses this call.",
    ),
)
RUNTIMES = (
    Feature(
        name="an ONNX backend",
        api="caffe2.python.onnx.backend: prepare(model, device), run(inputs)",
        torch="1.4-1.12",
        model="operators.py:Small",
        lines='opsets = 17\ndevices = ["ort-backend"]',
        project=_BACKEND,
        facts={
            "the device that the backend reports is in the record": lambda proof: _reports_device(
                proof, "onnxruntime.backend reports that it runs on CPU"
            )
        },
        by_command=True,
        note="In pyproject.toml: `[tool.exporter.devices.ort-backend]`, `runtime = "
        '"backend"`, `module = "onnxruntime.backend"`, and `device = "CUDA:0"` for another than '
        "the CPU.",
    ),
    Feature(
        name="a backend that is not installed",
        api='caffe2.python.onnx.backend.prepare(model, device="CUDA:0")',
        torch="1.4-1.12",
        model="operators.py:Small",
        lines='opsets = 17\ndevices = ["caffe2"]',
        project=_ABSENT,
        verdicts={
            "*": Verdict(
                status=Status.UNAVAILABLE,
                stage=Stage.LOAD,
                message="caffe2.python.onnx.backend cannot be imported",
            )
        },
    ),
    Feature(
        name="OpenVINO",
        api="none: another runtime for the same file",
        model="operators.py:Small",
        lines='opsets = [17, 18]\ndevices = ["openvino"]',
        package="openvino",
        note="In float32 on every processor. Install the extra `openvino`.",
    ),
    Feature(
        name="onnx.reference",
        api="ONNXProgram.call_reference",
        torch="2.6+",
        model="operators.py:Small",
        lines='opsets = [17, 18]\ndevices = ["reference"]',
    ),
)

SECTION = Section(
    name="Operators and runtimes",
    text="A red cell lists missing operators; `devices` names the runtimes.",
    rows=(*OPERATORS, *RUNTIMES),
)
