"""The checks that read the file without running it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, TensorShapeProto, TypeProto, ValueInfoProto

from exporter.checks import weight_checks
from exporter.checks.model_file import (
    UnreadableModel,
    find_external_data_problems,
    find_link_problems,
    find_misplaced_weights,
    read_model,
)
from exporter.checks.protocol import CheckedFile, DamagedSample, StructureCheck
from exporter.core.text import join_lines, join_names, truncate
from exporter.manifest import Device, Dim, Input, ModelSpec, Output
from exporter.manifest.syntax.fields import FLOATS
from exporter.manifest.syntax.releases import find_first_release, find_limits, format_release
from exporter.manifest.syntax.values import find_lowest_release, format_key
from exporter.runtimes.chain import DOMAIN as LINK_DOMAIN
from exporter.runtimes.chain import list_links
from exporter.runtimes.graph_walk import (
    find_needed_names,
    format_dtype,
    get_operator_key,
    index_functions,
    iter_model_graphs,
    iter_nodes,
    iter_tensors,
    normalize_domain,
)

#: Characters of a checker's message.
_MAX_LENGTH = 300


@partial(StructureCheck, "wellformed")
def check_wellformed(checked: CheckedFile, proto: ModelProto) -> Iterator[str]:
    """Run the full checker on the path, strict shape inference and the data checks.

    The files still load after they were copied to another folder: every location is the name of a
    complete file inside the folder, and not a link. Every file is in fact loaded from another
    folder. The checks run in the private folder of the job, which is renamed when they are done.
    """
    folder = checked.path.parent
    data_problems = (
        *find_external_data_problems(proto, folder),
        *find_link_problems(proto, folder),
    )
    if data_problems:
        yield from data_problems  # the checker would report the same again
        return
    yield from find_misplaced_weights(proto, checked.spec.options.get("external_data"))
    try:
        # With the path, a model over protobuf's 2 GB passes too. Includes strict inference.
        onnx.checker.check_model(str(checked.path), full_check=True)
        onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True, data_prop=True)
    except (
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        ValueError,
        RuntimeError,
    ) as error:
        message = str(error).replace(f"{checked.path.parent}/", "")
        yield truncate(join_lines(message), _MAX_LENGTH)


#: Operators by domain, both sorted.
Operators = Mapping[str, tuple[str, ...]]

#: The domains that ONNX defines besides the empty one.
_ONNX = frozenset({"ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview", "ai.onnx.preview.training"})


def find_foreign_operators(proto: ModelProto) -> Operators:
    """Return operators that neither ONNX nor a function of the file defines, without links."""
    functions = index_functions(proto)
    operators: dict[str, set[str]] = {}
    for node in iter_nodes(proto):
        key = get_operator_key(node)
        domain = key[0]
        if domain and domain not in {*_ONNX, LINK_DOMAIN} and key not in functions:
            operators.setdefault(domain, set()).add(node.op_type)
    return {domain: tuple(sorted(operators[domain])) for domain in sorted(operators)}


def list_declared_domains(spec: ModelSpec) -> frozenset[str]:
    """Return the domains in `custom_opsets`, and those of `custom_ops` with only a kernel."""
    option = spec.options.get("custom_opsets")
    names = option if isinstance(option, Mapping) else {}
    kernels = (op.name.partition("::")[0] for op in spec.custom_ops if op.has_only_kernels)
    return frozenset({*names, *kernels})


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


@partial(StructureCheck, "opset")
def check_opset(checked: CheckedFile, proto: ModelProto) -> Iterator[str]:
    """Compare `opset_import` and `ir_version` of the file with the contract.

    PyTorch's dynamo exporter may write opset 18 if opset 13 is requested, and only log it. So the
    versions are read from the file. A domain other than ONNX's is allowed only if the manifest
    names it. The lowest IR version that a file needs follows the list of changes in `enum Version`
    of onnx.proto.
    """
    expected = checked.opset
    versions = {item.version for item in proto.opset_import if not normalize_domain(item.domain)}
    if not versions:
        yield f"the file imports no opset of ONNX, expected {expected}"
    elif versions != {expected}:
        actual = " and ".join(map(str, sorted(versions)))
        cause = f": {'; '.join(checked.notes)}" if checked.notes else ""
        yield f"the file has opset {actual}, expected {expected}{cause}"
    for function in proto.functions:
        for item in function.opset_import:
            if not normalize_domain(item.domain) and item.version != expected:
                name = f"{function.domain}::{function.name}"
                yield f"the function {name} has opset {item.version}, expected {expected}"
    yield from _find_domain_problems(checked, proto)
    limit = checked.spec.ir_version
    if limit is not None and proto.ir_version > limit:
        yield f"the file has IR version {proto.ir_version}, the manifest allows up to {limit}"
    yield from _find_consumer_problems(checked, proto)
    needed, content = find_minimum_ir_version(proto)
    if proto.ir_version < needed:
        yield f"the file declares IR version {proto.ir_version}, but {content} need {needed}"


def _find_consumer_problems(checked: CheckedFile, proto: ModelProto) -> Iterator[str]:
    """Yield a problem if a promised release of ONNX Runtime does not load the file."""
    promised = find_lowest_release(checked.spec.consumers)
    limits = find_limits(promised) if promised else None
    if promised is None or limits is None:
        return
    opsets = (item.version for item in proto.opset_import if not normalize_domain(item.domain))
    opset, version = max(opsets, default=0), proto.ir_version
    first = find_first_release(opset, version)
    if first is not None and first <= promised:
        return
    name = format_release(promised)
    since = f"from {format_release(first)} on" if first else "in no known release"
    if opset > limits.opset:
        fix = f"{name} loads opset {limits.opset} at most; remove opset {opset}"
    elif find_minimum_ir_version(proto)[0] > limits.ir_version:
        fix = f"{name} loads IR version {limits.ir_version} at most, and the file needs a later one"
    else:
        fix = f"set ir_version = {limits.ir_version}"
    fix += f", or promise onnxruntime>={format_release(first)}" if first else ""
    yield (
        f"ONNX Runtime loads a file of opset {opset} and IR version {version} {since}, but "
        f"`consumers` promises {name}; {fix}"
    )


def _find_domain_problems(checked: CheckedFile, proto: ModelProto) -> Iterator[str]:
    """Yield domains that the manifest does not name, or names with another version."""
    declared = list_declared_domains(checked.spec)
    for domain, names in find_foreign_operators(proto).items():
        if domain not in declared:
            version = next((i.version for i in proto.opset_import if i.domain == domain), 1)
            option = f"options.custom_opsets = {{ {format_key((domain,))} = {version} }}"
            yield (
                f"the file uses the domain '{domain}' ({join_names(names)}), which the manifest "
                f"does not name; add {option}"
            )
    option_value = checked.spec.options.get("custom_opsets")
    versions: Mapping[str, object] = option_value if isinstance(option_value, Mapping) else {}
    importers = [("the file", proto.opset_import)]
    importers += [(f"the function {f.domain}::{f.name}", f.opset_import) for f in proto.functions]
    for importer, imports in importers:
        for item in imports:
            expected = versions.get(item.domain, item.version)
            if item.version != expected:
                yield f"{importer} has version {item.version} of {item.domain}, expected {expected}"


def find_minimum_ir_version(proto: ModelProto) -> tuple[int, str]:
    """Return the lowest IR version that supports the file's content, and that content."""
    return max(_list_requirements(proto), default=(3, "opset imports"))


def _list_requirements(proto: ModelProto) -> Iterator[tuple[int, str]]:
    inputs = {item.name for item in proto.graph.input}
    if any(item.name not in inputs for item in proto.graph.initializer):
        yield 4, "initializers that are not listed as inputs"
    if any(graph.quantization_annotation for graph in iter_model_graphs(proto)):
        yield 5, "quantization annotations"
    if any(graph.sparse_initializer for graph in iter_model_graphs(proto)):
        yield 6, "sparse initializers"
    if proto.training_info:
        yield 7, "training information"
    if proto.functions:
        yield 8, "model-local functions"
    for function in proto.functions:
        if function.attribute_proto:
            yield 9, "default values of a function's attributes"
        if getattr(function, "overload", ""):
            yield 10, "overloads of a function"
    if any(getattr(node, "device_configurations", ()) for node in iter_nodes(proto)):
        yield 11, "device configurations"
    yield from _list_type_requirements(proto)


def _list_type_requirements(proto: ModelProto) -> Iterator[tuple[int, str]]:
    numbers = {tensor.data_type for tensor in iter_tensors(proto)}
    for graph in iter_model_graphs(proto):
        for value in (*graph.input, *graph.output, *graph.value_info):
            for kind in _iter_types(value.type):
                numbers.add(kind.tensor_type.elem_type)
                if kind.WhichOneof("value") in ("optional_type", "sparse_tensor_type"):
                    yield 8, "optional or sparse values"
    for number in numbers & set(_TYPE_NUMBER_VERSIONS):
        name = TensorProto.DataType.Name(number).lower()
        yield _TYPE_NUMBER_VERSIONS[number], f"values of the type {name}"


def _iter_types(kind: TypeProto) -> Iterator[TypeProto]:
    yield kind
    match kind.WhichOneof("value"):
        case "sequence_type":
            yield from _iter_types(kind.sequence_type.elem_type)
        case "optional_type":
            yield from _iter_types(kind.optional_type.elem_type)
        case "map_type":
            yield from _iter_types(kind.map_type.value_type)


#: The first IR version in which an initializer need not be an input.
_IR_WITHOUT_LISTED_INITIALIZERS = 4


@partial(StructureCheck, "signature")
def check_signature(checked: CheckedFile, proto: ModelProto) -> Iterator[str]:
    """Compare every input and output of the graph with the contract.

    Names, order, dtypes, sizes and axis names of inputs and outputs are compared. The message names
    all differences. An input without effect on any output is a difference too.
    """
    spec, graph = checked.spec, proto.graph
    stored = {item.name for item in graph.initializer}
    stored |= {item.values.name for item in graph.sparse_initializer}
    declared = {item.name for item in spec.inputs}
    weights = checked.reference.weight_inputs if spec.weights_are_inputs else ()
    undeclared = stored | {weight.name for weight in weights}
    inputs = [i for i in graph.input if i.name not in undeclared or i.name in declared]
    yield from _compare_values("input", inputs, spec.inputs)
    listed = [item.name for item in graph.input if item.name in stored]
    for name in sorted(declared.intersection(listed)):
        yield f"input '{name}' has a default value: the file runs without it"
    others = [name for name in listed if name not in declared]
    is_requested = spec.options.get("keep_initializers_as_inputs") is True
    if is_requested and not others and graph.initializer:
        yield "the initializers are not listed as inputs"
    if others and not is_requested and proto.ir_version >= _IR_WITHOUT_LISTED_INITIALIZERS:
        yield f"{len(others)} initializers are listed as inputs: {join_names(others)}"
    outputs = (item.name for item in graph.output)
    needed = find_needed_names(graph.node, outputs, index_functions(proto))
    for item in inputs:
        if item.name in declared and item.name not in needed:
            yield f"the graph ignores input '{item.name}'"
    yield from _compare_values("output", list(graph.output), spec.outputs)
    if checked.reference.weights or spec.weights_are_inputs:
        checks = weight_checks
        yield from checks.find_weight_name_problems(checked, proto)
        if spec.weights_are_inputs:
            yield from checks.find_weight_input_problems(proto, weights, declared, needed)


def _compare_values(
    side: str, values: Sequence[ValueInfoProto], declared: Sequence[Input | Output]
) -> Iterator[str]:
    names = [item.name for item in values]
    expected = [item.name for item in declared]
    if names != expected:
        verb = "have another order" if sorted(names) == sorted(expected) else "differ"
        counts = f"the file has {_count_names(names)}, declared {_count_names(expected)}"
        ignored = [f"'{name}'" for name in expected if name not in names]
        is_ignored = side == "input" and {*names} < {*expected}
        subject = (
            f"the graph ignores input {join_names(ignored)}" if is_ignored else f"{side}s {verb}"
        )
        yield f"{subject}: {counts}"
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{count} {side}s have the name '{name}'"
    by_name = {item.name: item for item in values}
    for item in declared:
        if item.name in by_name:
            yield from _compare_value(f"{side} '{item.name}'", by_name[item.name], item)


def _count_names(names: Sequence[str]) -> str:
    return f"{len(names)} ({', '.join(names)})" if names else "none"


def _compare_value(subject: str, value: ValueInfoProto, declared: Input | Output) -> Iterator[str]:
    subject, tensor, problem = _find_tensor_type(subject, value.type, declared)
    if problem:
        yield problem
        return
    dtype, shape = format_dtype(tensor.elem_type), declared.file_shape
    if dtype != declared.file_dtype:
        expected = declared.dtype
        if declared.is_complex:
            expected = f"{declared.dtype}, stored as pairs of {declared.file_dtype}"
        yield f"{subject} is {dtype}, declared {expected}"
    expected = ", ".join(map(str, shape))
    if not tensor.HasField("shape"):
        yield f"{subject} has no shape, declared [{expected}]"
    elif len(tensor.shape.dim) != len(shape):
        actual = ", ".join(map(_format_dimension, tensor.shape.dim))
        yield f"{subject} is [{actual}], declared [{expected}]"
    else:
        for index, (dim, size) in enumerate(zip(tensor.shape.dim, shape, strict=True)):
            if problem := _compare_dimension(subject, index, dim, size):
                yield problem


def _find_tensor_type(
    subject: str, kind: TypeProto, declared: Input | Output
) -> tuple[str, TypeProto.Tensor, str]:
    """Return the tensor type inside an optional or a sequence, its name, and a problem."""
    none = TypeProto.Tensor()
    if isinstance(declared, Input) and declared.optional:
        if _name_kind(kind) != "optional":
            return subject, none, f"{subject} is declared optional, but the file requires it"
        kind = kind.optional_type.elem_type
    if isinstance(declared, Output) and declared.kind == "sequence":
        if _name_kind(kind) != "sequence":
            return subject, none, f"{subject} is not a sequence but {_name_kind(kind)}"
        kind, subject = kind.sequence_type.elem_type, f"each item of {subject}"
    if _name_kind(kind) != "tensor":
        return subject, none, f"{subject} is not a tensor but {_name_kind(kind)}"
    return subject, kind.tensor_type, ""


def _name_kind(kind: TypeProto) -> str:
    return (kind.WhichOneof("value") or "of no type").removesuffix("_type")


def _format_dimension(dim: TensorShapeProto.Dimension) -> str:
    return str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?"


def _compare_dimension(
    subject: str, index: int, dim: TensorShapeProto.Dimension, declared: Dim
) -> str:
    """Return the difference of one dimension, or "" if it is as declared."""
    is_fixed = dim.HasField("dim_value")
    if isinstance(declared, int):
        if is_fixed and dim.dim_value == declared:
            return ""
        actual = str(dim.dim_value) if is_fixed else f"dynamic ('{_format_dimension(dim)}')"
        return f"dimension {index} of {subject} is {actual}, declared {declared}"
    if is_fixed:
        return f"axis '{declared}' of {subject} is fixed at {dim.dim_value}"
    if dim.dim_param != declared:
        actual = f"has the name '{dim.dim_param}'" if dim.dim_param else "has no name"
        return f"axis '{declared}' of {subject} {actual}"
    return ""


@partial(StructureCheck, "metadata", applies=lambda checked: bool(checked.spec.metadata))
def check_metadata(checked: CheckedFile, proto: ModelProto) -> Iterator[str]:
    """Search the texts of the key `metadata` in the file that ships, after all passes."""
    for key, text in checked.spec.metadata.items():
        values = {item.value for item in proto.metadata_props if item.key == key}
        if not values:
            declared = truncate(text, _MAX_LENGTH)
            yield f"the file has no metadata '{key}', declared '{declared}'"
        elif values != {text}:  # runtimes take one of several
            actual, declared = (
                truncate(join_names(sorted(values)), _MAX_LENGTH),
                truncate(text, _MAX_LENGTH),
            )
            yield f"the metadata '{key}' is {actual}, declared '{declared}'"


@partial(
    StructureCheck,
    "labels",
    applies=lambda checked: any(map(_takes_labels_by_value, checked.spec.outputs)),
)
def check_labels(checked: CheckedFile, _: ModelProto) -> Iterator[str]:
    """Compare the values of integer outputs with their labels.

    The labels of a float output are as many as its last axis is long, by the rules of the manifest.
    """
    with suppress(DamagedSample):  # the comparison of the samples reports it
        samples = [each for each in checked.reference.promised_samples if not each.error]
        values = [checked.read(sample).outputs for sample in samples]
        for index, output in enumerate(checked.spec.outputs):
            if not _takes_labels_by_value(output):
                continue
            numbers = {int(each) for outputs in values for each in np.unique(outputs[index])}
            missing = sorted(numbers - {*range(len(output.labels))})
            if missing:
                last = f"0 to {len(output.labels) - 1}"
                yield f"output '{output.name}' has the value {missing[0]}, the labels are {last}"


def _takes_labels_by_value(output: Output) -> bool:
    return bool(output.labels) and output.dtype not in FLOATS


def explain_missing_kernel(checked: CheckedFile, device: Device) -> str:
    """Return the operators without a kernel that explain a failed load, with a fix, or "".

    If the manifest has kernels for the runtime and they are wrong, the file or the kernels are at
    fault, and not this machine.
    """
    try:
        proto = read_model(checked.path)
        files = [read_model(checked.path.with_name(link.file)) for link in list_links(proto)]
    except UnreadableModel:
        return ""
    operators: dict[str, tuple[str, ...]] = {}
    for each in files or [proto]:
        for domain, names in find_foreign_operators(each).items():
            operators[domain] = tuple(sorted({*operators.get(domain, ()), *names}))
    row, kernels = device.row, checked.kernels
    if row.explains_kernels or (row.kernels == "ort_library" and kernels.libraries):
        return ""  # the operators in libraries are unknown
    served, fix = row.domains, "this runtime accepts no kernels from custom_ops"
    if row.kernels == "reference":
        served = frozenset(str(operator.op_domain) for operator in kernels.operators)
    if row.kernels:
        fix = f"add a kernel as `{row.kernels}` in custom_ops"
    missing = [
        f"{domain}::{name}"
        for domain, names in operators.items()
        if domain not in served
        for name in names
    ]
    return f"{device.name} has no kernel for {join_names(missing)}; {fix}" if missing else ""
