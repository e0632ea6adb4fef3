from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper, parser

from exporter.checks.model_file import find_external_data_problems, list_external_files
from exporter.checks.protocol import CheckedFile
from exporter.checks.structure_checks import check_wellformed
from exporter.records.record import Status
from tests.unit.checks.contexts import make_subject

HEAD = '<ir_version: 8, opset_import: ["" : 18, "own" : 1]>'
WEIGHTS = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    "graph",
    [
        "g (float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }",
        "g (float[n, 3] x) => (float[n, 3] y) { y = own.Unknown(x) }",
        (
            "g (float[n, 3] x) => (float[n, 3] y) { y = own.f(x) }"
            '<domain: "own", opset_import: ["" : 18]> f (a) => (b) { b = Relu(a) }'
        ),
        (
            "g (float[n] x) => (float[n, 1] y) { s = Shape(x) one = Constant<value_ints = [1]>()"
            "c = Concat<axis = 0>(s, one) y = Reshape(x, c) }"
        ),
        (
            "g (bool c, float[2] x) => (float[2] y) { y = If(c)"
            "<then_branch = t () => (float[2] a) { a = Relu(x) },"
            " else_branch = e () => (float[2] b) { b = Neg(x) }> }"
        ),
    ],
)
def test_valid_files_pass(graph: str, tmp_path: Path) -> None:
    result = check_wellformed(make_subject(tmp_path, HEAD + graph))
    assert (result.check, result.status, result.message) == ("wellformed", Status.PASS, "")


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        ("g (float[n, 3] x) => (float[n, 4] y) { y = Relu(x) }", "(3) vs (4)"),
        ("g (float[n, 3] x) => (int64[n, 3] y) { y = Relu(x) }", "elem type differs"),
        ("g (float[2, 3] x, float[4] w) => (float[2] y) { y = MatMul(x, w) }", "Incompatible"),
        ("g (float[n] x) => (float[n] y) { y = Relu(z) z = Abs(x) }", "topologically sorted"),
        ("g (float[n] x) => (float[n] y) { y = NoSuchOp(x) }", "No Op registered for NoSuchOp"),
        ("g (float[n] x) => (float[n] y) { z = Relu(x) z = Abs(x) y = Abs(z) }", "z"),
        ("g (float[n] x) => (float[n] y) { y = Relu<slope = 1>(x) }", "slope"),
        ("g (float[n] x) => (float[n] y) { z = Relu(x) }", "y"),
    ],
)
def test_invalid_files_fail(graph: str, words: str, tmp_path: Path) -> None:
    result = check_wellformed(make_subject(tmp_path, HEAD + graph))
    assert result.status is Status.FAIL
    assert words in result.message
    assert "\n" not in result.message
    assert str(tmp_path) not in result.message


def test_a_shape_conflict_from_data_propagation_fails(tmp_path: Path) -> None:
    """The target of Reshape is computed from a shape; only data propagation finds the conflict."""
    graph = """g (float[2, 3] x) => (float[7] y)
    { s = Shape(x) first = Constant<value_ints = [0]>() n = Gather(s, first)
      one = Constant<value_floats = [1.0]>() y = Expand(one, n) }"""
    assert check_wellformed(make_subject(tmp_path, HEAD + graph)).status is Status.FAIL


def test_an_unknown_ir_version_fails(tmp_path: Path) -> None:
    model = parser.parse_model(HEAD + "g (float[n] x) => (float[n] y) { y = Relu(x) }")
    model.ir_version = 99
    result = check_wellformed(make_subject(tmp_path, model))
    assert result.status is Status.FAIL
    assert "ir_version 99" in result.message


def with_external_data(folder: Path, **entries: str | None) -> CheckedFile:
    """Return `y = x + w`, with `w` in `w.data`; `entries` replace those of its external data."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "w.data").write_bytes(bytes(16) + WEIGHTS.tobytes())
    graph = "g (float[2, 3] x) => (float[2, 3] y) <float[2, 3] w> { y = Add(x, w) }"
    model = parser.parse_model(HEAD + graph.replace("<float[2, 3] w>", ""))
    tensor = numpy_helper.from_array(WEIGHTS, "w")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    defaults = {"location": "w.data", "offset": "16", "length": "24"}
    for key, value in {**defaults, **entries}.items():
        if value is not None:
            tensor.external_data.add(key=key, value=value)
    model.graph.initializer.append(tensor)
    subject = make_subject(folder)
    subject.path.write_bytes(model.SerializeToString())
    return subject


def test_external_data_in_the_folder_passes(tmp_path: Path) -> None:
    result = check_wellformed(with_external_data(tmp_path))
    assert (result.status, result.message) == (Status.PASS, "")
    assert check_wellformed(with_external_data(tmp_path, length=None)).status is Status.PASS


@pytest.mark.parametrize("size", [0, 1, 39])
def test_truncated_external_data_fails(size: int, tmp_path: Path) -> None:
    subject = with_external_data(tmp_path)
    os.truncate(tmp_path / "w.data", size)
    onnx.checker.check_model(str(subject.path))  # onnx finds no problem: the reason for this check
    result = check_wellformed(subject)
    assert result.status is Status.FAIL
    assert result.message == f"tensor 'w' ends at byte 40 of 'w.data', which has {size}"


@pytest.mark.parametrize(
    "location", ["../w.data", "a/../../w.data", "/w.data", "C:\\w.data", "..\\w.data", "C:w.data"]
)
def test_external_data_outside_the_folder_fails(location: str, tmp_path: Path) -> None:
    result = check_wellformed(with_external_data(tmp_path / "model", location=location))
    assert result.status is Status.FAIL
    assert "is not inside the file's folder" in result.message


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"length": "20"}, "has 20 external bytes, its shape and type need 24"),
        ({"length": "28"}, "has 28 external bytes, its shape and type need 24"),
        ({"offset": "-4"}, "has offset -4"),
        ({"length": "-1"}, "and length -1"),
        ({"offset": "17"}, "ends at byte 41"),
        ({"offset": "many"}, "cannot be read"),
        ({"offset": "20"}, "ends at byte 44"),
        ({"offset": "20", "length": None}, "ends at byte 44"),
        ({"location": None}, "external data has no location"),
    ],
)
def test_a_wrong_range_fails(entries: dict[str, str | None], words: str, tmp_path: Path) -> None:
    result = check_wellformed(with_external_data(tmp_path, **entries))
    assert result.status is Status.FAIL
    assert words in result.message


@pytest.mark.parametrize(
    ("dtype", "dims", "needed"),
    [
        (TensorProto.INT4, [3, 3], 5),
        (TensorProto.UINT4, [2], 1),
        (TensorProto.FLOAT4E2M1, [3], 2),
        (TensorProto.INT2, [5], 2),
        (TensorProto.UINT2, [4], 1),
        (TensorProto.BFLOAT16, [3], 6),
        (TensorProto.FLOAT8E4M3FN, [3], 3),
        (TensorProto.BOOL, [3], 3),
        (TensorProto.DOUBLE, [], 8),
        (TensorProto.FLOAT, [0, 3], 0),
    ],
)
def test_the_size_of_external_data_depends_on_its_type(
    dtype: int, dims: list[int], needed: int, tmp_path: Path
) -> None:
    (tmp_path / "w.data").write_bytes(bytes(16))
    model = parser.parse_model(HEAD + "g (float[n] x) => (float[n] y) { y = Relu(x) }")
    for length in (needed, needed + 1):
        tensor = TensorProto(name="w", data_type=dtype, dims=dims)
        tensor.data_location = TensorProto.EXTERNAL
        for key, word in (("location", "w.data"), ("offset", "0"), ("length", str(length))):
            tensor.external_data.add(key=key, value=word)
        del model.graph.initializer[:]
        model.graph.initializer.append(tensor)
        expected = (
            []
            if length == needed
            else [f"tensor 'w' has {length} external bytes, its shape and type need {needed}"]
        )
        assert list(find_external_data_problems(model, tmp_path)) == expected


def test_every_tensor_of_a_file_is_checked(tmp_path: Path) -> None:
    """Test sparse weights, lists of tensors in attributes, functions, lists of graphs."""

    def outside(name: str) -> TensorProto:
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[1])
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=f"{name}.data")
        return tensor

    model = parser.parse_model(
        HEAD + "g (float[n] x) => (float[n] y) { y = own.f(x) }"
        '<domain: "own", opset_import: ["" : 18]> f (a) => (b) { b = Relu(a) }'
    )
    model.graph.sparse_initializer.add(values=outside("a"), indices=outside("b"))
    node, inner = model.graph.node[0], model.functions[0].node[0]
    node.attribute.add(name="p").tensors.append(outside("c"))
    node.attribute.add(name="q").sparse_tensor.values.CopyFrom(outside("d"))
    node.attribute.add(name="r").sparse_tensors.add(indices=outside("e"))
    node.attribute.add(name="s").graphs.add().initializer.append(outside("f"))
    inner.attribute.add(name="t").t.CopyFrom(outside("g"))
    inner.attribute.add(name="u").g.initializer.append(outside("h"))
    assert list_external_files(model) == tuple(f"{name}.data" for name in "abcdefgh")


def test_a_long_message_is_cut(tmp_path: Path) -> None:
    name = "x" * 1000
    graph = f"g (float[n] x) => (float[n] y) {{ y = {name}(x) }}"
    message = check_wellformed(make_subject(tmp_path, HEAD + graph)).message
    assert (len(message), message[-1]) == (300, "…")


def link_folder(data: Path) -> None:
    data.parent.rename(data.parents[1] / "elsewhere")
    data.parent.symlink_to(data.parents[1] / "elsewhere", target_is_directory=True)


def replace_by_folder(data: Path) -> None:
    data.unlink()
    data.mkdir()


@pytest.mark.parametrize(
    ("spoil", "problem"), [(link_folder, "is a link"), (replace_by_folder, "")]
)
def test_external_data_must_be_an_ordinary_file(
    spoil: Callable[[Path], None], problem: str, tmp_path: Path
) -> None:
    subject = with_external_data(tmp_path / "model", location="inner/w.data")
    data = tmp_path / "model/inner/w.data"
    data.parent.mkdir()
    (tmp_path / "model/w.data").rename(data)
    assert check_wellformed(subject).status is Status.PASS
    spoil(data)
    result = check_wellformed(subject)
    assert result.status is Status.FAIL
    assert problem in result.message
    assert not problem or result.message == f"external data 'inner/w.data' {problem}"


def test_data_beyond_the_limit_of_protobuf_is_checked_and_not_read(tmp_path: Path) -> None:
    count = 560_000_000  # 2.24 GB of float32
    subject = with_external_data(tmp_path, offset=None, length=str(4 * count))
    model = onnx.load(subject.path, load_external_data=False)
    model.graph.initializer[0].dims[:] = [count // 3, 3]
    model.graph.initializer[0].external_data[1].value = str(count // 3 * 12)
    text = f"g (float[{count // 3}, 3] x) => (float[{count // 3}, 3] y) {{ y = Relu(x) }}"
    ends = parser.parse_graph(text)
    model.graph.input[0].CopyFrom(ends.input[0])
    model.graph.output[0].CopyFrom(ends.output[0])
    subject.path.write_bytes(model.SerializeToString())
    os.truncate(tmp_path / "w.data", count // 3 * 12)  # sparse: takes no space
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = check_wellformed(subject)
    assert (result.status, result.message) == (Status.PASS, "")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 500_000, "kilobytes: the data was read into memory"
    os.truncate(tmp_path / "w.data", count // 3 * 12 - 1)
    assert check_wellformed(subject).status is Status.FAIL
