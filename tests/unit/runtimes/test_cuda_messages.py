"""What ONNX Runtime reports about CUDA, and the sentence for the user."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from exporter.runtimes.cuda_messages import describe_cuda_failure
from exporter.runtimes.runtime_registry import format_runtime_message

MESSAGE = (
    "[ONNXRuntimeError] : 1 : FAIL : /onnxruntime_src/onnxruntime/core/providers/cuda/cuda_call.cc"
    ":154 std::conditional_t<THRW, void, onnxruntime::common::Status> onnxruntime::CudaCall("
    "ERRTYPE, const char*, const char*, SUCCTYPE, const char*, const char*, int) [with ERRTYPE = "
    "cudaError; bool THRW = true] CUDA failure {} ; GPU=0 ; hostname=ci-7 ; file=/onnxruntime_src/"
    "onnxruntime/core/providers/cuda/cuda_execution_provider.cc ; line=280 ; expr=cudaMalloc(p);"
)
FULL = MESSAGE.format("2: out of memory")
NONE = MESSAGE.format("100: no CUDA-capable device is detected")


def test_the_reason_stands_first_and_no_function_of_c() -> None:
    assert describe_cuda_failure(FULL, {}) == "CUDA: out of memory"
    text = MESSAGE.format("3: initialization error")
    assert describe_cuda_failure(text, {}) == "CUDA: initialization error"
    assert format_runtime_message(text, Path("/x/18.onnx")) == "CUDA: initialization error"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "CUDA: no device is visible"),
        (
            {"CUDA_VISIBLE_DEVICES": ""},
            "CUDA: no device is visible (CUDA_VISIBLE_DEVICES is empty)",
        ),
        (
            {"CUDA_VISIBLE_DEVICES": "7"},
            "CUDA: no device is visible (CUDA_VISIBLE_DEVICES is 7)",
        ),
    ],
)
def test_the_variable_that_hides_devices_is_named(
    environment: dict[str, str], expected: str
) -> None:
    assert describe_cuda_failure(NONE, environment) == expected


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("80123, 81559", "CUDA: out of memory; 78 of 80 GiB of GPU 0 are in use"),
        ("no devices were found", "CUDA: out of memory"),
    ],
)
def test_the_memory_in_use_is_named(tmp_path: Path, output: str, expected: str) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho '{output}'\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    assert describe_cuda_failure(FULL, environment) == expected


def test_other_messages_stay() -> None:
    text = "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for DFT(20)"
    assert describe_cuda_failure(text, {}) == ""
    assert format_runtime_message(text, Path("/x/18.onnx")).startswith("NOT_IMPLEMENTED")
