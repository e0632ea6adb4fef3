"""The built-in runtimes: one row for each, and one driver in `runtimes/drivers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class BuiltInRuntime(NamedTuple):
    """The properties of a runtime that the parent needs."""

    title: str
    """The name in reports; empty: that of the module of the device."""
    package: str = ""
    """The package with its version; empty: the module of the device."""
    prefix: str = ""
    """The beginning of the names of its devices in `exporter environments`."""
    has_device: bool = False
    """Whether it takes the key `device`."""
    has_session_options: bool = False
    """Whether it takes the key `session_options`."""


#: Value of `runtime` -> its properties.
RUNTIMES: Mapping[str, BuiltInRuntime] = {
    "onnxruntime": BuiltInRuntime("ONNX Runtime", "onnxruntime", "ort", has_session_options=True),
    "openvino": BuiltInRuntime(
        "OpenVINO", "openvino", "openvino", has_device=True, has_session_options=True
    ),
    "reference": BuiltInRuntime("onnx.reference", "onnx", "reference"),
    "tract": BuiltInRuntime("tract", "tract", "tract"),
    "backend": BuiltInRuntime("", has_device=True),
}
