"""An ONNX file as the reference of other files: its outputs, in float64 and with other rounding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    helper,
    inliner,
    numpy_helper,
)

from exporter.core.device_name import DeviceName
from exporter.core.text import format_bytes
from exporter.manifest import Device
from exporter.runtimes.graph_walk import (
    iter_model_graphs,
    iter_tensors,
    normalize_domain,
)
from exporter.runtimes.runtime_registry import open_session
from exporter.runtimes.session import (
    Array,
    LoadFailure,
    OnnxValue,
    RunFailure,
    RuntimeUnavailable,
    Session,
    list_items,
)

#: The dtypes that a run in float64 replaces.
_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16})
#: Attributes with the number of a dtype.
_DTYPES = frozenset({"to", "dtype", "output_dtype", "output_datatype"})
#: Bytes of the weights that are cast to float64.
_LARGEST = 1 << 29
_REFERENCE = Device(name=DeviceName("onnx.reference"), runtime="reference")


def _make_device(level: str, threads: int) -> Device:
    options: dict[str, bool | int | float | str] = {
        "graph_optimization_level": level,
        "intra_op_num_threads": threads,
    }
    name = DeviceName(f"{level}-{threads}")
    return Device(name=name, runtime="onnxruntime", session_options=options)


#: The graph as it is written, on one thread.
_PLAIN = _make_device("ORT_DISABLE_ALL", 1)
#: Other orders of the same operations.
_OTHERS = (
    _make_device("ORT_ENABLE_ALL", 1),
    _make_device("ORT_ENABLE_ALL", 2),
    _make_device("ORT_ENABLE_BASIC", 2),
)


class NotWidened(Exception):
    """The graph cannot be cast to float64; the message is the reason."""


def open_plain_session(path: Path) -> Session:
    """Open a file without the optimizations of the runtime."""
    return open_session(path, _PLAIN)


class ReferenceFile:
    """A file whose outputs are right, without the optimizations of a runtime.

    `scratch`: A folder for the graph in float64.
    """

    def __init__(self, path: Path, scratch: Path) -> None:
        """Load the file.

        Raises:
            LoadFailure, RuntimeUnavailable: If ONNX Runtime does not load it.
        """
        self.path = path
        self.reason = ""
        """Why it does not run in float64; set by the first such run."""
        self._scratch = scratch
        self._session = open_plain_session(path)
        self.is_fast = True
        """Whether ONNX Runtime runs it in float64, and not the specification's evaluator."""
        self._exact: Session | None = None
        self._graphs: dict[bool, ModelProto] = {}
        self._parts: dict[tuple[tuple[str, ...], tuple[str, ...], bool], Session] = {}

    @property
    def output_names(self) -> Sequence[str]:
        return self._session.output_names

    def run(self, inputs: Mapping[str, Array]) -> list[OnnxValue]:
        """Return the outputs.

        Raises:
            RunFailure: If it does not run on these inputs.
        """
        return list(self._session.run({name: array.copy() for name, array in inputs.items()}))

    def run_in_float64(self, inputs: Mapping[str, Array]) -> list[OnnxValue] | None:
        """Return the outputs of the graph in float64 for the same values, or None; see `reason`."""
        wide = {name: _widen_array(array) for name, array in inputs.items()}
        for device in (_PLAIN, _REFERENCE):
            if self.reason:
                break
            try:
                self._exact = self._exact or open_session(self._write_wide(), device)
                return list(self._exact.run(wide))
            except NotWidened as error:
                self.reason = str(error)
            except (LoadFailure, RunFailure, RuntimeUnavailable) as error:
                self._exact, self.is_fast = None, False
                if device is _REFERENCE:
                    self.reason = str(error)
        return None

    def run_in_other_orders(self, inputs: Mapping[str, Array]) -> Iterator[list[OnnxValue]]:
        """Yield the outputs with more threads and with the optimizations of the runtime."""
        for device in _OTHERS:
            try:
                # Only here, because a fork of the process has no threads of an open session.
                session = open_session(self.path, device)
                yield list(session.run({name: array.copy() for name, array in inputs.items()}))
            except (LoadFailure, RunFailure, RuntimeUnavailable):
                continue  # an optimization that fails is no order of the operations

    def read_graph(self, *, is_wide: bool = False) -> ModelProto:
        """Return the graph without functions, as it is or in float64.

        Raises:
            NotWidened: If its weights are large, or if it cannot be cast to float64.
        """
        if is_wide not in self._graphs:
            proto = onnx.load(str(self._write_wide())) if is_wide else load_alone(self.path)
            self._graphs[is_wide] = proto
        return self._graphs[is_wide]

    def run_part(
        self,
        inputs: Mapping[str, Array],
        names: Sequence[str],
        replaced: Mapping[str, Array] | None = None,
        *,
        is_wide: bool = False,
    ) -> list[OnnxValue]:
        """Return values of the graph, computed with other values in the place of some.

        Raises:
            NotWidened: See `read_graph`.
            LoadFailure, RunFailure, RuntimeUnavailable: If the graph does not run.
        """
        given = replaced or {}
        key = (tuple(names), tuple(given), is_wide)
        if key not in self._parts:
            graph = self.read_graph(is_wide=is_wide)
            path = self._scratch / f"part{len(self._parts)}.onnx"
            path.write_bytes(_cut(graph, names, given).SerializeToString())
            self._parts[key] = open_plain_session(path)
            path.unlink()
        values = {name: _widen_array(array) if is_wide else array for name, array in inputs.items()}
        values |= given
        return list(self._parts[key].run({name: array.copy() for name, array in values.items()}))

    def _write_wide(self) -> Path:
        path = self._scratch / "float64.onnx"
        if not path.exists():
            path.write_bytes(widen_model(self.path).SerializeToString())
        return path


def _widen_array(array: Array) -> Array:
    is_float = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
    return array.astype(np.float64) if is_float else array.copy()


def widen_value(value: OnnxValue) -> OnnxValue:
    """Return the same numbers in float64, and other values as they are."""
    items = [_widen_array(item) for item in list_items(value)]
    return items if isinstance(value, list) else items[0]


def widen_model(path: Path) -> ModelProto:
    """Return the model with all floats in float64.

    A node whose operator takes no float64 gets casts around it, such as the scales of `Resize`.

    Raises:
        NotWidened: If an operator is not ONNX's own, or if the weights are large.
    """
    proto = load_alone(path)
    imports = {normalize_domain(item.domain): item.version for item in proto.opset_import}
    for tensor in iter_tensors(proto):
        if tensor.data_type in _FLOATS:
            wide = numpy_helper.to_array(tensor).astype(np.float64)
            name = tensor.name
            tensor.CopyFrom(numpy_helper.from_array(wide, name))
    for graph in iter_model_graphs(proto):
        for item in (*graph.input, *graph.output, *graph.value_info):
            _widen_type(item.type)
        _widen_nodes(graph, imports)
    return proto


def load_alone(path: Path) -> ModelProto:
    """Return the model with its weights and without functions.

    Raises:
        NotWidened: If the weights are large.
    """
    proto = onnx.load(str(path), load_external_data=False)
    size = sum(_count_bytes(tensor) for tensor in iter_tensors(proto))
    if size > _LARGEST:
        raise NotWidened(f"its weights have {format_bytes(size)}")
    proto = onnx.load(str(path))
    return inliner.inline_local_functions(proto) if proto.functions else proto


def _cut(graph: ModelProto, names: Sequence[str], replaced: Mapping[str, Array]) -> ModelProto:
    """Return a graph with other outputs, in which some values are inputs."""
    part = ModelProto()
    part.CopyFrom(graph)
    for node in part.graph.node:
        for index, name in enumerate(node.output):
            if name in replaced:
                node.output[index] = f"{name}::unused"
    for name, array in replaced.items():
        dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
        part.graph.input.append(helper.make_tensor_value_info(name, dtype, None))
    others = [item for item in part.graph.value_info if item.name not in replaced]
    del part.graph.value_info[:]
    part.graph.value_info.extend(others)
    del part.graph.output[:]
    part.graph.output.extend(ValueInfoProto(name=name) for name in names)
    return part


def _count_bytes(tensor: TensorProto) -> int:
    try:
        width = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except (KeyError, TypeError):
        width = 1
    return int(np.prod(tensor.dims, dtype=np.int64)) * width


def _widen_type(kind: TypeProto) -> None:
    if kind.HasField("tensor_type") and kind.tensor_type.elem_type in _FLOATS:
        kind.tensor_type.elem_type = TensorProto.DOUBLE
    elif kind.HasField("sequence_type"):
        _widen_type(kind.sequence_type.elem_type)
    elif kind.HasField("optional_type"):
        _widen_type(kind.optional_type.elem_type)


def _widen_nodes(graph: GraphProto, imports: Mapping[str, int]) -> None:
    nodes: list[NodeProto] = []
    for node in graph.node:
        nodes += _widen_node(node, imports)
    del graph.node[:]
    graph.node.extend(nodes)


def _widen_node(node: NodeProto, imports: Mapping[str, int]) -> Iterator[NodeProto]:
    """Yield the node in float64, with casts at the inputs and outputs that are float32 only."""
    try:
        version = imports.get(normalize_domain(node.domain), 1)
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError as error:
        name = f"{node.domain or 'ai.onnx'}::{node.op_type}"
        raise NotWidened(f"{name} is no operator of ONNX") from error
    for attribute in node.attribute:
        if attribute.name in _DTYPES and attribute.i in _FLOATS:
            attribute.i = TensorProto.DOUBLE
    _widen_constant(node)
    allowed = {item.type_param_str: item.allowed_type_strs for item in schema.type_constraints}
    narrow: dict[str, str] = {}
    after = []
    for names, formal, is_input in (
        (node.input, schema.inputs, True),
        (node.output, schema.outputs, False),
    ):
        for index, name in enumerate(names):
            types = formal[min(index, len(formal) - 1)].type_str
            kinds = {*allowed.get(types, (types,))}
            if not name or "tensor(float)" not in kinds or "tensor(double)" in kinds:
                continue
            cast = f"{name}::{node.output[0]}::float32"
            if is_input and name not in narrow:
                yield helper.make_node("Cast", [name], [cast], to=TensorProto.FLOAT)
            if not is_input:
                after.append(helper.make_node("Cast", [cast], [name], to=TensorProto.DOUBLE))
            names[index] = narrow.setdefault(name, cast)
    yield node
    yield from after


def _widen_constant(node: NodeProto) -> None:
    """Replace floats of attributes, and those that an operator creates without an attribute."""
    attributes: list[AttributeProto] = []
    for attribute in node.attribute:
        if node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
            values = attribute.f if attribute.name == "value_float" else [*attribute.floats]
            tensor = numpy_helper.from_array(np.array(values, np.float64))
            attributes.append(helper.make_attribute("value", tensor))
        else:
            attributes.append(attribute)
    if node.op_type == "ConstantOfShape" and not attributes:
        attributes = [helper.make_attribute("value", numpy_helper.from_array(np.zeros(1)))]
    creates = node.op_type.startswith("Random") or node.op_type.endswith("Window")
    key = "output_datatype" if node.op_type.endswith("Window") else "dtype"
    is_like = node.op_type.endswith("Like")
    if creates and not is_like and all(each.name != key for each in attributes):
        attributes.append(helper.make_attribute(key, TensorProto.DOUBLE))
    copies = [AttributeProto.FromString(each.SerializeToString()) for each in attributes]
    del node.attribute[:]
    node.attribute.extend(copies)
