"""The check `opset`: the file has the requested opset and IR version.

PyTorch's dynamo exporter may write opset 18 if opset 13 is requested, and only log it. So the
versions are read from the file. A domain other than ONNX's is allowed only if the manifest names
it. The lowest IR version that a file needs follows the list of changes in `enum Version` of
onnx.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnx import ModelProto, TensorProto, TypeProto

from exporter.checks.protocol import CheckContext, run_structure_check
from exporter.checks.structural.domains import find_foreign_operators, list_declared_domains
from exporter.core.known_names import (
    find_first_release,
    find_limits,
    format_release,
)
from exporter.core.text import join_names
from exporter.manifest.syntax.values import format_key
from exporter.manifest.syntax.versions import find_lowest_release
from exporter.records.record import CheckResult
from exporter.runtimes.graph_walk import (
    iter_model_graphs,
    iter_nodes,
    iter_tensors,
    normalize_domain,
)

NAME = "opset"
#: Element type -> the IR version that introduced it.
_TYPE_VERSIONS = {
    "BFLOAT16": 4,
    "FLOAT8E4M3FN": 9,
    "FLOAT8E4M3FNUZ": 9,
    "FLOAT8E5M2": 9,
    "FLOAT8E5M2FNUZ": 9,
    "UINT4": 10,
    "INT4": 10,
    "FLOAT4E2M1": 11,
    "FLOAT8E8M0": 12,
    "UINT2": 13,
    "INT2": 13,
}
_TYPE_NUMBER_VERSIONS = {
    getattr(TensorProto, name): version
    for name, version in _TYPE_VERSIONS.items()
    if hasattr(TensorProto, name)
}


def check_opset(context: CheckContext) -> CheckResult:
    """Compare `opset_import` and `ir_version` of the file with the contract."""
    return run_structure_check(NAME, context, _find_problems)


def _find_problems(context: CheckContext, model: ModelProto) -> Iterator[str]:
    expected = context.opset
    versions = {item.version for item in model.opset_import if not normalize_domain(item.domain)}
    if not versions:
        yield f"the file imports no opset of ONNX, expected {expected}"
    elif versions != {expected}:
        actual = " and ".join(map(str, sorted(versions)))
        cause = f": {'; '.join(context.notes)}" if context.notes else ""
        yield f"the file has opset {actual}, expected {expected}{cause}"
    for function in model.functions:
        for item in function.opset_import:
            if not normalize_domain(item.domain) and item.version != expected:
                name = f"{function.domain}::{function.name}"
                yield f"the function {name} has opset {item.version}, expected {expected}"
    yield from _find_domain_problems(context, model)
    limit = context.spec.ir_version
    if limit is not None and model.ir_version > limit:
        yield f"the file has IR version {model.ir_version}, the manifest allows up to {limit}"
    yield from _find_consumer_problems(context, model)
    needed, content = find_minimum_ir_version(model)
    if model.ir_version < needed:
        yield f"the file declares IR version {model.ir_version}, but {content} need {needed}"


def _find_consumer_problems(context: CheckContext, model: ModelProto) -> Iterator[str]:
    """Yield a problem if a promised release of ONNX Runtime does not load the file."""
    promised = find_lowest_release(context.spec.consumers)
    limits = find_limits(promised) if promised else None
    if promised is None or limits is None:
        return
    opsets = (item.version for item in model.opset_import if not normalize_domain(item.domain))
    opset, version = max(opsets, default=0), model.ir_version
    first = find_first_release(opset, version)
    if first is not None and first <= promised:
        return
    name = format_release(promised)
    since = f"from {format_release(first)} on" if first else "in no known release"
    if opset > limits.opset:
        fix = f"{name} loads opset {limits.opset} at most; remove opset {opset}"
    elif find_minimum_ir_version(model)[0] > limits.ir_version:
        fix = f"{name} loads IR version {limits.ir_version} at most, and the file needs a later one"
    else:
        fix = f"set ir_version = {limits.ir_version}"
    fix += f", or promise onnxruntime>={format_release(first)}" if first else ""
    yield (
        f"ONNX Runtime loads a file of opset {opset} and IR version {version} {since}, but "
        f"`consumers` promises {name}; {fix}"
    )


def _find_domain_problems(context: CheckContext, model: ModelProto) -> Iterator[str]:
    """Yield domains that the manifest does not name, or names with another version."""
    declared = list_declared_domains(context.spec)
    for domain, names in find_foreign_operators(model).items():
        if domain not in declared:
            version = next((i.version for i in model.opset_import if i.domain == domain), 1)
            option = f"options.custom_opsets = {{ {format_key((domain,))} = {version} }}"
            yield (
                f"the file uses the domain '{domain}' ({join_names(names)}), which the manifest "
                f"does not name; add {option}"
            )
    option_value = context.spec.options.get("custom_opsets")
    versions: Mapping[str, object] = option_value if isinstance(option_value, Mapping) else {}
    importers = [("the file", model.opset_import)]
    importers += [(f"the function {f.domain}::{f.name}", f.opset_import) for f in model.functions]
    for importer, imports in importers:
        for item in imports:
            expected = versions.get(item.domain, item.version)
            if item.version != expected:
                yield f"{importer} has version {item.version} of {item.domain}, expected {expected}"


def find_minimum_ir_version(model: ModelProto) -> tuple[int, str]:
    """Return the lowest IR version that supports the file's content, and that content."""
    return max(_list_requirements(model), default=(3, ""))


def _list_requirements(model: ModelProto) -> Iterator[tuple[int, str]]:
    inputs = {item.name for item in model.graph.input}
    if any(item.name not in inputs for item in model.graph.initializer):
        yield 4, "initializers that are not listed as inputs"
    if any(graph.quantization_annotation for graph in iter_model_graphs(model)):
        yield 5, "quantization annotations"
    if any(graph.sparse_initializer for graph in iter_model_graphs(model)):
        yield 6, "sparse initializers"
    if model.training_info:
        yield 7, "training information"
    if model.functions:
        yield 8, "model-local functions"
    for function in model.functions:
        if function.attribute_proto:
            yield 9, "default values of a function's attributes"
        if getattr(function, "overload", ""):
            yield 10, "overloads of a function"
    if any(getattr(node, "device_configurations", ()) for node in iter_nodes(model)):
        yield 11, "device configurations"
    yield from _list_type_requirements(model)


def _list_type_requirements(model: ModelProto) -> Iterator[tuple[int, str]]:
    numbers = {tensor.data_type for tensor in iter_tensors(model)}
    for graph in iter_model_graphs(model):
        for value in (*graph.input, *graph.output, *graph.value_info):
            for kind in _iter_types(value.type):
                numbers.add(kind.tensor_type.elem_type)
                if kind.WhichOneof("value") in ("optional_type", "sparse_tensor_type"):
                    yield 8, "optional or sparse values"
    for number in numbers & set(_TYPE_NUMBER_VERSIONS):
        name = TensorProto.DataType.Name(number).lower()
        yield _TYPE_NUMBER_VERSIONS[number], f"values of the type {name}"


def _iter_types(kind: TypeProto) -> Iterator[TypeProto]:
    """Yield the type and the types inside it."""
    yield kind
    match kind.WhichOneof("value"):
        case "sequence_type":
            yield from _iter_types(kind.sequence_type.elem_type)
        case "optional_type":
            yield from _iter_types(kind.optional_type.elem_type)
        case "map_type":
            yield from _iter_types(kind.map_type.value_type)
