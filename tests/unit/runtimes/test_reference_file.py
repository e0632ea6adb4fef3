"""A file runs in float64: floats of all kinds are cast, and the reason is known if they cannot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from exporter.runtimes.reference_file import ReferenceFile

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
X = "(float[b, 3] x) => (float[b, n] y)"
TEXTS = {
    "a weight": f"net {X} <float[3, 2] w = {{0.1, 2, 3, 4, 5, 6}}> {{ y = MatMul(x, w) }}",
    "constants": f"""net {X} {{ a = Constant<value_float = 0.1>() c = Constant<value_floats = [0.1,
        0.2, 0.3]>() h = Mul(x, a) y = Add(h, c) }}""",
    "a cast": f"net {X} {{ h = Cast<to = 10>(x) f = Cast<to = 1>(h) y = Exp(f) }}",
    "zeros": f"net {X} {{ s = Shape(x) z = ConstantOfShape(s) e = Exp(x) y = Add(e, z) }}",
    "a branch": f"""net {X} <float[1] w = {{0.1}}, bool c = {{1}}>
        {{ y = If(c) <then_branch = t () => (float[b, n] u) {{ u = Mul(x, w) }},
        else_branch = e () => (float[b, n] v) {{ v = Exp(x) }}> }}""",
    "no kernel in float64": """net (float[b, 3, 4] x) => (float[b, 2, 4] y)
        <float[2, 3, 1] k = {0.1, 0.2, 0.3, 4, 5, 6}> { y = Conv(x, k) }""",
    "float32 only": """net (float[1, 1, 4, 3] x) => (float[1, 1, 8, 6] y)
        <float[4] s = {1, 1, 2, 2}> { h = Exp(x) y = Resize<mode = "linear">(h, , s) }""",
}


@pytest.mark.parametrize("name", TEXTS)
def test_float64_is_near_float32(name: str, tmp_path: Path) -> None:
    onnx.save(parser.parse_model(f"{HEAD} {TEXTS[name]}"), tmp_path / "net.onnx")
    file = ReferenceFile(tmp_path / "net.onnx", tmp_path)
    shape = {"no kernel in float64": (2, 3, 4), "float32 only": (1, 1, 4, 3)}.get(name, (2, 3))
    inputs = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    (usual,) = file.run(inputs)
    exact = file.run_in_float64(inputs)
    assert exact is not None, file.reason
    assert np.asarray(exact[0]).dtype == np.float64
    error = np.abs(np.asarray(exact[0]) - np.asarray(usual)).max()
    assert error < (1e-2 if name == "a cast" else 1e-6)
    assert all(np.allclose(run[0], usual) for run in file.run_in_other_orders(inputs))
    assert file.is_fast == (name not in ("no kernel in float64", "float32 only"))


def test_a_foreign_operator_is_the_reason(tmp_path: Path) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        net {X} {{ y = com.microsoft.Gelu(x) }}"""
    onnx.save(parser.parse_model(text), tmp_path / "net.onnx")
    file = ReferenceFile(tmp_path / "net.onnx", tmp_path)
    assert file.run_in_float64({"x": np.ones((1, 3), np.float32)}) is None
    assert file.reason == "com.microsoft::Gelu is no operator of ONNX"
