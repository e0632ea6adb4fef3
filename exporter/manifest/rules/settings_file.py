"""`[tool.exporter]` of a file with its problems, and the devices without a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from exporter.core.device_name import DeviceName
from exporter.core.toml_table import SETTINGS_KEYS
from exporter.manifest.resolved.project import Device
from exporter.manifest.schema.settings import ProjectTable
from exporter.manifest.syntax.toml_file import ProblemCollector, TomlFile
from exporter.manifest.syntax.values import KeyPath

_PROVIDERS = {
    "cpu": ("CPUExecutionProvider",),
    "cuda": ("CUDAExecutionProvider",),
    "tensorrt": ("TensorrtExecutionProvider", "CUDAExecutionProvider"),
    "coreml": ("CoreMLExecutionProvider",),
    "directml": ("DmlExecutionProvider",),
}
#: Other common names of the built-in devices.
ALIASES = {"gpu": "cuda", "trt": "tensorrt", "ort": "cpu", "dml": "directml", "mps": "coreml"}
BUILT_IN_DEVICES: Mapping[str, Device] = {
    **{
        name: Device(name=DeviceName(name), runtime="onnxruntime", providers=providers)
        for name, providers in _PROVIDERS.items()
    },
    "openvino": Device(name=DeviceName("openvino"), runtime="openvino"),
    "reference": Device(name=DeviceName("reference"), runtime="reference"),
}


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """`[tool.exporter]` of a file, and the problems with it."""

    file: TomlFile
    table: ProjectTable
    report: ProblemCollector

    def add_problem(self, key_path: KeyPath, message: str) -> None:
        self.report.add(self.file.build_problem((*SETTINGS_KEYS, *key_path), message))

    def find_line(self, key_path: KeyPath) -> int | None:
        return self.file.lines.get((*SETTINGS_KEYS, *key_path))
