"""Kernels that ONNX Runtime lacks, recognized by its messages."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import parser

from exporter.manifest import Device
from exporter.runtimes import LoadFailure, open_session
from exporter.runtimes.runtime_registry import describe_missing_kernel

_CODE = "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : "
_CPU = "CPUExecutionProvider"
_HEAD = '<ir_version: 8, opset_import: ["" : 18]> '
_CONV = (
    _HEAD + "g (double[1,1,4,4] x, double[1,1,2,2] w) => (double[1,1,3,3] y) {{{} y = Conv(x, w)}}"
)


def _save(folder: Path, text: str) -> Path:
    path = folder / "18.onnx"
    onnx.save(parser.parse_model(text), path)
    return path


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Could not find an implementation for Conv(11) node with name 'first'", "first"),
        ("Could not find an implementation for the node Conv(11)", ""),
        ("Could not find an implementation for the node first:Conv(11)", "first"),
        ("Could not find an implementation for Conv(11) node with name ''", ""),
        (f"Failed to find kernel for Conv(11) (node:'first' ep:'{_CPU}'). Kernel", "first"),
    ],
)
def test_every_message_gives_operator_dtypes_and_provider(
    text: str, name: str, tmp_path: Path
) -> None:
    path = _save(tmp_path, _CONV.format(f"[{name}]" if name else ""))
    node = f", node '{name}'" if name else ""
    message = f"{_CPU} has no kernel for Conv in float64 (as of opset 11{node})"
    assert describe_missing_kernel(_CODE + text, path, _CPU) == message


@pytest.mark.parametrize(
    "text",
    [
        (
            "[ONNXRuntimeError] : 10 : INVALID_GRAPH : This is an invalid model. Type Error: Type "
            "'tensor(bfloat16)' of input parameter (x) of operator (Conv) in node (c) is invalid."
        ),
        "[ONNXRuntimeError] : 1 : FAIL : Load model from 18.onnx failed: Protobuf parsing failed.",
        _CODE + "something else",
    ],
)
def test_other_messages_are_unchanged(text: str, tmp_path: Path) -> None:
    assert describe_missing_kernel(text, _save(tmp_path, _CONV.format("")), _CPU) == ""


def test_without_the_file_the_description_has_no_dtypes(tmp_path: Path) -> None:
    text = _CODE + "Could not find an implementation for Conv(11) node with name 'first'"
    message = describe_missing_kernel(text, tmp_path / "none.onnx", "CUDAExecutionProvider")
    assert message == "CUDAExecutionProvider has no kernel for Conv (as of opset 11, node 'first')"
    (tmp_path / "bad.onnx").write_bytes(b"\xff")
    assert describe_missing_kernel(text, tmp_path / "bad.onnx", _CPU) == message.replace(
        "CUDA", "CPU"
    )


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (
            "g (double[1,1,4,4] x, double[1,1,2,2] w) => (double[1,1,3,3] y) {[c] y = Conv(x, w)}",
            "no kernel for Conv in float64 (as of opset 11, node 'c')",
        ),
        (
            "g (bool[4] b, bfloat16[4] x) => (bfloat16[4] y) {[w] y = Where(b, x, x)}",
            "no kernel for Where in bool and bfloat16 (as of opset 16, node 'w')",
        ),
        (
            "g (bfloat16[4] x) => (bfloat16[4] y) {y = Relu(x)}",
            "no kernel for Max (as of opset 13), a part of Relu in bfloat16",
        ),
        (
            (
                "g (int16[4] a, bfloat16[4, 4] x) => (int16[4] c, bfloat16[4, 4] y)"
                " {c = Identity(a) y = Softmax(x)}"
            ),
            "no kernel for ReduceMax (as of opset 18), a part of Softmax in bfloat16",
        ),
    ],
)
def test_the_installed_onnxruntime_has_these_messages(
    graph: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(LoadFailure) as raised:
        open_session(_save(tmp_path, _HEAD + graph), Device(name="cpu", runtime="onnxruntime"))
    assert str(raised.value) == f"{_CPU} has {message}"


def test_a_node_inside_a_branch_is_found(tmp_path: Path) -> None:
    branches = "<then_branch = t () => (double[1,1,3,3] a) {[in] a = Conv(x, w)},"
    branches += " else_branch = e () => (double[1,1,3,3] b) {b = Relu(z)}>"
    ends = "bool c, double[1,1,4,4] x, double[1,1,2,2] w, double[1,1,3,3] z"
    path = _save(tmp_path, f"{_HEAD} g ({ends}) => (double[1,1,3,3] y) {{y = If{branches}(c)}}")
    with pytest.raises(LoadFailure, match=r"no kernel for Conv in float64 .*node 'in'"):
        open_session(path, Device(name="cpu", runtime="onnxruntime"))
