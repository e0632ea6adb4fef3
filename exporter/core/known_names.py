"""The tables of checks, of runtimes, and of releases of ONNX Runtime.

Sources of the releases: up to 1.14 the compatibility table of ONNX Runtime's documentation
(onnxruntime.ai); from 1.15 on, tests with the Python package of each release, with files that
differ in these two numbers only. The packages `onnxruntime-web` 1.17 to 1.25 and 1.30 have the same
limits by the same test. Missing kernels and custom domains are not considered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

#: The result of a load that fails after a structure check has failed.
LOAD_CHECK = "load"
#: The check of two runs of PyTorch, which decides if comparisons with PyTorch mean anything.
DETERMINISM_CHECK = "determinism"


class CheckRow(NamedTuple):
    """The properties of a check; `exporter.checks` has its function."""

    stage: str = "parity"
    decides: bool = False
    """Whether the results of other checks mean nothing if it fails."""
    compares: bool = False
    """Whether it compares a file with runs of PyTorch."""
    is_short: bool = False
    """Whether it runs on a further device. Others judge the file or PyTorch, on any device."""
    code: str = ""
    """The code of its failures; empty: `E-NAME`."""


_COMPARISON = CheckRow(compares=True, is_short=True)
#: The checks in the order of the report.
CHECKS: Mapping[str, CheckRow] = {
    **dict.fromkeys(("opset", "wellformed", "signature"), CheckRow("structure")),
    LOAD_CHECK: CheckRow("load"),
    "placement": CheckRow(decides=True, is_short=True),
    DETERMINISM_CHECK: CheckRow(decides=True, code="E-random"),
    "power": CheckRow(decides=True, compares=True),
    **dict.fromkeys(("parity", "axes", "cases", "values"), _COMPARISON),
    "tables": CheckRow(),
    **dict.fromkeys(("metric", "rollout"), _COMPARISON),
}
COMPARISON_CHECKS = frozenset(name for name, row in CHECKS.items() if row.compares)


def _list_codes(stage: str, *, decides: bool = False) -> dict[str, Mapping[str, str]]:
    return {
        row.code or f"E-{name}": {"check": name}
        for name, row in CHECKS.items()
        if row.stage == stage and row.decides is decides
    }


#: Code -> the fields of a red record, as regular expressions; the first code whose fields all match
#: is its code. Codes never change their meaning. `docs/failures.md` explains each one.
FAILURE_CODES: Mapping[str, Mapping[str, str]] = {
    "E-unexpected-pass": {"status": "xpass"},
    "E-killed": {"status": "killed"},
    "E-timeout": {"status": "timeout"},
    "E-crash": {"status": "crash"},
    "E-pass": {"message": r"(.*\": )?pass \d+ of \d+ \("},
    "E-entry": {"stage": "source", "message": r"\S+\.toml(:\d+)?: "},
    "E-contract": {"status": "fail", "place": r"source |parity .*PyTorch itself fails on "},
    "E-import": {
        "stage": "source",
        "message": r".*in the import of "
        r"|(.*\": )?(\w*Import|ModuleNotFound|Syntax|Indentation)Error\b",
    },
    "E-weights": {"stage": "source", "message": r".*(`weights|\bweights\b|sha256)"},
    "E-source": {"stage": "source"},
    "E-capture": {"stage": "capture"},
    "E-operator": {"stage": "convert", "missing": "yes"},
    "E-convert": {"stage": "convert"},
    "E-axis-fixed": {"check": "signature", "message": r".*axis '.*' of .* is fixed at \d"},
    "E-axis-name": {"check": "signature", "message": r".*axis '.*' of .* has (no|the) name"},
    "E-input-ignored": {"check": "signature", "message": r".*the graph ignores input"},
    "E-weight-names": {"check": "signature", "message": r".*(no|the) weight\b"},
    **_list_codes("structure"),
    "E-load": {"stage": "load"},
    **_list_codes("parity", decides=True),
    "E-unproved": {"status": "inconclusive"},
    "E-tolerance": {"culprit": "precision"},
    "E-runtime": {"culprit": "ONNX Runtime optimizer|kernel|runtime"},
    "E-state": {"culprit": "model"},
    **_list_codes("parity"),
    "E-worker": {},
}


#: The value of `hardware` in the figures of `placement` if a processor emulates the device.
SOFTWARE = "software"


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
            *("optimization", "provider_options", "provider_library"),
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
#: The first letters of devices and providers of NVIDIA, and the variables of their processes.
NVIDIA = ("CUDA", "Tensorrt", "NvTensorRT")
NVIDIA_VARIABLES: Mapping[str, str] = {"NVIDIA_TF32_OVERRIDE": "0"}


Release = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ReleaseLimits:
    """The highest opset and IR version that a release of ONNX Runtime loads."""

    release: Release
    opset: int
    ir_version: int


#: Releases in order; if several have the same limits, only the first.
RELEASES: tuple[ReleaseLimits, ...] = (
    ReleaseLimits((0, 1), 8, 3),
    ReleaseLimits((0, 3), 9, 3),
    ReleaseLimits((0, 4), 10, 5),
    ReleaseLimits((1, 0), 11, 6),
    ReleaseLimits((1, 3), 12, 7),
    ReleaseLimits((1, 6), 13, 7),
    ReleaseLimits((1, 8), 14, 7),
    ReleaseLimits((1, 9), 15, 8),
    ReleaseLimits((1, 11), 16, 8),
    ReleaseLimits((1, 12), 17, 8),
    ReleaseLimits((1, 14), 18, 8),
    ReleaseLimits((1, 15), 19, 9),
    ReleaseLimits((1, 17), 20, 9),
    ReleaseLimits((1, 18), 21, 10),
    ReleaseLimits((1, 21), 22, 10),
    ReleaseLimits((1, 23), 23, 11),
    ReleaseLimits((1, 24), 25, 13),
    ReleaseLimits((1, 25), 26, 13),
    ReleaseLimits((1, 32), 28, 14),
)


@cache
def find_first_release(opset: int, ir_version: int) -> Release | None:
    """Return the first release that loads such a file, or None if no known release does."""
    matches = (each for each in RELEASES if each.opset >= opset and each.ir_version >= ir_version)
    return next((each.release for each in matches), None)


def find_older_release(opset: int, ir_version: int) -> ReleaseLimits | None:
    """Return the older release that would load the file with a lower IR version.

    Returns:
        The first release for the opset, with the highest IR version that it loads. None if the
        opset needs a release as new as the IR version does.
    """
    first = find_first_release(opset, 0)
    if first is None or first == find_first_release(opset, ir_version):
        return None
    return next(each for each in RELEASES if each.release == first)


def find_limits(release: Release) -> ReleaseLimits | None:
    """Return the limits of a release, or None if it is older than the table.

    A release that is newer than the table loads what the last known release does.
    """
    earlier = [each for each in RELEASES if each.release <= release]
    return earlier[-1] if earlier else None


def format_release(release: Release) -> str:
    """Return the release as text: `1.18`."""
    return f"{release[0]}.{release[1]}"
