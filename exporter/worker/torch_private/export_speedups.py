"""What `torch.onnx.export` works out again for every opset, though it is the same: found once.

In: nothing. Out: `speed_up_conversion`, under which the dynamo exporter writes the same files
sooner. Private modules of torch and onnxscript are touched here, each guarded by version: where
one is not known, the exporter works as it comes.

- The registry of translations is read from the sources of hundreds of functions, for each opset
  anew. Here they are read once for all opsets, and again where something new was registered.
- Where a type is promoted is found by running the whole program once more. Here a node is run again
  only from the first one on that was changed: before it, what it gives is known from the program.
- Each node is noted with the text of the program that it stems from, and the modules that it is in.
  No file keeps that: here only the lines of the source are, which messages tell.
- The signature of an operator is read from its schema at every node. Here once for each schema that
  onnx itself brings.
- The optimiser tries every rule at every node. Here a rule is not tried at a node whose operator
  is another one than the rule ends with, which is the first that it would look at.
- Whether a value is a tensor is asked of protocols. Here what these ask for is collected once.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any
from weakref import WeakSet

import torch
from torch._ops import HigherOrderOperator

from exporter.worker.torch_private.versions import is_known_torch

#: Where a node keeps the lines of the source that it stems from.
STACK_TRACE_KEY = "pkg.torch.onnx.stack_trace"
#: Where onnx says that a schema comes from which it did not bring.
_NO_FILE = "unknown"
#: Namespaces of functions that are Python's own.
_PYTHON = ("_operator", "math")
#: The minor versions of onnxscript whose private modules were looked at.
_KNOWN_ONNXSCRIPT = ((0, 7),)


@contextmanager
def speed_up_conversion() -> Iterator[None]:
    """Calls of `torch.onnx.export` inside find the translations that were read before."""
    with ExitStack() as patches:
        patches.enter_context(_kept_protocols())
        if is_known_torch():
            patches.enter_context(_kept_registry())
            patches.enter_context(_kept_values())
            patches.enter_context(_fewer_notes())
            if _is_known_onnxscript():
                patches.enter_context(_promising_rules())
                patches.enter_context(_kept_signatures())
        yield


def preload_registry() -> None:
    """Reads the registry now, for all calls to come in this process and its forks."""
    if is_known_torch():
        from torch.onnx._internal.exporter import _registration

        registry_class: Any = _registration.ONNXRegistry
        _translations(registry_class.from_torchlib.__func__)


def _is_known_onnxscript() -> bool:
    import onnxscript

    major, minor = onnxscript.__version__.split(".")[:2]
    return (int(major), int(minor)) in _KNOWN_ONNXSCRIPT


@dataclass(frozen=True, slots=True)
class _Translations:
    functions: dict[Any, list[Any]]
    """By operator, the translations of all opsets."""
    registered: tuple[Any, ...]
    """What they were read from."""
    lacking: frozenset[str]
    """Operators with a translation that torch had not registered."""

    def are_current(self) -> bool:
        """Whether reading again would give the same."""
        registered, lacking = _sources()
        return self.lacking == lacking and self.registered == registered


_KEPT: list[_Translations] = []  # none or one


def _translations(read: Callable[..., Any]) -> _Translations:
    if not _KEPT or not _KEPT[0].are_current():
        _KEPT[:] = [_read(read)]
    return _KEPT[0]


def _read(read: Callable[..., Any]) -> _Translations:
    """Reads by torch's own code, which then would drop what an opset has no use for."""
    from torch.onnx._internal.exporter import _registration

    class Whole(_registration.ONNXRegistry):
        def _cleanup_registry_based_on_opset_version(self) -> None:
            """Keeps what other opsets use."""

    registered, lacking = _sources()
    return _Translations(read(Whole).functions, registered, lacking)


def _sources() -> tuple[tuple[Any, ...], frozenset[str]]:
    """Every function that is registered as a translation, and the operators that are not there."""
    from onnxscript.function_libs.torch_lib import registration
    from torch.onnx._internal.exporter._torchlib import _torchlib_registry

    import_module("onnxscript.function_libs.torch_lib.ops")  # which registers them
    theirs = list(registration.default_registry.items())
    functions = [(name, *overloaded.overloads, *overloaded.complex) for name, overloaded in theirs]
    lacking = frozenset(name for name, _ in theirs if not _is_there(name))
    return (*_torchlib_registry.get_torchlib_ops(), *functions), lacking


def _is_there(name: str) -> bool:
    """Whether torch knows the operator, such as `torchvision::nms`, by now."""
    namespace, _, operator = name.partition("::")
    if namespace in _PYTHON:
        return True
    return hasattr(getattr(torch.ops, namespace), operator.partition(".")[0])


def _kept_registry() -> AbstractContextManager[None]:
    from torch.onnx._internal.exporter import _registration

    registry_class: Any = _registration.ONNXRegistry
    read = registry_class.from_torchlib.__func__

    def from_torchlib(cls: Any, opset_version: int = 18) -> Any:
        registry = cls()
        registry._opset_version = opset_version
        # What drops the others makes lists of its own: nobody adds to ours.
        registry.functions = dict(_translations(read).functions)
        registry._cleanup_registry_based_on_opset_version()
        return registry

    return _patched(registry_class, "from_torchlib", classmethod(from_torchlib))


def _kept_values() -> AbstractContextManager[None]:
    from torch.onnx._internal.fx.passes import type_promotion

    interpreter_class: Any = vars(type_promotion)["_TypePromotionInterpreter"]
    run = interpreter_class.run_node
    changed: WeakSet[Any] = WeakSet()

    def run_node(self: Any, node: Any) -> Any:
        if node.op != "call_function":
            return run(self, node)
        if self in changed or not _is_known(node):
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

    return _patched(interpreter_class, "run_node", run_node)


def _is_known(node: Any) -> bool:
    """Whether a run of the node can only give what the program says that it gives.

    Where sizes depend on values, each run names them anew, and a branch is a program of its own.
    """
    is_plain = not isinstance(node.target, HigherOrderOperator)
    return is_plain and "val" in node.meta and "unbacked_bindings" not in node.meta


def _fewer_notes() -> AbstractContextManager[None]:
    from torch.onnx._internal.exporter import _core

    namespace_of: Any = vars(_core)["_get_node_namespace"]

    def note(fx_node: Any, ir_node: Any) -> None:
        ir_node.metadata_props["namespace"] = namespace_of(fx_node)[0]
        ir_node.metadata_props[STACK_TRACE_KEY] = fx_node.meta.get("stack_trace", "")

    return _patched(_core, "_set_node_metadata", note)


def _promising_rules() -> AbstractContextManager[None]:
    from onnxscript.rewriter import _rewrite_rule

    rule_class: Any = _rewrite_rule.RewriteRule
    try_rewrite = rule_class.try_rewrite

    known: dict[tuple[Any, str, str], bool] = {}

    def try_if_promising(
        self: Any, model: Any, graph: Any, node: Any, *, verbose: Any = None, tracer: Any = None
    ) -> Any:
        if not verbose and not tracer:
            key = (self, node.op_type, node.domain)
            is_promising = known.get(key)
            if is_promising is None:
                is_promising = known[key] = _may_match(self._matcher, node)
            if not is_promising:
                return None
        return try_rewrite(self, model, graph, node, verbose=verbose, tracer=tracer)

    return _patched(rule_class, "try_rewrite", try_if_promising)


def _kept_protocols() -> AbstractContextManager[None]:
    """What a protocol asks for: before Python 3.12, each `isinstance` collects it anew."""
    if sys.version_info >= (3, 12):
        return nullcontext()
    attributes = vars(typing)["_get_protocol_attrs"]
    return _patched(typing, "_get_protocol_attrs", cache(attributes))


def _kept_signatures() -> AbstractContextManager[None]:
    from onnx_ir import schemas

    signature_class: Any = schemas.OpSignature
    read = signature_class.from_op_schema.__func__
    kept: dict[tuple[Any, ...], Any] = {}

    def from_op_schema(cls: Any, schema: Any) -> Any:
        if schema.file == _NO_FILE:
            return read(cls, schema)
        # The place of the schema in onnx's own sources tells it from any other.
        key = (cls, schema.domain, schema.name, schema.since_version, schema.file, schema.line)
        if key not in kept:
            kept[key] = read(cls, schema)
        return kept[key]

    return _patched(signature_class, "from_op_schema", classmethod(from_op_schema))


@contextmanager
def _patched(owner: Any, name: str, value: object) -> Iterator[None]:
    before = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _may_match(matcher: Any, node: Any) -> bool:
    """Whether the operator of a node is the one with which the pattern of a rule ends."""
    from onnxscript.rewriter._matcher import SimplePatternMatcher

    if type(matcher) is not SimplePatternMatcher:
        return True
    # A node is held against the first output of the pattern, and against others only then.
    last = matcher.pattern.output_nodes[0]
    return bool(last.op.matches(node.op_type) and last.domain.matches(node.domain))
