"""Warnings of the torch.onnx documentation, and the alternatives."""

from __future__ import annotations

from exporter.records.record import Stage, Status
from tests.features.feature import (
    SOUND,
    Feature,
    Referred,
    Section,
    Verdict,
    parity,
    refused,
    structure,
)

_ROWS = """
inputs = [
  { name = "x", shape = ["batch", 4] },
  { name = "rows", shape = [], dtype = "int64", fill = { value = 2 } },
]
outputs = [{ name = "y", shape = ["rows", "width"] }]
axes.batch = { multiple_of = 4 }
cases = [{ name = "four", values = { rows = 4 } }]
"""
_WIDE = 'outputs = [{ name = "y", shape = ["batch", 8] }]'
_SEQUENCE = 'inputs = [{ name = "x", shape = ["batch", "length", 4] }]\n'
_STATES = 'outputs = [{ name = "y", shape = ["batch", "length", 3] }]\n'
_PACKED = """
opsets = [9, 13, 18]
inputs = [
  { name = "x", shape = [3, 7, 4] },
  { name = "lengths", shape = [3], dtype = "int64", fill = { value = [7, 5, 2] } },
]
cases = [{ name = "short", values = { lengths = [4, 4, 1] } }]
"""

PYTHON = (
    Feature(
        name="NumPy functions",
        api='"Avoid NumPy and built-in Python types"',
        model="pitfalls.py:Concatenated",
        lines="init = { by_numpy = true }",
        rest=_WIDE,
        verdicts={"<18": parity("axes", "shape [3, 8], PyTorch gives [7, 8]"), ">=18": SOUND},
        note="Strict capture translates NumPy to torch.",
    ),
    Feature(
        name="torch functions instead of NumPy's",
        api="torch.cat",
        model="pitfalls.py:Concatenated",
        lines="init = { by_numpy = false }",
        rest=_WIDE,
    ),
    Feature(
        name="Tensor.item() as a size",
        api="x.reshape(y.item(), -1)",
        model="pitfalls.py:Reshaped",
        lines="init = { by_item = true }",
        rest=_ROWS,
        verdicts={"<18": structure("signature", "the graph ignores input"), ">=18": SOUND},
        note="A trace keeps the number; torch.export keeps it as a symbol.",
    ),
    Feature(
        name="tensor of one element as a size",
        api="x.reshape(y, -1)",
        model="pitfalls.py:Reshaped",
        lines="init = { by_item = false }",
        rest=_ROWS,
    ),
    Referred(
        name="more of Python and NumPy",
        api='"Avoid NumPy and built-in Python types"',
        traps=(
            ".item() baked in",
            ".item() under dynamo",
            "list constant",
            "float() baked in",
            "numpy constant",
            "numpy under dynamo",
        ),
    ),
    Feature(
        name="Tensor.data",
        api='"Avoid Tensor.data"',
        torch="1.8+",
        model="pitfalls.py:Centred",
        lines="init = { by_data = true }",
        verdicts={
            "<18": parity("axes", "output 'y': error"),
            ">=18": refused(Stage.CAPTURE, "fake tensor in the exported program"),
        },
    ),
    Feature(
        name="Tensor.detach() instead of .data",
        api="Tensor.detach",
        torch="1.8+",
        model="pitfalls.py:Centred",
        lines="init = { by_data = false }",
    ),
    Feature(
        name="in-place arithmetic on a shape",
        api='"Avoid in-place operations when using tensor.shape in tracing mode"',
        torch="1.10+",
        model="pitfalls.py:Grown",
        lines="init = { in_place = true }",
        verdicts={"<18": parity("parity", "output 'y': error"), ">=18": SOUND},
    ),
    Feature(
        name="arithmetic on a shape, not in place",
        api="real_seq_length = real_seq_length + 2",
        torch="1.10+",
        model="pitfalls.py:Grown",
        lines="init = { in_place = false }",
    ),
    Feature(
        name="shapes as tensors",
        api="onnx.operators.shape_as_tensor, reshape_from_tensor_shape",
        torch="1.0+",
        model="pitfalls.py:ShapeTensor",
        lines='outputs = [{ name = "y", shape = [4, "batch"] }]',
        verdicts={"<18": SOUND, ">=18": refused(Stage.CAPTURE, "its data is not allocated yet")},
        note="`x.shape` does the same in both exporters.",
    ),
    Feature(
        name="tensor of the size of another",
        api="torch.arange(x.shape[0])",
        model="pitfalls.py:Sized",
        rest="opsets = [11, 13, 18]",
    ),
    Feature(
        name="scalars with tensors of other dtypes",
        api='"implicit scalar datatype casting"',
        model="pitfalls.py:Scalars",
        rest="""
inputs = [
  { name = "x", shape = ["batch", 4] },
  { name = "n", shape = ["batch", 4], dtype = "int64", fill = { randint = [-5, 5] } },
]
opsets = [9, 11, 13, 18]
""",
    ),
    Referred(
        name="integers divided",
        api='"implicit scalar datatype casting"',
        traps=("integers divided", "integers divided under dynamo"),
    ),
)

TYPES = (
    Feature(
        name="dict as an input",
        api='"Dict and str inputs and outputs"',
        torch="1.10+",
        model="pitfalls.py:ByKey",
        lines="""
inputs = [
  { name = "a", shape = ["batch", 4], at = "args[0].a" },
  { name = "b", shape = ["batch", 4], at = "args[0].b" },
]
""",
        note="Each tensor of it is an input of the graph.",
    ),
    Feature(
        name="str in a dict, or with tensors",
        api='"Dict and str inputs and outputs"',
        torch="1.10+",
        model="pitfalls.py:Mode",
        lines='constants = [{ at = "kwargs.mode", value = "double" }]',
        note="The file has the branch of this value. A model with another value is another entry.",
    ),
    Feature(
        name="dict as an output",
        api='"silently replaced with a flattened sequence of its values"',
        torch="1.10+",
        model="pitfalls.py:Keys",
        lines="""
outputs = [
  { name = "twice", shape = ["batch", 4] },
  { name = "half", shape = ["batch", 4] },
]
""",
        note="The outputs have the order of its values.",
    ),
    Feature(
        name="dict with numbers for keys as an output",
        api='"silently replaced with a flattened sequence of its values"',
        torch="1.10+",
        model="pitfalls.py:Numbered",
        rest="""
outputs = [
  { name = "twice", shape = ["batch", 4] },
  { name = "half", shape = ["batch", 4] },
]
""",
        note="The tracer makes tensors of the keys, too; here they are left out.",
    ),
    Feature(
        name="dict as an output, in another order",
        api='"silently replaced with a flattened sequence of its values"',
        torch="1.10+",
        model="pitfalls.py:Keys",
        lines="""
outputs = [
  { name = "half", shape = ["batch", 4] },
  { name = "twice", shape = ["batch", 4] },
]
""",
        verdicts={
            "*": Verdict(
                status=Status.FAIL,
                stage=Stage.SOURCE,
                message="the entry declares them in another order",
            )
        },
        note="Names go by position: each output would have the other's.",
    ),
    Feature(
        name="nested sequences as outputs",
        api='"nested sequences will be flattened automatically"',
        torch="1.10+",
        model="pitfalls.py:NestedOut",
        lines="""
outputs = [
  { name = "a", shape = ["batch", 4] },
  { name = "b", shape = ["batch", 4] },
  { name = "c", shape = ["batch", 4] },
]
""",
    ),
    Referred(
        name="outputs that are no tensors",
        api='"Any output that is a str will be silently removed"',
        torch="1.10+",
        traps=("str output", "number output", "None output"),
    ),
)

SIZES = (
    Feature(
        name="LSTM over any length",
        api='"its input size seems to be fixed"',
        model="pitfalls.py:Recurrent",
        lines=_SEQUENCE,
        rest=f"opsets = [9, 13, 18]\n{_STATES}",
        verdicts={
            "<18": SOUND,
            ">=18": structure("signature", "axis 'length' of output 'y' is fixed at"),
        },
        note="dynamo fixes the length of an output at the example's, and returns normally.",
    ),
    Feature(
        name="LSTM over one length",
        api='"its input size seems to be fixed"',
        model="pitfalls.py:Recurrent",
        lines='inputs = [{ name = "x", shape = [2, 5, 4] }]',
        rest='opsets = [9, 13, 18]\noutputs = [{ name = "y", shape = [2, 5, 3] }]',
    ),
    Feature(
        name="packed sequences",
        api="pack_padded_sequence, pad_packed_sequence(total_length=7)",
        model="pitfalls.py:Packed",
        lines="init = { pads_to_input = true }",
        rest=f'{_PACKED}outputs = [{{ name = "y", shape = [3, 7, 3] }}]',
        verdicts={"<18": SOUND, ">=18": refused(Stage.CAPTURE, "must be tuple of ints")},
    ),
    Feature(
        name="packed sequences, padded to the longest",
        api="pad_packed_sequence",
        model="pitfalls.py:Packed",
        lines="init = { pads_to_input = false }",
        rest=f'{_PACKED}outputs = [{{ name = "y", shape = [3, "steps", 3] }}]',
        verdicts={
            "<18": parity("cases", "shape [3, 7, 3], PyTorch gives [3, 4, 3]"),
            ">=18": refused(Stage.CAPTURE, "must be tuple of ints"),
        },
    ),
    Referred(
        name="sizes that stay in the file",
        api='"The tracer records the shapes of the example inputs"',
        torch="1.0+",
        traps=(
            "view by a Python number",
            "view by the shape",
            "x.view(2, -1)",
            "cut at a Python number",
            "recurrent under dynamo",
        ),
    ),
)

STATE = (
    Referred(
        name="dropout and training mode",
        api="training=TrainingMode.TRAINING",
        torch="1.0+",
        traps=(
            "dropout left on",
            "dropout off",
            "dropout by a function",
            "BatchNorm in training mode",
            "training mode exported for evaluation",
        ),
    ),
    Referred(
        name="random numbers and state",
        api="torch.rand, buffers",
        torch="1.0+",
        traps=(
            "torch.rand in forward",
            "seeded torch.rand in forward",
            "buffer that counts calls",
        ),
    ),
    Feature(
        name="operators that ONNX lacks",
        api='"Couldn\'t export operator foo"',
        torch="1.0+",
        model="pitfalls.py:Missing",
        verdicts={"*": refused(Stage.CONVERT, "(and 1 more operator missing)")},
        is_diagnosed=True,
        facts={"both are listed": lambda proof: len(proof.record(18).missing) == 2},
        note="The record lists all of them, with the model's lines.",
    ),
    Feature(
        name="differences in operator implementations",
        api='"numerically small differences"',
        torch="1.0+",
        model="pitfalls.py:Recurrent",
        lines="tolerance = { atol = 1e-4 }",
        rest=f"opsets = [13]\n{_SEQUENCE}{_STATES}",
        note="By default, the error may be 8 times the error of PyTorch against float64.",
    ),
)

SECTION = Section(
    name="Pitfalls",
    text='Warnings in "Avoiding Pitfalls", "Limitations" and "Frequently Asked Questions" of the '
    "documentation, and its recommendations.",
    rows=(*PYTHON, *TYPES, *SIZES, *STATE),
)
