"""Devices: those that are built in, and those that `[tool.exporter.devices.NAME]` defines.

In: the tables of the project. Out: a `Device` for each name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from exporter.core.errors import suggest_nearest
from exporter.manifest.reading.problems import ProblemCollector
from exporter.manifest.reading.toml_file import TomlFile
from exporter.manifest.rules.fills import FLOATS
from exporter.manifest.schema.entry import ID_PATTERN
from exporter.manifest.schema.settings import DeviceTable
from exporter.manifest.spec.model import Device
from exporter.manifest.syntax.message_format import KeyPath, join_words, quote

_PROVIDERS = {
    "cpu": ("CPUExecutionProvider",),
    "cuda": ("CUDAExecutionProvider",),
    "tensorrt": ("TensorrtExecutionProvider", "CUDAExecutionProvider"),
    "coreml": ("CoreMLExecutionProvider",),
    "directml": ("DmlExecutionProvider",),
}
#: Runtimes whose devices have names of their own.
_NAMES_DEVICES = ("openvino", "backend")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*)?")
BUILT_IN_DEVICES: Mapping[str, Device] = {
    **{
        name: Device(name=name, runtime="onnxruntime", providers=providers)
        for name, providers in _PROVIDERS.items()
    },
    "openvino": Device(name="openvino", runtime="openvino"),
    "reference": Device(name="reference", runtime="reference"),
}


def resolve_devices(
    file: TomlFile, path: KeyPath, tables: Mapping[str, DeviceTable], report: ProblemCollector
) -> dict[str, Device]:
    """The built-in devices with those of `tables`, which may redefine them."""
    devices = dict(BUILT_IN_DEVICES)
    for name, table in tables.items():
        place = (*path, name)
        if not re.fullmatch(ID_PATTERN, name) or name in FLOATS:
            message = (
                f"expected a name of a-z, 0-9, '_', '.' and '-' that is no dtype, got {quote(name)}"
            )
            report.add(file.problem(place, message))
        for key, message in _misplaced(table):
            report.add(file.problem((*place, key) if key else place, message))
        devices[name] = Device(
            name=name,
            runtime=table.runtime,
            providers=table.providers,
            strict=table.strict,
            module=table.module or "",
            device=table.device or "",
        )
    return devices


def _misplaced(table: DeviceTable) -> Iterator[tuple[str, str]]:
    """Keys that the runtime needs or does not have; an empty key means the whole table."""
    runtime = table.runtime
    if runtime == "onnxruntime" and not table.providers:
        yield "", 'needs `providers`, such as ["CUDAExecutionProvider"]'
    if runtime != "onnxruntime":
        message = f"only onnxruntime has providers; the runtime is {runtime}"
        yield from ((key, message) for key in ("providers", "strict") if getattr(table, key))
    if runtime == "backend" and table.module is None:
        yield "", 'needs `module`, such as "onnxruntime.backend"'
    if table.module is not None and runtime != "backend":
        yield "module", f"only a backend is a module; the runtime is {runtime}"
    elif table.module is not None and not _MODULE.fullmatch(table.module):
        message = 'expected "package.module" or "package.module:Class"'
        yield "module", f"{message}, got {quote(table.module)}"
    if table.device is not None and runtime not in _NAMES_DEVICES:
        hint = "; onnxruntime takes `providers`" if runtime == "onnxruntime" else ""
        message = f"only a backend and openvino have a device{hint}; the runtime is {runtime}"
        yield "device", message


def format_unknown_device(name: str, known: Collection[str]) -> str:
    """What to say of a device that is not known."""
    # `gpu` and `npu` are close to `cpu` in letters alone.
    hint = suggest_nearest(name, known) if len(name) > len("cpu") else ""
    return f"no device is called {quote(name)}{hint or f'; there are {join_words(sorted(known))}'}"
