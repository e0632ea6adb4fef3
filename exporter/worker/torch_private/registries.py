"""The registries of torch's exporters: operators that have a translation."""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from exporter.worker.torch_private.guards import is_known_torch

Operator = torch._ops.OpOverload

#: The functions that a symbolic function calls to reject an operator.
_REFUSALS = frozenset(
    {
        "_unimplemented",
        "_onnx_unsupported",
        "_onnx_opset_unsupported",
        "_onnx_opset_unsupported_detailed",
    }
)


class UnknownTorchVersion(Exception):
    """The private modules of the installed torch were not tested."""


@dataclass(frozen=True, slots=True)
class DynamoRegistry:
    """The translations and decompositions of dynamo at one opset."""

    translated: frozenset[str]
    """Operators by name, `aten.add.Tensor`, with a translation for real numbers."""
    decompositions: Mapping[Operator, Callable[..., Any]]
    """The decompositions that torch lists in a table."""


def require_known_torch() -> None:
    """Raise `UnknownTorchVersion` if the registries of this torch were not tested."""
    if not is_known_torch():
        message = f"torch {torch.__version__}: its registries are not known to this version"
        raise UnknownTorchVersion(message)


def list_aten_operators() -> list[Operator]:
    """Return every ATen operator with every overload, sorted by name."""
    operators = []
    for qualified in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, name = qualified.partition("::")
        if namespace == "aten":
            packet, _, overload = name.partition(".")
            operators.append(getattr(getattr(torch.ops.aten, packet), overload or "default"))
    return operators


def split_operator_name(operator: Operator) -> tuple[str, str]:
    """Return `aten::add` and `Tensor`; an overload without a name is `default`."""
    schema = operator._schema
    return str(schema.name), str(schema.overload_name) or "default"


def list_parameters(operator: Operator) -> Sequence[Any]:
    """Return the parameters of an operator, as `torch.Argument`s of its schema."""
    return tuple(operator._schema.arguments)


def is_out_variant(operator: Operator) -> bool:
    """Return True if the caller passes the tensor for the result."""
    return any(parameter.is_out for parameter in list_parameters(operator))


def has_tensor_results(operator: Operator) -> bool:
    """Return True if an operator returns a tensor or a list of tensors."""
    return any("Tensor" in str(returned.type) for returned in operator._schema.returns)


def is_decomposed(operator: Operator, registry: DynamoRegistry) -> bool:
    """Return True if an operator has no translation, but a decomposition."""
    if str(operator) in registry.translated:
        return False
    return operator in registry.decompositions or bool(operator._can_decompose())


def list_program_operators(program: Any) -> frozenset[str]:
    """Return the operators of a program by name, such as `aten.add.Tensor`."""
    modules = (m for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule))
    targets = (node.target for module in modules for node in module.graph.nodes)
    return frozenset(str(target) for target in targets if isinstance(target, Operator))


def read_torchscript_opsets(opsets: Iterable[int]) -> dict[str, tuple[int, ...]]:
    """Return the opsets at which each operator, `aten::add`, has a symbolic function.

    A function that only rejects its operator does not count.
    """
    from torch.onnx._internal.torchscript_exporter import registration

    opsets = tuple(opsets)
    for opset in opsets:  # the import of a module registers its functions
        importlib.import_module(f"torch.onnx._internal.torchscript_exporter.symbolic_opset{opset}")
    schemas = {schema.name for schema in torch._C._jit_get_all_schemas()}
    registry = registration.registry
    groups = {name: registry.get_function_group(name) for name in sorted(registry.all_functions())}
    table = {}
    for name, group in groups.items():
        functions = {opset: group.get(opset) for opset in opsets} if group else {}
        supported = tuple(opset for opset, f in functions.items() if f and not is_refusal_stub(f))
        if supported and name.startswith("aten::"):
            # The exporter removes one underscore from `aten::__and__` before it looks it up.
            is_short = name not in schemas and f"{name}_" in schemas
            table[f"{name}_" if is_short else name] = supported
    return table


def is_refusal_stub(function: Callable[..., Any]) -> bool:
    """Return True if the source shows that a symbolic function rejects every input."""
    function = inspect.unwrap(function)
    if function.__qualname__.startswith("_block_list_in_opset"):
        return True
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # a lambda or a partial: probably no stub
        return False
    body = tree.body[0]
    if not isinstance(body, ast.FunctionDef):
        return False
    returned = [node.value for node in ast.walk(body) if isinstance(node, ast.Return)]
    calls = [node for node in ast.walk(body) if _is_refusal(node)]
    return bool(calls) and all(value is None or _is_refusal(value) for value in returned)


def _is_refusal(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    return name in _REFUSALS


def read_dynamo_registry(opset: int) -> DynamoRegistry:
    """Return the registry of one opset; takes about a second."""
    from torch.onnx._internal.exporter import _decomp, _registration

    registry = _registration.ONNXRegistry.from_torchlib(opset_version=opset)
    translated = {
        str(translations[0].fx_target)
        for name, translations in registry.functions.items()
        if isinstance(name, str) and any(not item.is_complex for item in translations)
    }
    registered = set(_decomp.get_onnx_implemented_overloads(registry))
    table: Any = _decomp.create_onnx_friendly_decomposition_table(registered)
    return DynamoRegistry(translated=frozenset(translated), decompositions=table)
