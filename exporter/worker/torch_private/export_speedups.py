"""Speed-ups of the dynamo exporter: work that is equal for all opsets is done once.

- Registry: torch reads the sources of hundreds of translations for each opset. Here it reads them
  once, and again if a new translation is registered.
- Type promotion: torch runs the program once more to find promoted types. Here a node runs again
  only after the first changed node. Before it, the program already contains the results.
- Node metadata: torch attaches the text of the program to each node. No file contains it, so only
  the lines of the source and the namespace are kept.
- Composite operators: torch asks the dispatcher for all of them for each namespace. One time is
  enough, because the answer is the same for all. For each decomposition it registers 5,000 kernels
  with a function that creates type hints each time. Here the kernel is only stored.
- Rewrite rules: the optimizer tries every rule at every node. Here a rule is skipped if its last
  operator is not the operator of the node, because that is its first comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from weakref import WeakSet

import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import TorchTensor
from torch._C import DispatchKey
from torch._ops import HigherOrderOperator, OperatorBase

from exporter.worker.torch_private import STACK_TRACE_KEY
from exporter.worker.torch_private.guards import is_enabled, replace_attribute

#: Namespaces of Python's own functions.
_PYTHON = ("_operator", "math")


@contextmanager
def speed_up_conversion() -> Iterator[None]:
    """Apply all speed-ups that are on to calls of `torch.onnx.export`."""
    patches = {
        "registry": _patch_registry,
        "type_promotion": _patch_type_promotion,
        "node_metadata": _patch_node_metadata,
        "composite_operators": _patch_composite_operators,
        "rewrite_rules": _patch_rewrite_rules,
    }
    with ExitStack() as stack:
        for group, patch in patches.items():
            if is_enabled(group):
                stack.enter_context(patch())
        yield


def preload_registry() -> None:
    """Read the registry for all later calls in this process and its forks."""
    if is_enabled("registry"):
        from torch.onnx._internal.exporter import _registration

        registry_class: Any = _registration.ONNXRegistry
        _REGISTRY.read(registry_class.from_torchlib.__func__)


@dataclass(frozen=True, slots=True)
class _Sources:
    """The inputs of a registry; equal sources give an equal registry."""

    functions: tuple[Any, ...]
    """Every function that is registered as a translation."""
    missing: frozenset[str]
    """Operators that have a translation, but do not exist in torch."""


class RegistryCache:
    """The translations of all opsets, by operator."""

    def __init__(self) -> None:
        self._sources: _Sources | None = None
        self._translations: dict[Any, list[Any]] = {}

    def read(self, from_torchlib: Callable[..., Any]) -> dict[Any, list[Any]]:
        """Return the translations; read them again if their sources changed.

        `from_torchlib`: The method of torch that reads the sources into a registry.
        """
        from torch.onnx._internal.exporter import _registration

        class FullRegistry(_registration.ONNXRegistry):
            def _cleanup_registry_based_on_opset_version(self) -> None:
                """Keep the translations of other opsets."""

        from onnxscript._internal.values import TracedOnnxFunction
        from onnxscript.function_libs.torch_lib import registration
        from torch.onnx._internal.exporter._torchlib import _torchlib_registry

        import_module("onnxscript.function_libs.torch_lib.ops")  # the import registers them
        items = list(registration.default_registry.items())
        functions = [(name, *item.overloads, *item.complex) for name, item in items]
        missing = frozenset(name for name, _ in items if not _has_operator(name))
        sources = _Sources((*_torchlib_registry.get_torchlib_ops(), *functions), missing)
        if sources != self._sources:
            self._sources = sources
            # onnxscript parses the source of each function for its domain, which torch ignores.
            light = property(lambda function: function.opset)
            with replace_attribute(TracedOnnxFunction, "function_ir", light):
                self._translations = from_torchlib(FullRegistry).functions
        return self._translations


_REGISTRY = RegistryCache()


def _has_operator(name: str) -> bool:
    """Return True if an operator, such as `torchvision::nms`, is registered in torch now."""
    namespace, _, operator = name.partition("::")
    if namespace in _PYTHON:
        return True
    return hasattr(getattr(torch.ops, namespace), operator.partition(".")[0])


def _patch_registry() -> AbstractContextManager[None]:
    from torch.onnx._internal.exporter import _registration

    registry_class: Any = _registration.ONNXRegistry
    read = registry_class.from_torchlib.__func__

    def from_torchlib(cls: Any, opset_version: int = 18) -> Any:
        registry = cls()
        registry._opset_version = opset_version
        # The cleanup creates its own lists, so the cached lists do not change.
        registry.functions = dict(_REGISTRY.read(read))
        registry._cleanup_registry_based_on_opset_version()
        return registry

    return replace_attribute(registry_class, "from_torchlib", classmethod(from_torchlib))


def _patch_type_promotion() -> AbstractContextManager[None]:
    from torch.onnx._internal.fx.passes import type_promotion

    interpreter_class: Any = vars(type_promotion)["_TypePromotionInterpreter"]
    run = interpreter_class.run_node
    changed: WeakSet[Any] = WeakSet()

    def run_node(self: Any, node: Any) -> Any:
        if node.op != "call_function":
            return run(self, node)
        if self in changed or not _has_known_result(node):
            changed.add(self)
            return run(self, node)
        before = (node.target, node.args, node.kwargs)
        with self._set_current_node(node):
            rule = type_promotion.get_type_promotion_rule(node, self.type_promotion_table)
            if rule:
                self._maybe_promote_node(node, rule)
        if (node.target, node.args, node.kwargs) == before:
            return node.meta["val"]
        changed.add(self)
        return torch.fx.Interpreter.run_node(self, node)

    return replace_attribute(interpreter_class, "run_node", run_node)


def _has_known_result(node: Any) -> bool:
    """Return True if a run of the node can only give the result in the program.

    If a size depends on values, each run gives it a new name. A branch is a separate program.
    """
    is_plain = not isinstance(node.target, HigherOrderOperator)
    return is_plain and "val" in node.meta and "unbacked_bindings" not in node.meta


def _patch_node_metadata() -> AbstractContextManager[None]:
    from torch.onnx._internal.exporter import _core

    get_namespace: Any = vars(_core)["_get_node_namespace"]

    def set_metadata(fx_node: Any, ir_node: Any) -> None:
        ir_node.metadata_props["namespace"] = get_namespace(fx_node)[0]
        ir_node.metadata_props[STACK_TRACE_KEY] = fx_node.meta.get("stack_trace", "")

    return replace_attribute(_core, "_set_node_metadata", set_metadata)


@contextmanager
def _patch_composite_operators() -> Iterator[None]:
    from torch._export import utils
    from torch.export import decomp_utils, exported_program

    collect: Any = vars(utils)["_collect_all_valid_cia_ops"]
    materialize: Any = vars(utils)["_materialize_cpp_cia_ops"]

    def collect_once() -> Any:
        materialize()
        with replace_attribute(utils, "_materialize_cpp_cia_ops", lambda: None):
            return collect()

    with ExitStack() as stack:
        for module in (decomp_utils, exported_program):
            patch = replace_attribute(module, "_collect_all_valid_cia_ops", collect_once)
            stack.enter_context(patch)
        stack.enter_context(replace_attribute(OperatorBase, "py_impl", _register_kernel))
        yield


_register: Any = vars(OperatorBase)["py_impl"]


def _register_kernel(operator: Any, key: Any) -> Callable[[Any], Any]:
    def register(kernel: Any) -> Any:
        is_checked = type(key) is not DispatchKey or key == DispatchKey.Python
        if is_checked or key in operator.py_kernels:
            return _register(operator, key)(kernel)
        operator.py_kernels[key] = kernel
        operator._dispatch_cache.clear()
        return kernel

    return register


def _patch_rewrite_rules() -> AbstractContextManager[None]:
    from onnxscript.rewriter import _rewrite_rule
    from onnxscript.rewriter._matcher import SimplePatternMatcher

    rule_class: Any = _rewrite_rule.RewriteRule
    try_rewrite = rule_class.try_rewrite
    cache: dict[tuple[Any, str, str], bool] = {}

    def can_match(matcher: Any, node: Any) -> bool:
        if type(matcher) is not SimplePatternMatcher:
            return True
        # The matcher compares a node with the first output of the pattern before all others.
        last = matcher.pattern.output_nodes[0]
        return bool(last.op.matches(node.op_type) and last.domain.matches(node.domain))

    def try_if_possible(
        self: Any, model: Any, graph: Any, node: Any, *, verbose: Any = None, tracer: Any = None
    ) -> Any:
        if not verbose and not tracer:
            key = (self, node.op_type, node.domain)
            if key not in cache:
                cache[key] = can_match(self._matcher, node)
            if not cache[key]:
                return None
        return try_rewrite(self, model, graph, node, verbose=verbose, tracer=tracer)

    return replace_attribute(rule_class, "try_rewrite", try_if_possible)


_DTYPES = frozenset(
    {
        torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool,
        torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    }
)  # fmt: skip
#: The index of `keep_initializers_as_inputs` in the arguments of `_export_onnx` after the weights.
_LISTS_WEIGHTS = 5


@dataclass(slots=True)
class DetachedWeights:
    """The weights of one export.

    torch puts all weights into one message, serializes it and copies the bytes. That needs three
    times the memory of the weights. Here the weights remain the tensors of the model.
    """

    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    """The tensors by their names in the graph."""
    are_inputs: bool = False
    """True if the file lists them as inputs, too."""


def is_plain_tensor(tensor: torch.Tensor) -> bool:
    """Return True if torch stores a weight as its bytes."""
    return (
        tensor.layout is torch.strided
        and tensor.dtype in _DTYPES
        and tensor.device.type != "meta"
        and not tensor.is_quantized
    )


@contextmanager
def detach_weights() -> Iterator[DetachedWeights]:
    """Keep the weights out of the protobuf message of a TorchScript export.

    Yields:
        The weights; none if the group is off or if a weight is not a plain tensor.
    """
    detached = DetachedWeights()
    if not is_enabled("weights"):
        yield detached
        return
    graph_class: Any = torch.Graph
    export = graph_class._export_onnx

    def export_graph(graph: torch.Graph, weights: dict[str, torch.Tensor], *rest: Any) -> Any:
        if not all(is_plain_tensor(weight) for weight in weights.values()):
            return export(graph, weights, *rest)
        detached.weights.update(weights)
        detached.are_inputs = bool(rest[_LISTS_WEIGHTS])
        return export(graph, {}, *rest)

    with replace_attribute(graph_class, "_export_onnx", export_graph):
        yield detached


def restore_weights(
    ir_model: ir.Model, detached: DetachedWeights, buffers: Iterable[torch.Tensor] = ()
) -> None:
    """Store the weights in the graph, in the order of its inputs.

    `buffers`: Tensors that change before the file is written; the graph gets copies of them.
    """
    graph = ir_model.graph
    changing = {buffer.untyped_storage().data_ptr() for buffer in buffers}
    for value in graph.inputs:
        if value.name in detached.weights:
            weight = detached.weights[value.name]
            if weight.untyped_storage().data_ptr() in changing:
                weight = weight.clone()
            value.const_value = TorchTensor(weight, name=value.name)
            graph.register_initializer(value)
    if not detached.are_inputs:
        inputs = [value for value in graph.inputs if value.name not in detached.weights]
        graph.inputs.clear()
        graph.inputs.extend(inputs)
