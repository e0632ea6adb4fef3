"""Devices: those that are built in, and those that `[tool.exporter.devices.NAME]` defines.

In: the tables of the project. Out: a `Device` for each name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from exporter.errors import nearest
from exporter.manifest.entry import ID_PATTERN
from exporter.manifest.fills import FLOATS
from exporter.manifest.read import TomlFile
from exporter.manifest.report import Report
from exporter.manifest.settings import DeviceTable
from exporter.manifest.spec import Device
from exporter.manifest.wording import KeyPath, listed, quoted

_PROVIDERS = {
    "cpu": ("CPUExecutionProvider",),
    "cuda": ("CUDAExecutionProvider",),
    "tensorrt": ("TensorrtExecutionProvider", "CUDAExecutionProvider"),
    "coreml": ("CoreMLExecutionProvider",),
    "directml": ("DmlExecutionProvider",),
}
BUILT_IN: Mapping[str, Device] = {
    **{
        name: Device(name=name, runtime="onnxruntime", providers=providers)
        for name, providers in _PROVIDERS.items()
    },
    "openvino": Device(name="openvino", runtime="openvino"),
    "reference": Device(name="reference", runtime="reference"),
}


def all_devices(
    file: TomlFile, path: KeyPath, tables: Mapping[str, DeviceTable], report: Report
) -> dict[str, Device]:
    """The built-in devices with those of `tables`, which may redefine them."""
    devices = dict(BUILT_IN)
    for name, table in tables.items():
        place = (*path, name)
        if not re.fullmatch(ID_PATTERN, name) or name in FLOATS:
            message = (
                "expected a name of a-z, 0-9, '_', '.' and '-' that is no dtype,"
                f" got {quoted(name)}"
            )
            report.add(file.problem(place, message))
        if table.runtime == "onnxruntime" and not table.providers:
            message = 'needs `providers`, such as ["CUDAExecutionProvider"]'
            report.add(file.problem(place, message))
        if table.runtime != "onnxruntime" and table.providers:
            message = f"only onnxruntime has providers; the runtime is {table.runtime}"
            report.add(file.problem((*place, "providers"), message))
        if table.strict and table.runtime != "onnxruntime":
            message = f"only onnxruntime has providers; the runtime is {table.runtime}"
            report.add(file.problem((*place, "strict"), message))
        devices[name] = Device(
            name=name, runtime=table.runtime, providers=table.providers, strict=table.strict
        )
    return devices


def unknown_device(name: str, known: Collection[str]) -> str:
    """What to say of a device that is not known."""
    # `gpu` and `npu` are close to `cpu` in letters alone.
    hint = nearest(name, known) if len(name) > len("cpu") else ""
    return f"no device is called {quoted(name)}{hint or f'; there are {listed(sorted(known))}'}"
