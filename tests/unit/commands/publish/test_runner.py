"""The program of a published chain."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import parser

from exporter.report.pages.templates import render_script

HEAD = '<ir_version: 9, opset_import: ["" : 18]> g '
SESSION = 'session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])'


@pytest.mark.parametrize(
    ("first", "second", "x", "expected"),
    [
        ("(float[n] x) => (float[n] y) { y = Neg(x) }",
         "(float[n] x) => (float[n] y) { y = Neg(x) }", [1.5, -2.25], [1.5, -2.25]),
        ("(float[n] x) => (bfloat16[n] y) { y = Cast<to=16>(x) }",
         "(bfloat16[n] x) => (float[n] y) { y = Cast<to=1>(x) }", [1.5, -2.25], [1.5, -2.25]),
        ("(string[n] x) => (string[n] y) { y = Identity(x) }",
         "(string[n] x) => (string[n] y) { y = Identity(x) }", ["a", "b"], ["a", "b"]),
    ],
)  # fmt: skip
def test_values_between_links_have_any_dtype(
    first: str, second: str, x: list[float | str], expected: list[float | str], tmp_path: Path
) -> None:
    links = []
    for name, text in (("first", first), ("second", second)):
        onnx.save(parser.parse_model(HEAD + text), tmp_path / f"{name}.onnx")
        source = "in" if name == "first" else "first.y"
        target = "first.y" if name == "first" else "out"
        links.append(
            SimpleNamespace(
                id=name, file=f"{name}.onnx", inputs={"x": source}, outputs={"y": target}
            )
        )
    spec = SimpleNamespace(
        inputs=[SimpleNamespace(name="in")], outputs=[SimpleNamespace(name="out")]
    )
    values = {"model": "net", "links": links, "spec": spec, "allowed": (), "session_code": SESSION}
    (tmp_path / "run.py").write_text(render_script("run.py", **values))
    chain = runpy.run_path(str(tmp_path / "run.py"))["Chain"]()
    dtype = np.float32 if isinstance(x[0], float) else None
    assert list(chain.run({"in": np.array(x, dtype)})["out"]) == expected
