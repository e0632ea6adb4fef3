"""What `torch.onnx.export` works out again for every opset, though it is the same: found once.

In: nothing. Out: `reused_translations`, under which the dynamo exporter writes the same files
sooner. Private modules of torch and onnxscript are touched here, each guarded by version: where
one is not known, the exporter works as it comes.

- The registry of translations is read from the sources of hundreds of functions, for each opset
  anew. Here they are read once for all opsets, and again where something new was registered.
- The signature of an operator is read from its schema at every node. Here once for each schema that
  onnx itself brings.
- The optimiser tries every rule at every node. Here a rule is not tried at a node whose operator
  is another one than the rule ends with, which is the first that it would look at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch

from exporter.worker.torch_internals import is_known_torch

#: Where onnx says that a schema comes from which it did not bring.
_NO_FILE = "unknown"
#: Namespaces of functions that are Python's own.
_PYTHON = ("_operator", "math")
#: The minor versions of onnxscript whose private modules were looked at.
_KNOWN_ONNXSCRIPT = ((0, 7),)


@contextmanager
def reused_translations() -> Iterator[None]:
    """Calls of `torch.onnx.export` inside find the translations that were read before."""
    with ExitStack() as patches:
        if is_known_torch():
            patches.enter_context(_kept_registry())
            if _is_known_onnxscript():
                patches.enter_context(_promising_rules())
                patches.enter_context(_kept_signatures())
        yield


def read_translations() -> None:
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


def _promising_rules() -> AbstractContextManager[None]:
    from onnxscript.rewriter import _rewrite_rule

    rule_class: Any = _rewrite_rule.RewriteRule
    try_rewrite = rule_class.try_rewrite

    def try_if_promising(self: Any, model: Any, graph: Any, node: Any, **options: Any) -> Any:
        if any(options.values()) or _may_match(self._matcher, node):
            return try_rewrite(self, model, graph, node, **options)
        return None

    return _patched(rule_class, "try_rewrite", try_if_promising)


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
