"""The values of the script's template for the runtime and the custom operators."""

from __future__ import annotations

from collections.abc import Iterable

from exporter.manifest import Device, ModelSpec
from exporter.manifest.resolved.model import ExporterName

#: The runtimes that the script's template supports.
RUNTIMES = ("onnxruntime", "openvino", "backend", "reference")


def get_runtime_values(device: Device) -> dict[str, object]:
    """Return the values for the runtime of the cell."""
    module, _, attribute = device.module.partition(":")
    # As in the cell's session, CUDA computes in the precision of the file.
    providers = [
        (name, {"use_tf32": "0"}) if name == "CUDAExecutionProvider" else name
        for name in device.providers or ("CPUExecutionProvider",)
    ]
    return {
        "package": get_package(device),
        "providers": repr(providers),
        "runs_on": repr(device.device or "CPU"),
        "backend_module": repr(module),
        "backend_class": repr(attribute) if attribute else "",
        **{f"by_{runtime}": device.runtime == runtime for runtime in RUNTIMES},
    }


def get_package(device: Device) -> str:
    """Return the package of the runtime, as pip or an import names it."""
    match device.runtime:
        case "backend":
            return device.module.partition(":")[0].partition(".")[0]
        case "openvino":
            return "openvino"
        case _:
            return "onnxruntime"


def list_custom_ops(spec: ModelSpec, opset: int, exporter: ExporterName) -> dict[str, object]:
    """Return references to the functions of custom operators, by their use in the script.

    Returns:
        An empty dict if the cell has no custom operators.
    """
    if not spec.custom_ops:
        return {}
    references: dict[str, dict[str, str]] = {"symbolic": {}, "onnxscript": {}, "translation": {}}
    uses = ("translation",) if exporter == "dynamo" else ("symbolic", "onnxscript")
    # If an operator has several entries, the highest opset up to this one is valid.
    for op in sorted(spec.custom_ops, key=lambda op: op.opset):
        for use in uses:
            if op.opset <= opset and (reference := getattr(op, use)):
                for others in references.values():
                    others.pop(op.name, None)
                references[use][op.name] = reference

    def list_distinct(texts: Iterable[str]) -> list[str]:
        return list(dict.fromkeys(text for text in texts if text))

    return {
        "symbolics": references["symbolic"],
        "functions": references["onnxscript"],
        "translations": references["translation"],
        "libraries": list_distinct(op.ort_library or "" for op in spec.custom_ops),
        "operators": list_distinct(op.reference or "" for op in spec.custom_ops),
    }
