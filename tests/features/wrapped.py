"""Models in the forms for which torch.onnx has its own interfaces."""

from __future__ import annotations

from exporter.records.record import Stage
from tests.features.feature import SOUND, Feature, Section, Support, parity, refused, structure

_SINCE_10 = {"<10": refused(Stage.CONVERT, "added in version 10"), "10..17": SOUND}

_POSITIONS = """
inputs = [
  { name = "x", shape = ["batch", 2, "length", 8] },
  { name = "positions", shape = ["batch", "length"], dtype = "int64",
    fill = { randint = [0, 50] } },
]
outputs = [{ name = "y", shape = ["batch", 2, "length", 8] }]
"""
_ATTENDED = """
inputs = [
  { name = "query", shape = ["batch", 2, "length", 8] },
  { name = "key", shape = ["batch", 2, "length", 8] },
  { name = "value", shape = ["batch", 2, "length", 8] },
]
outputs = [{ name = "attended", shape = ["batch", 2, "length", 8] }]
"""

SECTION = Section(
    name="torch.onnx's own modules and operators",
    rows=(
        Feature(
            name="ExportableModule",
            api="ExportableModule",
            torch="2.11+",
            model="wrapped.py:Exportable",
            lines='inputs = [{ name = "x", shape = ["batch", 4] }]',
            facts={
                "each file is by the exporter that its record names": lambda proof: (
                    proof.graph(13).ir_version < proof.graph(18).ir_version
                )
            },
            note="The manifest declares the call. `torch.onnx.export` passes it to dynamo even if"
            " `dynamo=False`; here TorchScript exports the lower opsets.",
        ),
        Feature(
            name="DataParallel",
            api="nn.DataParallel",
            torch="1.0+",
            model="wrapped.py:parallel",
            verdicts={
                "<18": refused(Stage.CONVERT, "DataParallel is not supported"),
                ">=18": SOUND,
            },
            note="Under TorchScript let `source` give the `module` inside.",
        ),
        Feature(
            name="lazy modules",
            api="nn.LazyLinear",
            torch="1.8+",
            model="wrapped.py:Lazy",
            verdicts={"*": refused(Stage.SOURCE, "have no sizes yet (linear.weight, linear.bias)")},
        ),
        Feature(
            name="lazy modules, called once after they are built",
            api="nn.LazyLinear",
            torch="1.8+",
            model="wrapped.py:called_once",
        ),
        Feature(
            name="fake quantization",
            api="torch.fake_quantize_per_tensor_affine",
            torch="1.8+",
            model="wrapped.py:FakeQuantized",
            lines="opsets = [9, 10, 13, 18]",
            support=Support.TORCHSCRIPT,
            verdicts={**_SINCE_10, ">=18": refused(Stage.CAPTURE, "fake_quantize_per_tensor")},
            facts={
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
            support=Support.TORCHSCRIPT,
            verdicts={**_SINCE_10, ">=18": refused(Stage.CAPTURE, "LinearPackedParamsBase")},
        ),
        Feature(
            name="quantized modules, one step off",
            api="torch.ao.nn.quantized",
            torch="1.8+",
            model="wrapped.py:OneStepOff",
            rest="opsets = 13",
            lines="tolerance = { steps = 1 }",
            support=Support.TORCHSCRIPT,
            note="A step is the scale from which PyTorch dequantizes the output, not the file's.",
        ),
        Feature(
            name="quantized modules, two steps off",
            api="torch.ao.nn.quantized",
            torch="1.8+",
            model="wrapped.py:TwoStepsOff",
            rest="opsets = 13",
            lines="tolerance = { steps = 1 }",
            verdicts={"*": parity("parity", "(1 steps of 0.1 from the manifest)")},
        ),
        Feature(
            name="steps of an output without a scale",
            api="torch.ao.nn.quantized.dynamic",
            torch="1.8+",
            model="wrapped.py:DynamicallyQuantized",
            rest="opsets = 13",
            lines="tolerance = { steps = 1 }",
            verdicts={"*": refused(Stage.SOURCE, "`steps` needs one scale, and PyTorch does not")},
        ),
        Feature(
            name="a symbolic function for a quantized operator",
            api="register_custom_op_symbolic('quantized::relu6', function, 13)",
            torch="1.8+, TorchScript",
            model="wrapped.py:QuantizedClip",
            rest="opsets = 13",
            lines="""
custom_ops = [{ name = "quantized::relu6", symbolic = "wrapped.py:quantized_relu6" }]
""",
            support=Support.TORCHSCRIPT,
            facts={
                "the integers of the result are in the file": lambda proof: (
                    proof.operators(13).count("QuantizeLinear") == 2
                )
            },
        ),
        Feature(
            name="a quantized operator without a symbolic function",
            api="torch.ops.quantized.relu6",
            torch="1.8+, TorchScript",
            model="wrapped.py:QuantizedClip",
            lines="opsets = 13",
            verdicts={"*": refused(Stage.CONVERT, "quantized::relu6")},
        ),
        Feature(
            name="dynamically quantized modules",
            api="torch.ao.nn.quantized.dynamic",
            torch="1.8+",
            model="wrapped.py:DynamicallyQuantized",
            lines="opsets = [13, 18]",
            verdicts={
                "<18": refused(Stage.CONVERT, "quantized::linear_dynamic"),
                ">=18": refused(Stage.CAPTURE, "LinearPackedParamsBase"),
            },
        ),
        Feature(
            name="rotary positions by ONNX's own operator",
            api="onnx.ops.rotary_embedding",
            torch="2.8+",
            model="wrapped.py:Rotated",
            lines='exporter = "dynamo"\nopsets = [18, 23, 24]',
            rest=_POSITIONS,
            verdicts={"<23": structure("wellformed", "No Op registered"), ">=23": SOUND},
            facts={
                "the operator is in the file": lambda proof: (
                    proof.operators(23) == ["RotaryEmbedding"]
                )
            },
            note="torch writes it into files of any opset; ONNX has it from 23 on.",
        ),
        Feature(
            name="attention by ONNX's own operator",
            api="onnx.ops.attention",
            torch="2.8+",
            model="wrapped.py:Attended",
            lines='exporter = "dynamo"\nopsets = [18, 23, 24]',
            rest=_ATTENDED,
            verdicts={"<23": structure("wellformed", "No Op registered"), ">=23": SOUND},
            facts={
                "the operator is in the file": lambda proof: proof.operators(23) == ["Attention"]
            },
            note="torch writes it into files of any opset; ONNX has it from 23 on.",
        ),
        Feature(
            name="any operator of ONNX, with more outputs than one",
            api="onnx.ops.symbolic_multi_out",
            torch="2.8+",
            model="wrapped.py:Symbolic",
            lines="opsets = [13, 18, 23]",
            verdicts={"<18": refused(Stage.CONVERT, "unsupported input list"), ">=18": SOUND},
            facts={"the operator is in the file": lambda proof: "Split" in proof.operators(18)},
        ),
    ),
)
