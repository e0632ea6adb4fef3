"""Kernels from a manifest, and the sessions that use them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

from exporter.manifest import CustomOp, Device
from exporter.runtimes import Kernels, LoadFailure, open_session
from exporter.worker.model.kernels import InvalidKernel, load_kernels
from tests.unit.factory import make_spec

#: Releases of ONNX Runtime below 1.24 do not report the provider of each node.
REPORTS_PLACEMENT = hasattr(onnxruntime.InferenceSession, "get_provider_graph_assignment_info")

SOURCE = """
from pathlib import Path

from onnx.reference.op_run import OpRun


class Twice(OpRun):
    op_domain = "own"

    def _run(self, x):
        return (x * 2,)


class Relu(OpRun):
    def _run(self, x):
        return (x,)


class Plain:
    pass


value = 3


def library():
    return Path(__file__).with_name("libfoo.so")


def gone():
    return "/no/such/folder/libgone.so"


def nothing():
    return None


def broken():
    raise OSError("no licence")
"""
HEAD = '<ir_version: 8, opset_import: ["" : 18, "own" : 1]>\n'
DOUBLE = HEAD + "g (float[n] x) => (float[n] y) { y = own.Twice(x) }"
IN_A_FUNCTION = (
    HEAD
    + """g (float[n] x) => (float[n] y) { y = own.four(x) }
<domain: "own", opset_import: ["" : 18, "own" : 1]>
four (a) => (b) { h = own.Twice(a) b = own.Twice(h) }"""
)
IN_A_BRANCH = (
    HEAD
    + """g (float[n] x, bool c) => (float[n] y) {
  y = If(c) <then_branch = t () => (float[n] a) { a = own.Twice(x) },
            else_branch = e () => (float[n] b) { b = Identity(x) }>
}"""
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a-source.py").write_text(SOURCE)
    (tmp_path / "libfoo.so").write_bytes(b"no library at all")
    return tmp_path


def kernels(folder: Path, **named: str) -> Kernels:
    spec = make_spec(manifest="net.toml", custom_ops=(CustomOp(name="own::Twice", **named),))
    return load_kernels(spec, folder)


def reference(folder: Path, text: str, result: Kernels, **inputs: object) -> np.ndarray:
    onnx.save(parser.parse_model(text), folder / "18.onnx")
    session = open_session(folder / "18.onnx", Device(name="r", runtime="reference"), result)
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    (output,) = session.run(arrays)
    return output


@pytest.mark.parametrize(
    ("text", "more", "factor"),
    [(DOUBLE, {}, 2), (IN_A_FUNCTION, {}, 4), (IN_A_BRANCH, {"c": True}, 2)],
)
def test_a_kernel_for_the_reference_runtime_runs_in_subgraphs_and_functions(
    text: str, more: dict[str, object], factor: int, folder: Path
) -> None:
    result = kernels(folder, reference="a-source.py:Twice")
    x = np.float32([1, -2])
    np.testing.assert_array_equal(reference(folder, text, result, x=x, **more), x * factor)


def test_a_function_of_the_file_is_not_replaced_by_a_kernel(folder: Path) -> None:
    text = IN_A_FUNCTION.replace("own.four", "own.Twice").replace("four (a)", "Twice (a)")
    text = text.replace("h = own.Twice(a) b = own.Twice(h)", "b = Neg(a)")
    result = kernels(folder, reference="a-source.py:Twice")
    x = np.float32([1, -2])
    np.testing.assert_array_equal(reference(folder, text, result, x=x), -x)


def test_without_the_kernel_the_file_is_refused(folder: Path) -> None:
    with pytest.raises(LoadFailure, match="Twice"):
        reference(folder, DOUBLE, Kernels(), x=np.float32([1]))


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"reference": "a-source.py:Plain"}, "is another class, expected an onnx.reference"),
        ({"reference": "a-source.py:value"}, "is a int, expected an onnx.reference"),
        # It would replace ONNX's own operator in every file of this model.
        ({"reference": "a-source.py:Relu"}, "has no op_domain: it would replace ONNX's own Relu"),
        ({"ort_library": "a-source.py:value"}, "is a int, expected a function"),
        ({"ort_library": "a-source.py:nothing"}, "returned a NoneType, expected the path"),
        ({"ort_library": "a-source.py:gone"}, "the file libgone.so does not exist"),
        ({"ort_library": "libgone.so"}, "the file libgone.so does not exist"),
    ],
)
def test_an_invalid_kernel_is_reported(named: dict[str, str], message: str, folder: Path) -> None:
    with pytest.raises(InvalidKernel) as raised:
        kernels(folder, **named)
    assert message in str(raised.value)
    assert str(folder) not in str(raised.value)


def test_an_exception_of_user_code_is_not_changed(folder: Path) -> None:
    with pytest.raises(OSError, match="no licence"):
        kernels(folder, ort_library="a-source.py:broken")


def test_one_library_is_registered_once(folder: Path) -> None:
    ops = tuple(
        CustomOp(name="own::Foo", ort_library=text)
        for text in ("libfoo.so", "a-source.py:library", "./libfoo.so")
    )
    result = load_kernels(make_spec(manifest="net.toml", custom_ops=ops), folder)
    assert result.libraries == ((folder / "libfoo.so").resolve(),)


def test_a_library_that_does_not_load_is_a_failure_without_paths(folder: Path) -> None:
    onnx.save(parser.parse_model(DOUBLE), folder / "18.onnx")
    result = kernels(folder, ort_library="libfoo.so")
    with pytest.raises(LoadFailure) as raised:
        open_session(folder / "18.onnx", Device(name="cpu", runtime="onnxruntime"), result)
    assert "the kernels of libfoo.so cannot be registered" in str(raised.value)
    assert str(folder) not in str(raised.value)


def test_a_model_without_custom_operators_imports_nothing(tmp_path: Path) -> None:
    assert load_kernels(make_spec(), tmp_path / "nowhere") == Kernels()


INVERSE = """<ir_version: 8, opset_import: ["" : 15, "ai.onnx.contrib" : 1]>
g (float[n, n] x) => (float[n, n] y) { y = ai.onnx.contrib.Inverse(x) }
"""


def compiled() -> Kernels:
    """Return a real library with a kernel for `ai.onnx.contrib::Inverse`."""
    extensions = pytest.importorskip("onnxruntime_extensions")
    return Kernels(libraries=(Path(extensions.get_library_path()),))


def test_a_compiled_kernel_runs(tmp_path: Path) -> None:
    onnx.save(parser.parse_model(INVERSE), tmp_path / "18.onnx")
    cpu = Device(name="cpu", runtime="onnxruntime")
    session = open_session(tmp_path / "18.onnx", cpu, compiled())
    (output,) = session.run({"x": np.float32([[2, 0], [0, 4]])})
    np.testing.assert_allclose(output, [[0.5, 0], [0, 0.25]])
    with pytest.raises(LoadFailure, match=r"ai\.onnx\.contrib"):
        open_session(tmp_path / "18.onnx", cpu)


def test_a_kernel_that_hides_a_function_of_the_file_is_refused(tmp_path: Path) -> None:
    function = """<domain: "ai.onnx.contrib", opset_import: ["" : 15]>
Inverse (a) => (b) { b = Neg(a) }"""
    onnx.save(parser.parse_model(INVERSE + function), tmp_path / "18.onnx")
    cpu = Device(name="cpu", runtime="onnxruntime")
    (output,) = open_session(tmp_path / "18.onnx", cpu).run({"x": np.float32([[2]])})
    assert output == -2
    with pytest.raises(LoadFailure, match=r"replaces ai\.onnx\.contrib::Inverse"):
        open_session(tmp_path / "18.onnx", cpu, compiled())


def test_functions_of_the_file_are_kept_next_to_kernels(tmp_path: Path) -> None:
    function = """<domain: "ai.onnx.contrib", opset_import: ["" : 15]>
Turned (a) => (b) { b = Neg(a) }"""
    text = INVERSE.replace("y = ai", "h = ai").replace(
        "(x) }", "(x) y = ai.onnx.contrib.Turned(h) }"
    )
    onnx.save(parser.parse_model(text + function), tmp_path / "18.onnx")
    cpu = Device(name="cpu", runtime="onnxruntime")
    if not REPORTS_PLACEMENT:
        with pytest.raises(LoadFailure, match="does not report whether a registered kernel"):
            open_session(tmp_path / "18.onnx", cpu, compiled())
        return
    (output,) = open_session(tmp_path / "18.onnx", cpu, compiled()).run({"x": np.float32([[2]])})
    assert output == -0.5
