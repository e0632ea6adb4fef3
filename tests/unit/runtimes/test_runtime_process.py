"""Drivers in a process of another environment: here the running one, started separately."""

from __future__ import annotations

import ast
import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, parser
from onnx.helper import tensor_dtype_to_np_dtype

from exporter.manifest import Device, RuntimeEnvironment
from exporter.manifest.syntax.runtimes import RUNTIMES
from exporter.runtimes import (
    NO_KERNELS,
    LoadFailure,
    RunFailure,
    RuntimeProcessEnd,
    RuntimeUnavailable,
    Session,
    open_session,
    runtime_process,
    start_runtime_processes,
)
from exporter.runtimes.drivers import DRIVER_FOLDER, onnxruntime_driver
from exporter.runtimes.drivers.driver import Bits, DriverFailure, name_module
from exporter.runtimes.drivers.server import read_message, write_message
from exporter.runtimes.load_figures import measure_file_load
from exporter.runtimes.runtime_process import RuntimeProcess, end_runtime_processes
from exporter.runtimes.runtime_registry import DriverSession
from tests.unit.runtimes.test_custom_kernels import REPORTS_PLACEMENT

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'
NEGATE = HEAD + "g (float[n] x) => (float[n] y) { y = Neg(x) }"
BFLOAT16 = tensor_dtype_to_np_dtype(TensorProto.BFLOAT16)
MODULES = sorted(DRIVER_FOLDER.glob("*.py"))


def separate(runtime: str = "onnxruntime", **fields: Any) -> Device:
    """Return a device in an environment with the running interpreter."""
    environment = RuntimeEnvironment(name="own", requirements=("x",), interpreter=sys.executable)
    return Device(name="d", runtime=runtime, environment=environment, **fields)


def opened(folder: Path, text: str, device: Device) -> Session:
    path = folder / "18.onnx"
    onnx.save(parser.parse_model(text), path)
    return open_session(path, device)


@pytest.mark.parametrize("runtime", ["onnxruntime", "reference"])
def test_a_process_runs_a_file_again_and_again(runtime: str, tmp_path: Path) -> None:
    session = opened(tmp_path, NEGATE, separate(runtime))
    assert session.output_names == ("y",)
    for size in (2, 0, 3):
        (output,) = session.run({"x": np.ones(size, np.float32)})
        np.testing.assert_array_equal(output, -np.ones(size, np.float32), strict=True)
    assert session.placement is not None
    is_reported = runtime == "reference" or REPORTS_PLACEMENT
    counts = [sum(nodes.values()) for nodes in session.placement.nodes.values()]
    assert counts == [1 if is_reported else 0]


def test_bfloat16_passes_the_pipe(tmp_path: Path) -> None:
    text = NEGATE.replace("float[", "bfloat16[").replace("Neg", "Identity")
    x: Any = np.array([1.5, -2]).astype(BFLOAT16)
    (output,) = opened(tmp_path, text, separate()).run({"x": x})
    assert output.dtype == BFLOAT16
    np.testing.assert_array_equal(output.astype(np.float32), np.float32([1.5, -2]))


def test_sequences_and_strings_pass_the_pipe(tmp_path: Path) -> None:
    text = (
        HEAD
        + """g (float[n] x, string[1] s) => (seq(float[n]) y, string[1] t)
    { y = SequenceConstruct(x, x) t = Identity(s) }"""
    )
    inputs = {"x": np.float32([1, 2]), "s": np.array(["ä\0"], object)}
    sequence, strings = opened(tmp_path, text, separate()).run(inputs)
    assert [item.tolist() for item in sequence] == [[1, 2], [1, 2]]
    assert np.asarray(strings).tolist() == ["ä\0"]


@pytest.mark.parametrize(
    "value",
    [
        np.float32(1.5).reshape(()),
        np.zeros((2, 0, 3), np.int64),
        np.arange(6, dtype=np.uint8).reshape(2, 3).T,
        np.array([[True], [False]]),
        np.array([1 + 2j], np.complex64),
        Bits("float8_e4m3fn", np.uint8([1, 2])),
        [np.int32([1]), np.int32([])],
        [],
        None,
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_is_equal_after_a_message(value: Any) -> None:
    stream = io.BytesIO()
    write_message(stream, {"key": 1}, [value])
    stream.seek(0)
    header, (result,) = read_message(stream)
    assert header == {"key": 1}
    assert stream.read() == b""
    if isinstance(value, list):
        assert [item.tolist() for item in result] == [item.tolist() for item in value]
    elif isinstance(value, Bits):
        assert (result.dtype, result.values.tolist()) == (value.dtype, value.values.tolist())
    elif value is None:
        assert result is None
    else:
        np.testing.assert_array_equal(result, value, strict=True)
        assert result.flags.writeable


def test_objects_are_never_restored_from_a_message() -> None:
    stream = io.BytesIO()
    with pytest.raises(TypeError, match="datetime64"):
        write_message(stream, {}, [np.zeros(1, "datetime64[s]")])
    text = b'{"values": [{"kind": "tensor", "dtype": "object", "shape": [1], "bytes": 8}]}'
    damaged = io.BytesIO(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises(ValueError, match="object"):
        read_message(damaged)


def test_failures_of_the_process_are_those_of_a_session(tmp_path: Path) -> None:
    with pytest.raises(RuntimeUnavailable, match="has no NoSuchProvider; it has"):
        opened(tmp_path, NEGATE, separate(providers=("NoSuchProvider",)))
    with pytest.raises(LoadFailure, match="Unknown") as raised:
        opened(tmp_path, NEGATE.replace("Neg", "Unknown"), separate())
    assert str(tmp_path) not in str(raised.value)
    session = opened(tmp_path, NEGATE, separate())
    with pytest.raises(RunFailure, match="Unexpected input data type"):
        session.run({"x": np.zeros(2)})
    (output,) = session.run({"x": np.float32([1])})
    assert np.asarray(output).tolist() == [-1], "the process still runs"


def test_a_format_that_is_too_new_has_advice(tmp_path: Path) -> None:
    text = NEGATE.replace("ir_version: 8", "ir_version: 99")
    expected = r"the file has IR version 99, and this release loads up to \d+; set `ir_version = "
    with pytest.raises(LoadFailure, match=expected):
        opened(tmp_path, text, separate())


@pytest.mark.parametrize(("number", "is_killed"), [(9, True), (11, False)])
def test_the_end_of_the_process_is_no_verdict_on_the_file(
    number: int, is_killed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_process, "_IDLE", {})
    session = opened(tmp_path, NEGATE, separate())
    process = find_process(session)
    process.send_signal(number)
    process.wait()
    name = "SIGKILL" if is_killed else "SIGSEGV"
    with pytest.raises(RuntimeProcessEnd, match=f"own died by {name} while it ran") as raised:
        session.run({"x": np.float32([1])})
    assert raised.value.is_killed is is_killed


def find_process(session: Session) -> subprocess.Popen[bytes]:
    assert isinstance(session, DriverSession)
    assert isinstance(session._driver, RuntimeProcess)
    return session._driver._server.process


def test_the_next_file_uses_the_process_of_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_process, "_IDLE", {})
    with pytest.raises(LoadFailure):
        opened(tmp_path, NEGATE.replace("Neg", "Unknown"), separate())
    first, second = (opened(tmp_path, NEGATE, separate()) for _ in range(2))
    assert find_process(first) is not find_process(second), "the first one runs a file"
    process = find_process(first)
    del first
    third = opened(tmp_path, NEGATE.replace("Neg", "Abs"), separate())
    assert find_process(third) is process
    (output,) = third.run({"x": np.float32([-2])})
    assert np.asarray(output).tolist() == [2]


def test_a_process_that_ended_after_earlier_files_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_process, "_IDLE", {})
    start_runtime_processes([separate(), separate()])
    ((server,),) = runtime_process._IDLE.values()
    session = opened(tmp_path, NEGATE, separate())
    assert find_process(session) is server.process
    for _ in range(2):
        server.process.kill()
        server.process.wait()
        (output,) = session.run({"x": np.float32([3])})
        assert np.asarray(output).tolist() == [-3]


def test_forks_share_the_processes_that_run_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_process, "_IDLE", {})
    start_runtime_processes([separate()])
    ((server,),) = runtime_process._IDLE.values()
    for kills in (False, True, False):
        if (pid := os.fork()) == 0:
            code = 1
            try:
                session = opened(tmp_path, NEGATE, separate())
                (output,) = session.run({"x": np.float32([3])})
                if kills:
                    os.kill(server.process.pid, signal.SIGKILL)
                    (output,) = session.run({"x": np.float32([3])})
                code = int(np.asarray(output).tolist() != [-3])
                del session
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
    (output,) = opened(tmp_path, NEGATE, separate()).run({"x": np.float32([4])})
    assert np.asarray(output).tolist() == [-4]


def test_a_fork_that_ends_inside_of_a_message_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_process, "_IDLE", {})
    start_runtime_processes([separate()])
    ((server,),) = runtime_process._IDLE.values()
    if (pid := os.fork()) == 0:
        session = opened(tmp_path, NEGATE, separate())
        monkeypatch.setattr(runtime_process, "read_message", lambda _: os._exit(0))
        session.run({"x": np.float32([3])})  # nobody reads the response
    os.waitpid(pid, 0)
    end_runtime_processes()
    assert server.process.poll() == -signal.SIGKILL
    (output,) = opened(tmp_path, NEGATE, separate()).run({"x": np.float32([4])})
    assert np.asarray(output).tolist() == [-4]


def test_an_environment_that_was_not_created_is_unavailable(tmp_path: Path) -> None:
    environment = RuntimeEnvironment(name="ort117", requirements=("onnxruntime==1.17.3",))
    device = Device(name="d", runtime="onnxruntime", environment=environment)
    with pytest.raises(RuntimeUnavailable, match="ort117 is not created; run `exporter export`"):
        opened(tmp_path, NEGATE, device)
    failed = environment.model_copy(update={"problem": "pip cannot install it"})
    with pytest.raises(RuntimeUnavailable, match="pip cannot install it"):
        opened(tmp_path, NEGATE, device.model_copy(update={"environment": failed}))


def test_options_of_a_session_are_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    build_options = onnxruntime_driver._build_options

    def spy(request: Any) -> Any:
        seen.append(build_options(request))
        return seen[-1]

    monkeypatch.setattr(onnxruntime_driver, "_build_options", spy)
    options: dict[str, Any] = {
        "enable_mem_pattern": False,
        "session.use_env_allocators": True,
        "intra_op_num_threads": 2,
        "graph_optimization_level": "ORT_DISABLE_ALL",
    }
    device = Device(name="d", runtime="onnxruntime", session_options=options)
    opened(tmp_path, NEGATE, device)
    assert seen[0].enable_mem_pattern is False
    assert seen[0].intra_op_num_threads == 2
    assert seen[0].get_session_config_entry("session.use_env_allocators") == "1"
    assert seen[0].graph_optimization_level.name == "ORT_DISABLE_ALL"
    assert device.settings == (
        "intra_op_num_threads=2, enable_mem_pattern=False, session.use_env_allocators=True, "
        "graph_optimization_level=ORT_DISABLE_ALL"
    )
    for name, value in (("no_such_option", 1), ("graph_optimization_level", "none")):
        rejected = device.model_copy(update={"session_options": {name: value}})
        with pytest.raises(RuntimeUnavailable, match=f"rejects the session option {name}"):
            opened(tmp_path, NEGATE, rejected)


def test_a_session_has_only_visible_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain session of a consumer differs in nothing else."""
    seen: list[Any] = []
    build_options = onnxruntime_driver._build_options
    monkeypatch.setattr(
        onnxruntime_driver, "_build_options", lambda r: seen.append(build_options(r)) or seen[-1]
    )
    opened(tmp_path, NEGATE, Device(name="d", runtime="onnxruntime"))
    plain = onnxruntime.SessionOptions()
    names = [name for name, kind in vars(type(plain)).items() if isinstance(kind, property)]
    changed = {name for name in names if getattr(seen[0], name) != getattr(plain, name)}
    assert changed == {"intra_op_num_threads", "log_severity_level"}
    assert Device(name="d", runtime="onnxruntime").settings == "1 thread"
    web = Device(name="w", runtime="web")
    assert (web.settings, Device(name="r", runtime="reference").settings) == ("1 thread", "")
    cuda = Device(name="c", runtime="onnxruntime", providers=("CUDAExecutionProvider",))
    assert cuda.settings == "CUDAExecutionProvider.use_tf32=0, NVIDIA_TF32_OVERRIDE=0, 1 thread"


def test_a_library_that_is_no_provider_is_unavailable(tmp_path: Path) -> None:
    library = tmp_path / "provider.so"
    library.write_bytes(b"no library")
    device = separate(providers=("OwnProvider",), provider_library=str(library))
    has_plugins = hasattr(onnxruntime, "register_execution_provider_library")
    problem = "the library of OwnProvider cannot be loaded" if has_plugins else "use 1.23 or later"
    with pytest.raises(RuntimeUnavailable, match=problem):
        opened(tmp_path, NEGATE, device)


def test_a_process_has_the_variables_of_its_device(tmp_path: Path) -> None:
    devices = [
        separate(variables={"OWN_VARIABLE": "1"}),
        separate(variables={"OWN_VARIABLE": "2"}),
        separate(),
    ]
    sessions = [opened(tmp_path, NEGATE, device) for device in devices]
    processes = [find_process(session).pid for session in sessions]
    assert len(set(processes)) == 3
    texts = [Path(f"/proc/{process}/environ").read_bytes() for process in processes]
    expected = [b"OWN_VARIABLE=1", b"OWN_VARIABLE=2", None]
    for text, variable in zip(texts, expected, strict=True):
        found = [each for each in text.split(b"\0") if each.startswith(b"OWN_VARIABLE=")]
        assert found == ([variable] if variable else [])


def test_a_missing_file_in_a_variable_is_unavailable(tmp_path: Path) -> None:
    device = separate(variables={"VK_ICD_FILENAMES": f"{tmp_path}:/no/icd.json", "A": "b/c"})
    message = "/no/icd.json does not exist; install it, or correct VK_ICD_FILENAMES in `variables`"
    start_runtime_processes([device])
    with pytest.raises(RuntimeUnavailable, match=message):
        opened(tmp_path, NEGATE, device)


def test_two_libraries_with_one_provider_need_two_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ONNX Runtime has one table of providers, so the second library would never run."""
    names: list[SimpleNamespace] = []
    monkeypatch.setattr(onnxruntime_driver, "_REGISTERED", {})
    monkeypatch.setattr(onnxruntime, "get_ep_devices", lambda: names, raising=False)
    monkeypatch.setattr(
        onnxruntime,
        "register_execution_provider_library",
        lambda name, library: names.append(SimpleNamespace(ep_name=name)),
        raising=False,
    )
    onnxruntime_driver._register_provider("/lib/one.so", "Own")
    onnxruntime_driver._register_provider("/lib/one.so", "Own")
    assert len(names) == 1
    with pytest.raises(DriverFailure) as failed:
        onnxruntime_driver._register_provider("/lib/two.so", "Own")
    assert "has a provider Own from another library" in failed.value.problem


@pytest.mark.parametrize(
    ("provider", "kinds", "is_emulated"),
    [
        ("WebGpuExecutionProvider", ["CPU"], True),
        ("WebGpuExecutionProvider", ["CPU", "GPU"], False),
        ("OpenVINOExecutionProvider", ["CPU"], False),
    ],
)
def test_an_accelerator_with_only_a_processor_is_software(
    provider: str, kinds: list[str], monkeypatch: pytest.MonkeyPatch, *, is_emulated: bool
) -> None:
    kind = SimpleNamespace(CPU="CPU")
    devices = [
        SimpleNamespace(ep_name=provider, device=SimpleNamespace(type=each)) for each in kinds
    ]
    monkeypatch.setattr(onnxruntime, "OrtHardwareDeviceType", kind, raising=False)
    monkeypatch.setattr(onnxruntime, "get_ep_devices", lambda: devices, raising=False)
    assert onnxruntime_driver._is_emulated(provider) is is_emulated


@pytest.mark.parametrize("has_environment", [True, False])
def test_load_time_and_memory_of_a_file(tmp_path: Path, *, has_environment: bool) -> None:
    large, small = tmp_path / "large.onnx", tmp_path / "small.onnx"
    onnx.save(parser.parse_model(NEGATE), small)
    weight = onnx.numpy_helper.from_array(np.ones((4096, 4096), np.float32), "w")
    model = parser.parse_model(
        '<ir_version: 7, opset_import: ["" : 13]> g (float[1, 4096] x) => (float[1, 4096] y) '
        "{y = MatMul(x, w)}"
    )
    model.graph.initializer.append(weight)
    onnx.save(model, large)
    cpu = separate() if has_environment else Device(name="cpu", runtime="onnxruntime")
    inputs = {"x": np.ones((1, 4096), np.float32)}
    figures = measure_file_load(large, small, cpu, NO_KERNELS, inputs)
    assert 0 < figures.small_seconds < figures.seconds < 30
    assert 64 << 20 < figures.bytes < 400 << 20, "its weights are 64 MiB"


def test_a_file_that_does_not_run_has_no_figures(tmp_path: Path) -> None:
    onnx.save(parser.parse_model(NEGATE), tmp_path / "small.onnx")
    path, inputs = tmp_path / "small.onnx", {"other": np.ones(1, np.float32)}
    with pytest.raises(DriverFailure, match="run"):
        measure_file_load(path, path, separate(), NO_KERNELS, inputs)


def test_the_probe_is_a_model() -> None:
    onnx.checker.check_model(onnx.load_from_string(onnxruntime_driver.PROBE))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_driver_needs_only_numpy_and_its_runtime(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"), feature_version=(3, 8))
    imported = {
        name.split(".")[0] if not name.startswith("exporter.") else name.rpartition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    runtimes = {"onnx", "onnxruntime", "openvino", "tract", "ml_dtypes"}
    allowed = {"numpy", "exporter.runtimes.drivers", "exporter.runtimes", *sys.stdlib_module_names}
    assert imported <= allowed | (runtimes if path.stem != "server" else set())
    if path.stem in ("server", "frames", "__main__"):
        assert not imported & runtimes


def test_every_driver_has_a_module() -> None:
    modules = {name_module(name).rpartition(".")[2] for name in RUNTIMES}
    assert modules == {path.stem for path in DRIVER_FOLDER.glob("*_driver.*")}
