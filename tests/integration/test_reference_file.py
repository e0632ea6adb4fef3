"""An ONNX file is the source of an entry: others are proved against it, and one has old weights."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper, parser

from exporter.records.record import Culprit, Record, Status
from tests.integration.project import read_cells, run_exporter, write_project
from tests.unit.commands.verify.child.test_file_pair import HALVES, WHOLE, write_scores

HEAD = '<ir_version: 8, opset_import: ["" : 17]> '
NET = f"""{HEAD} net (float[batch, 3] x) => (float[batch, 4] y)
<float[3, 4] w = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 1, 2}}, float[4] b = {{1, 2, 3, 4}}>
{{ h = MatMul(x, w) a = Add(h, b) r = Relu(a) y = Mul(r, r) }}"""
OLD = NET.replace("{1, 2, 3, 4, 5", "{1.01, 2, 3, 4, 5")
CONV = f"""{HEAD} net (float[batch, 1, 8] x) => (float[batch, 2, 8] y)
<float[2, 1, 1] k = {{0.3, 0.7}}> {{ c = Conv(x, k) y = Relu(c) }}"""
TWO = f"""{HEAD} net (float[batch, 3] x) => (float[batch, 3] y, float[batch, 3] z)
{{ y = Exp(x) z = Sin(x) }}"""


def write_near(operator: str, product: str) -> str:
    """Return a file that selects among scores of which two are equal but for rounding."""
    text = write_scores(f"{product} c = {operator}<axis = 1>(s)", "int64[b, 1] c")
    return text.replace("[b, ", "[batch, ")


FILES = {
    "net": NET,
    "slim": NET.replace("a = Add(h, b) r", "i = Identity(h) a = Add(i, b) r"),
    "old": OLD,
    "renamed_old": OLD.replace("batch", "n"),
    "converted": NET.replace(": 17", ": 13"),
    "fixed": NET.replace("batch", "1"),
    "random": f"""{HEAD} net (float[batch, 3] x) => (float[batch, 3] y)
        {{ n = RandomNormalLike(x) y = Add(x, n) }}""",
    "conv": CONV,
    "leaky": CONV.replace("Relu(c)", "LeakyRelu(c)"),
    "two": TWO,
    "exchanged": TWO.replace("y = Exp(x) z = Sin(x)", "z = Exp(x) y = Sin(x)"),
    "whole": write_near("ArgMax", WHOLE),
    "halves": write_near("ArgMax", HALVES),
    "lowest": write_near("ArgMin", HALVES),
    "gelu": """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        net (float[batch, 3] x) => (float[batch, 3] y) { y = com.microsoft.Gelu(x) }""",
}
Y = '{ name = "y", shape = ["batch", 3] }'
Z = '{ name = "z", shape = ["batch", 3] }'
MICROSOFT = 'options.custom_opsets = { "com.microsoft" = 1 }\n'
SIGNAL = """inputs = [{ name = "x", shape = ["batch", 1, 8] }]
outputs = [{ name = "y", shape = ["batch", 2, 8] }]"""
SCORES = """inputs = [{ name = "x", shape = ["batch", 64] }]
outputs = [{ name = "c", shape = ["batch", 1], dtype = "int64" }]
axes.batch.example = 300"""
#: The model, its keys, its status, and a part of its message.
TABLE: dict[str, tuple[str, Status, str]] = {
    "net": ('source = "files/net.onnx"', Status.PASS, ""),
    "slim": ('artifact = "files/slim.onnx"', Status.PASS, ""),
    "converted": ('artifact = "files/converted.onnx"\nopsets = 13', Status.PASS, ""),
    "half": (
        'artifact = "files/half.onnx"\ntolerance = { atol = 0.05, rtol = 0.01 }',
        Status.PASS,
        "",
    ),
    "exact_half": ('artifact = "files/half.onnx"', Status.FAIL, "net.onnx"),
    "passed": ('passes = ["passes.py:copy"]', Status.PASS, ""),
    "broken_pass": ('passes = ["passes.py:negate"]', Status.FAIL, "passes.py:negate) breaks"),
    "old": (
        'artifact = "files/old.onnx"',
        Status.FAIL,
        "1 of 2 weights of the reference have other values: 'w' (1 of 12, by up to 1.0e-02); ",
    ),
    "renamed_old": (
        'artifact = "files/renamed_old.onnx"',
        Status.FAIL,
        "1 of 2 weights of the reference",
    ),
    "fixed": (
        'artifact = "files/fixed.onnx"',
        Status.FAIL,
        "axis 'batch' of input 'x' is fixed at 1",
    ),
    "names": (
        'outputs = [{ name = "z", shape = ["batch", 4] }]',
        Status.ERROR,
        "files/net.onnx has the outputs y, and the entry declares z; correct z",
    ),
    "random": (
        f'source = "files/random.onnx"\noutputs = [{Y}]',
        Status.INCONCLUSIVE,
        "random.onnx differs from itself",
    ),
    "gelu": (
        f'source = "files/gelu.onnx"\n{MICROSOFT}outputs = [{Y}]',
        Status.PASS,
        "",
    ),
    "exchanged": (
        f'source = "files/two.onnx"\nartifact = "files/exchanged.onnx"\noutputs = [{Y}, {Z}]',
        Status.FAIL,
        "the outputs 'y' and 'z' are exchanged; output 'y': error",
    ),
    "leaky": (
        f'source = "files/conv.onnx"\nartifact = "files/leaky.onnx"\n{SIGNAL}',
        Status.FAIL,
        "8 units in float32's last place",
    ),
    "near": (
        f'source = "files/whole.onnx"\nartifact = "files/halves.onnx"\n{SCORES}',
        Status.PASS,
        "",
    ),
    "far": (
        f'source = "files/whole.onnx"\nartifact = "files/lowest.onnx"\n{SCORES}',
        Status.FAIL,
        "output 'c'",
    ),
    "script": (f'source = "files/net.jit"\noutputs = [{Y}]', Status.PASS, ""),
}
PASSES = """
import onnx


def copy(source, target):
    onnx.save(onnx.load(source), target)


def negate(source, target):
    model = onnx.load(source)
    model.graph.node[2].op_type = "Neg"
    onnx.save(model, target)
"""


def write_half(path: Path) -> None:
    """Write the file with a weight in float16."""
    proto = parser.parse_model(NET)
    tensor = proto.graph.initializer[0]
    # In float16, these numbers are others.
    weight = (numpy_helper.to_array(tensor) * 1.0003).astype(np.float16)
    tensor.CopyFrom(numpy_helper.from_array(weight, "w"))
    proto.graph.node[0].input[1] = "wide"
    proto.graph.node.insert(0, helper.make_node("Cast", ["w"], ["wide"], to=1))
    onnx.save(proto, path)


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    """Return the cells of all models after one export."""
    root = tmp_path_factory.mktemp("reference") / "project"
    head = """format = 1

[models.base]
source = "files/net.onnx"
inputs = [{ name = "x", shape = ["batch", 3] }]
outputs = [{ name = "y", shape = ["batch", 4] }]
opsets = 17
"""
    entries = (
        f'\n[models.{name}]\nextends = "base"\n{keys}\n' for name, (keys, _, _) in TABLE.items()
    )
    write_project(root, {"passes.py": PASSES, "nets.toml": head + "".join(entries)})
    folder = root / "manifests/files"
    folder.mkdir()
    for name, text in FILES.items():
        onnx.save(parser.parse_model(text), folder / f"{name}.onnx")
    write_half(folder / "half.onnx")
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # some releases of torch call TorchScript deprecated
        traced = torch.jit.trace(torch.nn.Linear(3, 3).eval(), torch.randn(2, 3))
    traced.save(str(folder / "net.jit"))
    run_exporter(root, "export", code=1)
    return {cell.partition("/")[0]: record for cell, record in read_cells(root).items()}


def test_each_file_has_its_verdict(cells: dict[str, Record]) -> None:
    statuses = {name: cells[name].status for name in TABLE}
    messages = {name: cell.message for name, cell in cells.items() if cell.message}
    assert statuses == {name: row[1] for name, row in TABLE.items()}, messages
    for name, (_, _, text) in TABLE.items():
        assert text in cells[name].message
        assert "PyTorch" not in cells[name].message


def test_the_first_wrong_node_is_named(cells: dict[str, Record]) -> None:
    for name, operator in (("old", "MatMul"), ("leaky", "LeakyRelu"), ("renamed_old", "MatMul")):
        blame = cells[name].blame
        assert blame is not None
        assert blame.culprit is Culprit.FILE
        assert blame.first is not None
        assert blame.first.operator == operator
