"""Resolve the built-in devices and those that `[tool.exporter.devices.NAME]` defines."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from exporter.core.errors import suggest_nearest
from exporter.manifest.reading.problems import ProblemCollector
from exporter.manifest.reading.toml_file import TomlFile
from exporter.manifest.rules.fills import FLOATS
from exporter.manifest.schema.entry import ID_PATTERN
from exporter.manifest.schema.settings import DeviceTable
from exporter.manifest.spec.model import BUILT_IN_RUNTIMES, Device
from exporter.manifest.syntax.message_format import KeyPath, join_words, quote

_PROVIDERS = {
    "cpu": ("CPUExecutionProvider",),
    "cuda": ("CUDAExecutionProvider",),
    "tensorrt": ("TensorrtExecutionProvider", "CUDAExecutionProvider"),
    "coreml": ("CoreMLExecutionProvider",),
    "directml": ("DmlExecutionProvider",),
}
#: Runtimes that take the key `device`.
_RUNTIMES_WITH_DEVICE = ("openvino", "backend")
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
    """Return the built-in devices and those of `tables`, which may replace them."""
    devices = dict(BUILT_IN_DEVICES)
    for name, table in tables.items():
        table_path = (*path, name)
        if not re.fullmatch(ID_PATTERN, name) or name in FLOATS:
            form = "a name of a-z, 0-9, '_', '.' and '-' that is not a dtype"
            report.add(file.build_problem(table_path, f"expected {form}, got {quote(name)}"))
        for key, message in _find_problems(table):
            key_path = (*table_path, key) if key else table_path
            report.add(file.build_problem(key_path, message))
        devices[name] = Device(
            name=name,
            runtime=table.runtime,
            providers=table.providers,
            strict=table.strict,
            module=table.module or "",
            device=table.device or "",
        )
    return devices


def _find_problems(table: DeviceTable) -> Iterator[tuple[str, str]]:
    """Yield keys that are missing or not valid for the runtime; "" stands for the table."""
    runtime = table.runtime
    if runtime == "onnxruntime" and not table.providers:
        yield "", 'needs `providers`, such as ["CUDAExecutionProvider"]'
    is_plugin = runtime not in BUILT_IN_RUNTIMES
    if runtime != "onnxruntime" and not is_plugin:
        message = f"is only valid for the runtime onnxruntime, not for {runtime}; remove it"
        yield from ((key, message) for key in ("providers", "strict") if getattr(table, key))
    if runtime == "backend" and table.module is None:
        yield "", 'needs `module`, such as "onnxruntime.backend"'
    if table.module is not None and runtime != "backend":
        yield "module", f"is only valid for the runtime backend, not for {runtime}; remove it"
    elif table.module is not None and not _MODULE.fullmatch(table.module):
        message = 'expected "package.module" or "package.module:Class"'
        yield "module", f"{message}, got {quote(table.module)}"
    if table.device is not None and runtime not in _RUNTIMES_WITH_DEVICE and not is_plugin:
        fix = "use `providers`" if runtime == "onnxruntime" else "remove it"
        yield "device", f"is only valid for backend and openvino, not for {runtime}; {fix}"


def format_unknown_device(name: str, devices: Collection[str]) -> str:
    """Return the message for a device that does not exist."""
    # Only letters of `gpu` and `npu` are similar to `cpu`, so short names get no suggestion.
    hint = suggest_nearest(name, devices) if len(name) > len("cpu") else ""
    hint = hint or f"; use {join_words(sorted(devices), 'or')}"
    return f"no device has the name {quote(name)}{hint}"
