"""What torch's exporters have a translation for: the registries, which are private to torch.

In: opsets. Out: for TorchScript, the opsets of each operator that has a symbolic function; for
dynamo, the operators of one opset that have a translation, and how torch takes others apart.

As in `torch_internals.py`, nothing here is told of a torch that was not looked at.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from exporter.worker.torch_private.versions import is_known_torch

Operator = torch._ops.OpOverload

#: What a symbolic function calls to refuse.
_REFUSALS = frozenset(
    {
        "_unimplemented",
        "_onnx_unsupported",
        "_onnx_opset_unsupported",
        "_onnx_opset_unsupported_detailed",
    }
)


class UnknownTorchVersion(Exception):
    """The private modules of the installed torch were not looked at."""


@dataclass(frozen=True, slots=True)
class DynamoRegistry:
    """What dynamo does with operators at one opset."""

    translated: frozenset[str]
    """Operators by name, `aten.add.Tensor`, with a translation for real numbers."""
    decompositions: Mapping[Operator, Callable[..., Any]]
    """How torch takes apart what has none, as far as a table says it."""


def require_known_torch() -> None:
    """Raises `UnknownTorchVersion` where the registries may be other ones than those looked at."""
    if not is_known_torch():
        message = f"the registries of torch {torch.__version__} are not known to this version"
        raise UnknownTorchVersion(message)


def list_aten_operators() -> list[Operator]:
    """Every ATen operator, overload by overload, sorted by name."""
    found = []
    for qualified in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, name = qualified.partition("::")
        if namespace == "aten":
            packet, _, overload = name.partition(".")
            found.append(getattr(getattr(torch.ops.aten, packet), overload or "default"))
    return found


def split_operator_name(operator: Operator) -> tuple[str, str]:
    """`aten::add` and `Tensor`; the overload without a name is `default`."""
    schema = operator._schema
    return str(schema.name), str(schema.overload_name) or "default"


def list_parameters(operator: Operator) -> Sequence[Any]:
    """What the operator takes, as `torch.Argument`s of its schema."""
    return tuple(operator._schema.arguments)


def is_out_variant(operator: Operator) -> bool:
    """Whether the caller gives it the tensor to write to."""
    return any(parameter.is_out for parameter in list_parameters(operator))


def has_tensor_results(operator: Operator) -> bool:
    """Whether a tensor comes out of it, or a list of them."""
    return any("Tensor" in str(returned.type) for returned in operator._schema.returns)


def is_decomposed(operator: Operator, registry: DynamoRegistry) -> bool:
    """Whether it has no translation, and torch knows how to do it with other operators."""
    if str(operator) in registry.translated:
        return False
    return operator in registry.decompositions or bool(operator._can_decompose())


def list_program_operators(program: Any) -> frozenset[str]:
    """The operators of a program by name: `aten.add.Tensor`."""
    modules = (m for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule))
    targets = (node.target for module in modules for node in module.graph.nodes)
    return frozenset(str(target) for target in targets if isinstance(target, Operator))


def read_torchscript_opsets(opsets: Iterable[int]) -> dict[str, tuple[int, ...]]:
    """The opsets at which each operator, `aten::add`, has a symbolic function.

    A function that does nothing but refuse is none.
    """
    from torch.onnx._internal.torchscript_exporter import registration

    opsets = tuple(opsets)
    for opset in opsets:  # a module is registered when it is imported
        importlib.import_module(f"torch.onnx._internal.torchscript_exporter.symbolic_opset{opset}")
    known = {schema.name for schema in torch._C._jit_get_all_schemas()}
    registry = registration.registry
    groups = {name: registry.get_function_group(name) for name in sorted(registry.all_functions())}
    found = {}
    for name, group in groups.items():
        functions = {opset: group.get(opset) for opset in opsets} if group else {}
        takes = tuple(o for o, function in functions.items() if function and not is_refusal_stub(function))
        if takes and name.startswith("aten::"):
            found[_as_written(name, known)] = takes
    return found


def _as_written(name: str, known: set[str]) -> str:
    """`aten::__and__`: the exporter takes one underscore off the end before it looks."""
    return f"{name}_" if name not in known and f"{name}_" in known else name


def is_refusal_stub(function: Callable[..., Any]) -> bool:
    """Whether a symbolic function refuses whatever it is given, as far as its source shows it."""
    function = inspect.unwrap(function)
    if function.__qualname__.startswith("_block_list_in_opset"):
        return True
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # a lambda or a partial: not known to refuse
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
    """What dynamo has for one opset; takes about a second."""
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
