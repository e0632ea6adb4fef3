"""Operators that are neither ONNX's own nor functions of the file: whose they are, who runs them.

In: a file and its contract. Out: those of domains that the manifest does not name, and those that
the runtime of a device has no kernel for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from onnx import ModelProto

from exporter.checks.files.graph_walk import index_functions, iter_nodes, normalize_domain
from exporter.checks.files.model_file import UnreadableModel, read_model
from exporter.checks.protocol import CheckContext
from exporter.core.text_format import join_names
from exporter.manifest import Device, ModelSpec

#: Operators by domain, both sorted.
Operators = Mapping[str, tuple[str, ...]]

#: The domains that ONNX itself defines, besides the empty one.
_ONNX = frozenset({"ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview", "ai.onnx.preview.training"})
#: The domains of operators that ONNX Runtime comes with.
_ONNX_RUNTIME = frozenset({"com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"})
#: So many operators of a domain are named.


def find_foreign_operators(model: ModelProto) -> Operators:
    """Operators of other domains than ONNX's that no function of the file defines."""
    functions = index_functions(model)
    found: dict[str, set[str]] = {}
    for node in iter_nodes(model):
        domain = normalize_domain(node.domain)
        key = (domain, node.op_type, getattr(node, "overload", ""))
        if domain and domain not in _ONNX and key not in functions:
            found.setdefault(domain, set()).add(node.op_type)
    return {domain: tuple(sorted(found[domain])) for domain in sorted(found)}


def list_declared_domains(spec: ModelSpec) -> frozenset[str]:
    """The domains that the manifest names: in `custom_opsets`, or for kernels alone."""
    wished = spec.options.get("custom_opsets")
    named = wished if isinstance(wished, Mapping) else {}
    kernels = (op.name.partition("::")[0] for op in spec.custom_ops if op.has_only_kernels)
    return frozenset({*named, *kernels})


def explain_missing_kernel(subject: CheckContext, device: Device) -> str:
    """What keeps a file that was refused from running here: operators without a kernel.

    Where the manifest gives kernels, and they are not the right ones, the file or the kernels are
    wrong: that is no lack of this machine's.

    Returns:
        A sentence with domain, operator and what would run it; empty where the reason is another.
    """
    try:
        foreign = find_foreign_operators(read_model(subject.path))
    except UnreadableModel:
        return ""
    kernels, served = subject.kernels, frozenset[str]()
    match device.runtime:
        case "onnxruntime":
            if kernels.libraries:  # what is in them is not known
                return ""
            served, way = _ONNX_RUNTIME, "`ort_library` in custom_ops gives ONNX Runtime one"
        case "reference":
            served = frozenset(str(operator.op_domain) for operator in kernels.operators)
            way = "`reference` in custom_ops gives onnx.reference one"
        case "openvino" | "backend":
            way = "it takes none from custom_ops"
        case _:
            assert_never(device.runtime)
    lacking = [
        f"{domain}::{name}"
        for domain, names in foreign.items()
        if domain not in served
        for name in names
    ]
    return f"{device.name} has no kernel for {join_names(lacking)}; {way}" if lacking else ""
