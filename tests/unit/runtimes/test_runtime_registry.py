from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper, parser
from onnx.helper import tensor_dtype_to_np_dtype

import exporter.runtimes.drivers.onnxruntime_driver as ours
from exporter.manifest import Device
from exporter.runtimes import (
    LoadFailure,
    Placement,
    ProviderMissing,
    RunFailure,
    RuntimeUnavailable,
    list_absent_files,
    open_session,
    runtime_registry,
)
from exporter.runtimes.drivers.driver import DriverFailure, name_module
from exporter.runtimes.load_failure import describe_load_failure
from exporter.runtimes.runtime_registry import DriverSession

# The import of `onnxruntime.backend` reads the version of onnx in a deprecated way.
pytestmark = pytest.mark.filterwarnings("ignore:onnx.version is deprecated")

CPU = "CPUExecutionProvider"
BFLOAT16 = tensor_dtype_to_np_dtype(TensorProto.BFLOAT16)
HEAD = '<ir_version: 8, opset_import: ["" : 18]>'
OWN_DOMAIN = '<ir_version: 8, opset_import: ["" : 18, "own" : 1]>'
TWO = HEAD + "g (float[n] a, float[n] b) => (float[n] d, float[n] s) {s = Add(a, b) d = Sub(a, b)}"
Runtime = Literal["onnxruntime", "reference", "openvino", "backend"]
OPENVINO = pytest.param(
    "openvino",
    marks=pytest.mark.skipif(
        find_spec("openvino") is None, reason="openvino, an optional runtime, is not installed"
    ),
)
EACH = pytest.mark.parametrize("runtime", ["onnxruntime", "reference", OPENVINO, "backend"])


def save(folder: Path, text: str) -> Path:
    path = folder / "18.onnx"
    onnx.save(parser.parse_model(text), path)
    return path


def device(runtime: Runtime, *providers: str) -> Device:
    module = "onnxruntime.backend" if runtime == "backend" else ""
    return Device(name="here", runtime=runtime, providers=providers, module=module)


@EACH
def test_a_session_keeps_the_order_of_outputs_of_the_file(runtime: Runtime, tmp_path: Path) -> None:
    session = open_session(save(tmp_path, TWO), device(runtime))
    assert list(session.output_names) == ["d", "s"]
    outputs = session.run({"b": np.float32([1, 2]), "a": np.float32([10, 20])})
    np.testing.assert_array_equal(outputs[0], np.float32([9, 18]), strict=True)
    np.testing.assert_array_equal(outputs[1], np.float32([11, 22]), strict=True)


@EACH
def test_a_scalar_is_a_tensor(runtime: Runtime, tmp_path: Path) -> None:
    text = HEAD + "g (float[n] x) => (float y) { y = ReduceSum<keepdims = 0>(x) }"
    (output,) = open_session(save(tmp_path, text), device(runtime)).run({"x": np.float32([1, 2])})
    assert isinstance(output, np.ndarray)
    assert (output.shape, output.dtype, float(output)) == ((), np.float32, 3.0)


@pytest.mark.parametrize("runtime", ["onnxruntime", "reference", OPENVINO])
@pytest.mark.parametrize("way", ["in", "out", "both"])
def test_bfloat16_is_accepted_and_returned(runtime: Runtime, way: str, tmp_path: Path) -> None:
    into = ("bfloat16", BFLOAT16) if way != "out" else ("float", np.float32)
    out = ("bfloat16", BFLOAT16) if way != "in" else ("float", np.float32)
    to = TensorProto.BFLOAT16 if way != "in" else TensorProto.FLOAT
    text = HEAD + f"g ({into[0]}[2, n] x) => ({out[0]}[2, n] y) {{ y = Cast<to = {to}>(x) }}"
    x: Any = np.array([[1, -2.5, 0], [np.inf, 0.5, 3]]).astype(into[1])
    (output,) = open_session(save(tmp_path, text), device(runtime)).run({"x": x})
    assert output.dtype == out[1]
    np.testing.assert_array_equal(output.astype(np.float64), x.astype(np.float64))


@EACH
def test_external_data_is_read_from_the_folder(runtime: Runtime, tmp_path: Path) -> None:
    model = parser.parse_model(HEAD + "g (float[2] x) => (float[2] y) { y = Add(x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(np.float32([1, 2]), "w"))
    path = tmp_path / "18.onnx"
    onnx.save(model, path, save_as_external_data=True, location="w.data", size_threshold=0)
    (output,) = open_session(path, device(runtime)).run({"x": np.zeros(2, np.float32)})
    np.testing.assert_array_equal(output, np.float32([1, 2]))
    os.truncate(tmp_path / "w.data", 3)
    with pytest.raises(LoadFailure):
        open_session(path, device(runtime))


@EACH
@pytest.mark.parametrize("content", [b"no model", b"\x08", None])
def test_an_invalid_file_is_a_load_failure(
    runtime: Runtime, content: bytes | None, tmp_path: Path
) -> None:
    path = tmp_path / "18.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LoadFailure) as raised:
        open_session(path, device(runtime))
    assert str(raised.value)
    assert str(tmp_path) not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_unknown_operator_is_a_load_failure_with_its_name(tmp_path: Path) -> None:
    path = save(tmp_path, OWN_DOMAIN + "g (float[n] x) => (float[n] y) { y = own.Unknown(x) }")
    with pytest.raises(LoadFailure, match="own:Unknown") as raised:
        open_session(path, device("onnxruntime"))
    assert not str(raised.value).startswith("[")
    with pytest.raises(LoadFailure, match=r"own|Unknown"):
        open_session(path, device("reference"))


@EACH
@pytest.mark.parametrize(
    "inputs",
    [
        {},
        {"a": np.zeros(2, np.float32)},
        {"a": np.zeros(2, np.float32), "b": np.zeros(3, np.float32)},
    ],
)
def test_inputs_of_a_wrong_shape_are_a_run_failure(
    runtime: Runtime, inputs: Any, tmp_path: Path
) -> None:
    if runtime == "openvino" and len(inputs) == 2:
        pytest.skip("OpenVINO adds sizes 2 and 3 to a size of 0, and crashes when it ends")
    session = open_session(save(tmp_path, TWO), device(runtime))
    with pytest.raises(RunFailure) as raised:
        session.run(inputs)
    assert str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("runtime", ["onnxruntime", OPENVINO, "backend"])
def test_another_input_or_dtype_is_a_run_failure(runtime: Runtime, tmp_path: Path) -> None:
    session = open_session(save(tmp_path, TWO), device(runtime))
    with pytest.raises(RunFailure, match="c"):
        session.run({name: np.zeros(2, np.float32) for name in "abc"})
    with pytest.raises(RunFailure, match=r"Unexpected input data type|the file expects f32"):
        session.run({"a": np.zeros(2), "b": np.zeros(2)})


# --- execution providers --------------------------------------------------------------------------


def test_a_missing_provider_precedes_a_missing_file_and_the_others_are_listed(
    tmp_path: Path,
) -> None:
    with pytest.raises(ProviderMissing) as raised:
        open_session(tmp_path / "18.onnx", device("onnxruntime", "NoSuchExecutionProvider"))
    assert str(raised.value).startswith("this ONNX Runtime has no NoSuchExecutionProvider; it has ")
    assert "CPUExecutionProvider" in str(raised.value)


def raise_on_every_model(model: Any, *_: Any, **__: Any) -> Any:
    raise RuntimeError("CUDA failure 100: no CUDA-capable device is detected")


def raise_on_files(model: Any, *_: Any, **__: Any) -> Any:
    if isinstance(model, bytes):
        return OnCuda()
    raise RuntimeError("this file has no kernel")


def fall_back(model: Any, *_: Any, **__: Any) -> Any:
    """Use the CPU, as ONNX Runtime without CUDA's libraries does."""
    return cpu_session(model)


@pytest.mark.parametrize(
    ("opens", "error", "message"),
    [
        (fall_back, RuntimeUnavailable, "ONNX Runtime uses CPUExecutionProvider instead"),
        (
            raise_on_every_model,
            RuntimeUnavailable,
            "does not start on this machine: CUDA failure 100",
        ),
        (raise_on_files, LoadFailure, "this file has no kernel"),
    ],
)
def test_a_provider_that_does_not_run_the_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    opens: Any,
    error: type[Exception],
    message: str,
) -> None:
    simulate_cuda(monkeypatch, opens)
    with pytest.raises(error, match=message):
        open_session(save(tmp_path, TWO), device("onnxruntime", "CUDAExecutionProvider"))


class Unconnected:
    def get_inputs(self) -> list[Any]:
        return []

    def get_outputs(self) -> list[Any]:
        return []


class OnCuda(Unconnected):
    def get_providers(self) -> list[str]:
        return ["CUDAExecutionProvider", "CPUExecutionProvider"]


def test_a_working_provider_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_cuda(monkeypatch, lambda model, *_, **__: OnCuda())
    session = open_session(save(tmp_path, TWO), device("onnxruntime", "CUDAExecutionProvider"))
    assert isinstance(session, DriverSession)
    assert session.placement is None, "this one does not tell where nodes run"


def test_nodes_are_counted_by_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class ReportingSession(OnCuda):
        def get_provider_graph_assignment_info(self) -> list[Any]:
            def part(provider: str, *operators: str) -> Any:
                nodes = [SimpleNamespace(op_type=name, domain="") for name in operators]
                return SimpleNamespace(ep_name=provider, get_nodes=lambda: nodes)

            cpu, cuda = "CPUExecutionProvider", "CUDAExecutionProvider"
            return [part(cuda, "Add", "Add"), part(cpu, "Shape"), part(cuda, "Mul")]

    simulate_cuda(monkeypatch, lambda model, *_, **__: ReportingSession())
    placed = open_session(save(tmp_path, TWO), device("onnxruntime", "CUDAExecutionProvider"))
    assert placed.placement == Placement(
        requested="CUDAExecutionProvider",
        nodes={
            "CUDAExecutionProvider": {"Add": 2, "Mul": 1},
            "CPUExecutionProvider": {"Shape": 1},
        },
    )


def test_with_only_the_cpu_the_placement_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OnCpu(Unconnected):
        def get_providers(self) -> list[str]:
            return ["CPUExecutionProvider"]

    monkeypatch.setattr(ours, "_create_session", lambda *_, **__: OnCpu())
    session = open_session(save(tmp_path, TWO), device("onnxruntime"))
    nowhere_else = {"CPUExecutionProvider": dict[str, int]()}
    assert session.placement == Placement(requested="CPUExecutionProvider", nodes=nowhere_else)


def simulate_cuda(monkeypatch: pytest.MonkeyPatch, opens: Any) -> None:
    """Replace ONNX Runtime by one that was built with CUDA."""
    names = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: names)
    monkeypatch.setattr(ours, "_create_session", opens)


def cpu_session(model: Any) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


def test_cuda_computes_in_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments: dict[str, Any] = {}

    def opens(model: Any, options: Any, **others: Any) -> Any:
        arguments.update(others)
        return OnCuda()

    names = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: names)
    monkeypatch.setattr(onnxruntime, "InferenceSession", opens)
    open_session(save(tmp_path, TWO), device("onnxruntime", *names))
    assert arguments["providers"] == names
    assert arguments["provider_options"] == [{"use_tf32": "0"}, {}]


def test_onnxruntime_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name_module("onnxruntime"), None)
    with pytest.raises(RuntimeUnavailable, match="onnxruntime cannot be imported"):
        open_session(tmp_path / "18.onnx", device("onnxruntime"))


_CODE = "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : "
_CPU = "CPUExecutionProvider"
_CONV = (
    HEAD + "g (double[1,1,4,4] x, double[1,1,2,2] w) => (double[1,1,3,3] y) {{{} y = Conv(x, w)}}"
)


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
    path = save(tmp_path, _CONV.format(f"[{name}]" if name else ""))
    node = f", node '{name}'" if name else ""
    message = f"{_CPU} has no kernel for Conv in float64 (as of opset 11{node})"
    assert describe_load_failure(_CODE + text, path, _CPU) == message


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
    assert describe_load_failure(text, save(tmp_path, _CONV.format("")), _CPU) == ""


def test_without_the_file_the_description_has_no_dtypes(tmp_path: Path) -> None:
    text = _CODE + "Could not find an implementation for Conv(11) node with name 'first'"
    message = describe_load_failure(text, tmp_path / "none.onnx", "CUDAExecutionProvider")
    assert message == "CUDAExecutionProvider has no kernel for Conv (as of opset 11, node 'first')"
    (tmp_path / "bad.onnx").write_bytes(b"\xff")
    assert describe_load_failure(text, tmp_path / "bad.onnx", _CPU) == message.replace(
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
        open_session(save(tmp_path, HEAD + graph), Device(name="cpu", runtime="onnxruntime"))
    assert str(raised.value) == f"{_CPU} has {message}"


def test_a_node_inside_a_branch_is_found(tmp_path: Path) -> None:
    branches = "<then_branch = t () => (double[1,1,3,3] a) {[in] a = Conv(x, w)},"
    branches += " else_branch = e () => (double[1,1,3,3] b) {b = Relu(z)}>"
    ends = "bool c, double[1,1,4,4] x, double[1,1,2,2] w, double[1,1,3,3] z"
    path = save(tmp_path, f"{HEAD} g ({ends}) => (double[1,1,3,3] y) {{y = If{branches}(c)}}")
    with pytest.raises(LoadFailure, match=r"no kernel for Conv in float64 .*node 'in'"):
        open_session(path, Device(name="cpu", runtime="onnxruntime"))


#: A device whose driver works in no fork: here, its file runs on the CPU of a new process.
FORKED = Device(name="gpu", runtime="onnxruntime", providers=(CPU,), device="GPU")


def refuse_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the provider fail in this process, as after a question to its driver in its parent."""

    def load_file(_: object) -> None:
        raise DriverFailure("unavailable", "the GPU does not start", "initialization error")

    monkeypatch.setattr(runtime_registry, "load_file", load_file)
    monkeypatch.setattr(runtime_registry, "_ABSENT", set())
    monkeypatch.setattr(runtime_registry, "_ACCELERATORS", set())


def test_a_device_that_no_fork_can_use_runs_in_a_new_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_forks(monkeypatch)
    session = open_session(save(tmp_path, TWO), FORKED)
    outputs = session.run({"a": np.float32([10]), "b": np.float32([1])})
    assert [float(each[0]) for each in outputs] == [9.0, 11.0]
    with pytest.raises(RuntimeUnavailable, match="the GPU does not start"):
        open_session(save(tmp_path, TWO), FORKED.model_copy(update={"device": "", "name": "cpu"}))


@pytest.mark.parametrize(
    ("settings", "is_known"),
    [
        ({"runtime": "onnxruntime", "providers": ("CUDAExecutionProvider", CPU)}, True),
        ({"runtime": "openvino", "device": "GPU"}, True),
        ({"runtime": "openvino", "device": "GPU.1"}, False),
        ({"runtime": "onnxruntime", "providers": (CPU,)}, False),
        ({"runtime": "reference"}, False),
    ],
)
def test_the_absence_of_a_device_is_that_of_its_files(
    settings: dict[str, Any], is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested = Device(name="x", **settings)
    monkeypatch.setattr(runtime_registry, "IS_LINUX", True)
    monkeypatch.setattr(os.path, "lexists", lambda _: False)
    assert bool(list_absent_files(tested)) is is_known
    monkeypatch.setattr(os.path, "lexists", lambda file: file == "/dev/dxg")
    assert list_absent_files(tested) == ()


def test_a_file_that_a_working_device_refuses_is_an_error_with_the_reason_of_the_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_forks(monkeypatch)
    file = save(tmp_path, OWN_DOMAIN + "g (float[n] x) => (float[n] y) { y = own.Unknown(x) }")
    with pytest.raises(LoadFailure, match="Unknown"):
        open_session(file, FORKED)


def test_a_device_that_starts_in_no_process_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_forks(monkeypatch)
    starts: list[str] = []

    def start(_: object, interpreter: str, environment: str) -> None:
        starts.append(environment)
        assert interpreter == sys.executable
        raise DriverFailure("unavailable", "another reason")

    monkeypatch.setattr(runtime_registry, "RuntimeProcess", start)
    for _ in range(2):
        with pytest.raises(RuntimeUnavailable, match="the GPU does not start"):
            open_session(save(tmp_path, TWO), FORKED)
    assert starts == ["gpu"]
