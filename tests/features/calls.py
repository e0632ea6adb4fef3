"""Calls of a model: arguments, containers, scalars, inputs from files and code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from exporter.jobs import JobFolder
from exporter.records.record import Stage
from tests.features.feature import (
    Feature,
    Proof,
    Section,
    Support,
    inconclusive,
    refused,
    structure,
)

_X = '{ name = "x", shape = ["batch", 4] }'
#: A tensor and a Python number.
_COUNTED = (
    f"inputs = [{_X}, "
    "{ name = 'n', shape = [], dtype = 'int64', scalar = true, fill = { value = 3 } }]"
)
_TWO = '[{ name = "x", shape = ["batch", 4] }, { name = "bias", shape = ["batch", 4] }]'


def _inputs(proof: Proof, opset: int) -> list[str]:
    return [item.name for item in proof.graph(opset).graph.input]


def _write_files(folder: Path) -> None:
    (folder / "data").mkdir()
    rng = np.random.default_rng(0)
    np.save(folder / "data" / "x.npy", rng.standard_normal((6, 4)).astype(np.float32))
    np.savez(folder / "data" / "more.npz", bias=rng.standard_normal((6, 4)).astype(np.float32))
    np.save(folder / "data" / "other.npy", rng.standard_normal((5, 4)).astype(np.float32))


_CACHE = """
inputs = [
  { name = "tokens", shape = ["batch", "new"], dtype = "int64", fill = { randint = [0, 32] } },
  { name = "past.{layer}.key", at = "kwargs.past[{layer}][0]",
    shape = ["batch", 2, "past", 4], repeat = { layer = 2 } },
  { name = "past.{layer}.value", at = "kwargs.past[{layer}][1]",
    shape = ["batch", 2, "past", 4], repeat = { layer = 2 } },
]
containers = [{ at = "kwargs.past", type = "calls.py:Cache" }]
outputs = [
  { name = "logits", shape = ["batch", "new", 32] },
  { name = "present.{layer}.key", shape = ["batch", 2, "total", 4], repeat = { layer = 2 } },
  { name = "present.{layer}.value", shape = ["batch", 2, "total", 4], repeat = { layer = 2 } },
]
axes.past.min = 0
axes.total = { sum = ["past", "new"] }
cases = [{ name = "empty", axes = { past = 0 } }, { name = "filled", axes = { past = 9, new = 1 } }]
"""

_CACHED = [
    "tokens", "past.0.key", "past.0.value", "past.1.key", "past.1.value",
]  # fmt: skip

SECTION = Section(
    name="Calls",
    text="`at` sets the position of each input in the call. All other values are constants. "
    "`exporter list --inputs` shows the whole call before an export.",
    rows=(
        Feature(
            name="keyword arguments",
            api="export(model, args, kwargs=...), export(model, (x, {'bias': b}))",
            model="calls.py:Keywords",
            lines=f"inputs = [\n  {_X},\n  {{ name = 'bias', at = 'kwargs.bias', "
            "shape = ['batch', 4] },\n]\n"
            "constants = [{ at = 'kwargs.scale', value = 2.0 }]",
        ),
        Feature(
            name="nested tuples and dicts",
            api="export(model, (x, (a, {'bias': b})))",
            model="calls.py:Nested",
            lines=f"""inputs = [
  {_X},
  {{ name = "first", at = "args[1][0]", shape = ["batch", 4] }},
  {{ name = "bias", at = "args[1][1].bias", shape = ["batch", 4] }},
]""",
        ),
        Feature(
            name="a list",
            api="export(model, ([a, b],))",
            model="calls.py:Summed",
            lines="""inputs = [
  { name = "x{i}", at = "args[0][{i}]", shape = ["batch", 4], repeat = { i = 3 } },
]
containers = [{ at = "args[0]", type = "list" }]""",
            facts={"three inputs in order": lambda proof: _inputs(proof, 18) == ["x0", "x1", "x2"]},
        ),
        Feature(
            name="None and text in the call",
            api="export(model, (x, None))",
            model="calls.py:Masked",
            lines="constants = [\n  { at = 'args[1]' },\n"
            "  { at = 'kwargs.kind', value = 'double' },\n]",
        ),
        Feature(
            name="dataclasses, in and out",
            api="torch.export.register_dataclass",
            torch="2.7+",
            model="calls.py:OfDataclass",
            lines="""inputs = [
  { name = "x", at = "args[0].x", shape = ["batch", 4] },
  { name = "bias", at = "args[0].bias", shape = ["batch", 4] },
]
containers = [{ at = "args[0]", type = "calls.py:Batch" }]
outputs = [{ name = "y", shape = ["batch", 4] }, { name = "twice", shape = ["batch", 4] }]""",
        ),
        Feature(
            name="named tuples in a list",
            api="export(model, ([Point(a, b)],))",
            model="calls.py:OfPoints",
            lines="""inputs = [
  { name = "left{i}", at = "args[0][{i}].left", shape = ["batch", 4], repeat = { i = 2 } },
  { name = "right{i}", at = "args[0][{i}].right", shape = ["batch", 4], repeat = { i = 2 } },
]
containers = [
  { at = "args[0]", type = "list" },
  { at = "args[0][{i}]", type = "calls.py:Point", repeat = { i = 2 } },
]""",
            rest='outputs = [{ name = "y", shape = ["batch", 8] }]',
        ),
        Feature(
            name="a key-value cache, empty and filled",
            api="export(model, (tokens, cache), dynamic_shapes=...)",
            torch="2.6+",
            model="calls.py:Decoder",
            lines=_CACHE,
            facts={
                "layer by layer": lambda proof: all(
                    _inputs(proof, opset) == _CACHED for opset in (13, 18)
                )
            },
        ),
        Feature(
            name="an int as an input",
            api="export(model, (x, 3), dynamic_shapes=({...}, Dim.DYNAMIC))",
            torch="2.7+",
            model="calls.py:TimesInt",
            lines=_COUNTED,
        ),
        Feature(
            name="a float as an input",
            api="export(model, (x, 0.5))",
            model="calls.py:TimesFloat",
            lines=f"inputs = [{_X}, {{ name = 'factor', shape = [], scalar = true }}]",
        ),
        Feature(
            name="turns by an int, traced",
            api="export(model, (x, 3))",
            model="calls.py:Turns",
            rest=_COUNTED,
            verdicts={
                "<18": structure("signature", "the file has 1 (x), declared 2 (x, n)"),
                ">=18": refused(Stage.CAPTURE, "inferred a static shape of 3"),
            },
        ),
        Feature(
            name="turns by an int, scripted",
            api="torch.jit.script",
            torch="1.2+",
            model="calls.py:Turns",
            lines='capture = "script"',
            rest=f"opsets = 13\n{_COUNTED}\ncases = [{{ name = 'none', values = {{ n = 0 }} }}]",
            support=Support.TORCHSCRIPT,
        ),
        Feature(
            name="a truth value as an input, scripted",
            api="torch.jit.script",
            torch="1.2+",
            model="calls.py:Decided",
            lines=f"inputs = [{_X}, {{ name = 'double', shape = [], dtype = 'bool', scalar = true, "
            "fill = { value = true } }]\ncapture = 'script'",
            rest="opsets = 13",
            support=Support.TORCHSCRIPT,
        ),
        Feature(
            name="an optional input",
            api="torch.jit.script of Optional[Tensor]",
            torch="1.10+",
            model="calls.py:MaybeBias",
            lines=f"inputs = [{_X}, {{ name = 'bias', shape = ['batch', 4], optional = true }}]\n"
            "capture = 'script'\ncases = [{ name = 'without', values = { bias = 'none' } }]",
            rest="opsets = [15, 16, 17]",
            support=Support.TORCHSCRIPT,
        ),
        Feature(
            name="an optional input, traced or captured",
            api="export(model, (x, None))",
            model="calls.py:MaybeBias",
            lines=f"inputs = [{_X}, {{ name = 'bias', shape = ['batch', 4], optional = true }}]",
            invalid="cannot write optional inputs",
        ),
        Feature(
            name="inputs from files",
            api="export(model, args)",
            model="calls.py:Keywords",
            lines="""inputs = [
  { name = "x", shape = ["batch", 4], fill = { file = "data/x.npy" } },
  { name = "bias", at = "kwargs.bias", shape = ["batch", 4],
    fill = { file = "data/more.npz:bias" } },
]
cases = [{ name = "five", axes = { batch = 5 }, values = { x = { file = "data/other.npy" } } }]""",
            prepare=_write_files,
            facts={
                "the example has the size of the files": lambda proof: (
                    onnx.load_tensor(JobFolder(proof.folder).sample(0) / "input_0.pb").dims
                    == [6, 4]
                )
            },
        ),
        Feature(
            name="a call made by code",
            api="export(model, *make_inputs())",
            model="calls.py:Nested",
            lines="""inputs_from = "calls.py:sized"
inputs = [
  { name = "x", shape = ["batch", 4] },
  { name = "first", shape = ["batch", 4] },
  { name = "bias", shape = ["batch", 4] },
]
cases = [{ name = "three", inputs_from = "calls.py:fixed" }]""",
        ),
        Feature(
            name="a call made by code of one size",
            api="export(model, *make_inputs())",
            model="calls.py:OfDataclass",
            lines="inputs_from = 'calls.py:batch_of'",
            rest=f"inputs = {_TWO}\n"
            "outputs = [\n  { name = 'y', shape = ['batch', 4] },\n"
            "  { name = 'twice', shape = ['batch', 4] },\n]",
            verdicts={"*": inconclusive("axes", "calls.py:batch_of has no parameter for sizes")},
        ),
    ),
)
