"""Operators that neither ONNX nor a function of the file defines."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import ModelProto

from exporter.checks.files.model_file import UnreadableModel, read_model
from exporter.checks.protocol import CheckContext
from exporter.core.text import join_names
from exporter.manifest import Device, ModelSpec
from exporter.runtimes.graph_walk import get_operator_key, index_functions, iter_nodes

#: Operators by domain, both sorted.
Operators = Mapping[str, tuple[str, ...]]

#: The domains that ONNX defines besides the empty one.
_ONNX = frozenset({"ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview", "ai.onnx.preview.training"})
#: The domains with kernels in every ONNX Runtime.
_ONNX_RUNTIME = frozenset({"com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"})


def find_foreign_operators(model: ModelProto) -> Operators:
    """Return operators that neither ONNX nor a function of the file defines."""
    functions = index_functions(model)
    operators: dict[str, set[str]] = {}
    for node in iter_nodes(model):
        key = get_operator_key(node)
        domain = key[0]
        if domain and domain not in _ONNX and key not in functions:
            operators.setdefault(domain, set()).add(node.op_type)
    return {domain: tuple(sorted(operators[domain])) for domain in sorted(operators)}


def list_declared_domains(spec: ModelSpec) -> frozenset[str]:
    """Return the domains in `custom_opsets`, and those of `custom_ops` with only a kernel."""
    option = spec.options.get("custom_opsets")
    names = option if isinstance(option, Mapping) else {}
    kernels = (op.name.partition("::")[0] for op in spec.custom_ops if op.has_only_kernels)
    return frozenset({*names, *kernels})


def explain_missing_kernel(context: CheckContext, device: Device) -> str:
    """Return the operators without a kernel that explain a failed load.

    If the manifest has kernels for the runtime and they are wrong, the file or the kernels are at
    fault, and not this machine.

    Returns:
        A sentence with the operators and a fix, or "" if no kernel is missing.
    """
    try:
        operators = find_foreign_operators(read_model(context.path))
    except UnreadableModel:
        return ""
    kernels, served = context.kernels, frozenset[str]()
    match device.runtime:
        case "onnxruntime":
            if kernels.libraries:  # the operators in them are unknown
                return ""
            served, fix = _ONNX_RUNTIME, "add a library as `ort_library` in custom_ops"
        case "reference":
            served = frozenset(str(operator.op_domain) for operator in kernels.operators)
            fix = "add a class as `reference` in custom_ops"
        case "openvino" | "backend":
            fix = "this runtime accepts no kernels from custom_ops"
        case _:  # a plugin reports its own missing kernels
            return ""
    missing = [
        f"{domain}::{name}"
        for domain, names in operators.items()
        if domain not in served
        for name in names
    ]
    return f"{device.name} has no kernel for {join_names(missing)}; {fix}" if missing else ""
