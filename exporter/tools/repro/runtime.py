"""What runs the file in a reproducer: the runtime that the cell was run by, and no other.

In: a `Device`. Out: the values of the script's template that speak of it.
"""

from __future__ import annotations

from exporter.manifest import Device


def runtime_values(device: Device) -> dict[str, object]:
    """Values of `templates/repro.py.jinja`; whatever the manifest says is a Python literal."""
    module, _, attribute = device.module.partition(":")
    providers = [_provider(name) for name in device.providers] or ["CPUExecutionProvider"]
    return {
        "package": package_of(device),
        "providers": repr(providers),
        "runs_on": repr(device.device or "CPU"),
        "backend_module": repr(module),
        "backend_class": repr(attribute) if attribute else "",
        "by_reference": device.runtime == "reference",
        "by_openvino": device.runtime == "openvino",
        "by_backend": device.runtime == "backend",
        "by_onnxruntime": device.runtime == "onnxruntime",
    }


def package_of(device: Device) -> str:
    """What runs the file, as pip or an import calls it."""
    match device.runtime:
        case "backend":
            return device.module.partition(":")[0].partition(".")[0]
        case "openvino":
            return "openvino"
        case _:
            return "onnxruntime"


def _provider(name: str) -> str | tuple[str, dict[str, str]]:
    """As the session had it: in the precision of the file."""
    return (name, {"use_tf32": "0"}) if name == "CUDAExecutionProvider" else name
