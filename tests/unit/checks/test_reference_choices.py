"""A file may select another one of values that are equal within rounding, and no other value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from exporter.checks.reference_choices import find_choices
from exporter.runtimes.reference_file import ReferenceFile
from exporter.runtimes.session import Array

HEAD = '<ir_version: 8, opset_import: ["" : 17]> '


def write_scores(body: str, outputs: str) -> str:
    """Return a file whose scores 1 and 3 are equal, but for rounding, and its `body`."""
    weight = np.random.default_rng(0).normal(size=(64, 5)).astype(np.float32)
    weight[:, 3] = weight[:, 1] * np.float32(1.0000001)
    weight[:, (1, 3)] += np.float32(0.01)
    values = ", ".join(repr(float(value)) for value in weight.ravel())
    return f"""{HEAD} net (float[b, 64] x) => ({outputs})
    <float[64, 5] w = {{{values}}}, int64[1] one = {{1}}, int64[1] two = {{2}},
    float[5] table = {{10, 20, 30, 40, 50}}> {{ {body} }}"""


def load(folder: Path, text: str) -> ReferenceFile:
    onnx.save(parser.parse_model(text), folder / "net.onnx")
    return ReferenceFile(folder / "net.onnx", folder)


def draw(rows: int) -> dict[str, Array]:
    values = np.random.default_rng(1).normal(size=(rows, 64))
    return {"x": values.astype(np.float32)}


def test_indices_have_their_values_after_moves(tmp_path: Path) -> None:
    body = """s = MatMul(x, w) i = ArgMax<axis = 1, keepdims = 0>(s)
    j = Unsqueeze(i, one) c = Cast<to = 6>(j)"""
    file = load(tmp_path, write_scores(body, "int32[b, 1] c"))
    selection = find_choices(file, draw(40)).selections[0]
    assert selection.rows.tolist() == [[row] for row in range(40)]
    assert selection.keys.shape == (40, 5)
    assert 0 < selection.margin < 1e-3
    assert selection.is_first_promised


def test_other_choices_are_followed_to_the_outputs(tmp_path: Path) -> None:
    body = """s = MatMul(x, w) i = ArgMax<axis = 1, keepdims = 0>(s) y = Gather(table, i)
    v, k = TopK<axis = 1>(s, two) z = Identity(v)"""
    outputs = "float[b] y, float[b, 2] z, int64[b, 2] k"
    file = load(tmp_path, write_scores(body, outputs))
    inputs = draw(40)
    choices = find_choices(file, inputs)
    assert set(choices.selections) == {2}
    usual = file.run(inputs)
    changed = np.array([np.not_equal(run[0], usual[0]) for run in choices.others]).any(axis=0)
    # Only rows whose best scores are the equal ones have a choice.
    near = np.isin(usual[0], (20, 40))
    assert changed.any()
    assert not changed[~near].any()
    for run in choices.others:
        np.testing.assert_allclose(run[1], usual[1], rtol=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        f"{HEAD} net (float[b, 3] x) => (float[b, 3] y) {{ y = Exp(x) }}",
        f"{HEAD} net (float[b, 3] x) => (int64[b, 1] y) {{ y = ArgMax<axis = 1>(x) }}",
    ],
)
def test_exact_values_leave_no_choice(text: str, tmp_path: Path) -> None:
    file = load(tmp_path, text)
    choices = find_choices(file, {"x": np.zeros((4, 3), np.float32)})
    assert not choices.others
    assert all(each.exact.all() for each in choices.selections.values())


def test_the_folder_of_the_file_gets_no_part(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    body = "s = MatMul(x, w) c = ArgMin<axis = 1, select_last_index = 1>(s)"
    path = tmp_path / "net.onnx"
    onnx.save(parser.parse_model(write_scores(body, "int64[b, 1] c")), path)
    find_choices(ReferenceFile(path, tmp_path / "scratch"), draw(3))
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["net.onnx"]
