"""The runtimes that a device can name, and the settings of their sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple


class RuntimeRow(NamedTuple):
    """The properties of a runtime."""

    title: str = ""
    """The name in reports; empty: that of the module of the device."""
    package: str = ""
    """The package with its version; empty: the module of the device."""
    oldest: str = ""
    """The oldest version of the package that works; empty: `doctor` does not examine it."""
    keys: tuple[str, ...] = ()
    """The keys of a device that only some runtimes take."""
    required: str = ""
    """The required one of them, with an example: `module = "onnxruntime.backend"`."""
    settings: Mapping[str, str | int] = {}
    """Settings of every session."""
    kernels: Literal["ort_library", "reference"] | None = None
    """The key of `custom_ops` with kernels for it."""
    explains_kernels: bool = False
    """Whether its own message names the operators that it lacks."""
    domains: frozenset[str] = frozenset()
    """The domains with kernels in every release, besides those of ONNX."""
    has_releases: bool = False
    """Whether it has the releases of ONNX Runtime, their limits and their messages."""
    needs_node: bool = False
    """Whether it is a package of npm, which a process of Node runs without access to files."""
    has_script: bool = False
    """Whether `templates/repro.py.jinja` runs a file on it."""

    @property
    def is_package(self) -> bool:
        """Whether no module of the project can be a part of it."""
        return bool(self.package) and self.kernels != "reference"


#: The properties of a runtime of another package.
PLUGIN = RuntimeRow(keys=("providers", "strict", "device"), explains_kernels=True)
#: Value of `runtime` -> its properties. By default, OpenVINO computes float32 graphs in bfloat16 on
#: processors that have it, an error of 1e-2. One thread, because several workers run.
RUNTIMES: Mapping[str, RuntimeRow] = {
    "onnxruntime": RuntimeRow(
        "ONNX Runtime",
        "onnxruntime",
        oldest="1.20",
        keys=(
            *("providers", "strict", "session_options"),
            *("provider_options", "provider_library"),
        ),
        required='providers = ["CUDAExecutionProvider"]',
        settings={"intra_op_num_threads": 1},
        kernels="ort_library",
        domains=frozenset({"com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"}),
        has_releases=True,
        has_script=True,
    ),
    "openvino": RuntimeRow(
        "OpenVINO",
        "openvino",
        oldest="2024.6",
        keys=("device", "session_options"),
        settings={
            "INFERENCE_PRECISION_HINT": "f32",
            "EXECUTION_MODE_HINT": "ACCURACY",
            "INFERENCE_NUM_THREADS": 1,
        },
        has_script=True,
    ),
    "reference": RuntimeRow("onnx.reference", "onnx", kernels="reference", has_script=True),
    "tract": RuntimeRow("tract", "tract", explains_kernels=True),
    "web": RuntimeRow(
        "ONNX Runtime Web",
        "onnxruntime-web",
        settings={"wasm.numThreads": 1},
        explains_kernels=True,
        has_releases=True,
        needs_node=True,
    ),
    "backend": RuntimeRow(
        keys=("module", "device"), required='module = "onnxruntime.backend"', has_script=True
    ),
}
#: Provider -> options of every session. By default, CUDA's kernels round float32 to the 10 bits of
#: TF32 on every GPU that supports it, an error of 1e-3.
PROVIDER_SETTINGS: Mapping[str, Mapping[str, str]] = {"CUDAExecutionProvider": {"use_tf32": "0"}}
#: The first letters of devices and providers of NVIDIA.
NVIDIA = ("CUDA", "Tensorrt", "NvTensorRT")
