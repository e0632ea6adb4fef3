"""All operators of a model that an exporter cannot translate, not only the first.

For dynamo, the decomposed program is compared with the registry of the opset. For TorchScript,
torch's own `unconvertible_ops` compares the traced graph with its registry.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from exporter.planning.plan import FIRST_DYNAMO_OPSET
from exporter.records.record import MissingOperator
from exporter.worker.export.attempts import ExportContext
from exporter.worker.export.convert import MODES
from exporter.worker.inputs.call import build_tensor_call
from exporter.worker.process.failure import find_node_line
from exporter.worker.process.setup import apply_state
from exporter.worker.reference.python_state import ModelSnapshot
from exporter.worker.torch_private.graph_operators import find_untranslated_nodes, iterate_nodes
from exporter.worker.torch_private.guards import is_enabled

#: The messages of the exporters about a missing operator.
_COMPLAINT = re.compile(
    r"No ONNX function found for <OpOverload\(op='(?P<op>[\w.:]+)', overload='(?P<overload>\w+)'\)>"
    r"|(?:Exporting the operator|Failed to export operator|unrecognized namespace) "
    r"'?(?P<name>[\w.]+::[\w.]+)'?"
    r"|Unsupported: ONNX export of (?:operator )?(?P<refused>\w+)[ ,.]"
)


def find_missing_operators(message: str, context: ExportContext) -> tuple[MissingOperator, ...]:
    """Return every missing operator, sorted by the number of uses.

    `message`: The message of the exporter. If it names no operator, the result is empty.
    """
    complaint = _COMPLAINT.search(message)
    if complaint is None:
        return ()
    operator = complaint["name"] or f"aten::{complaint['refused']}"
    if complaint["op"]:
        operator = f"{complaint['op']}.{complaint['overload']}"
    if context.route.exporter == "dynamo":
        uses = list(_find_uses_in_program(context))
    elif context.route.is_export:
        uses = list(_find_uses_in_trace(context, operator))
    else:
        uses = []
    if operator not in {name for name, _ in uses}:
        uses.append((operator, ""))
    return _group_uses(uses)


def group_missing_nodes(nodes: Iterable[torch.fx.Node], root: Path) -> tuple[MissingOperator, ...]:
    """Return the operators of untranslated nodes, with counts and lines."""
    return _group_uses(_list_uses(nodes, root))


def _group_uses(uses: Iterable[tuple[str, str]]) -> tuple[MissingOperator, ...]:
    lines: dict[str, list[str]] = {}
    for operator, line in uses:
        lines.setdefault(operator, []).append(line)
    operators = (
        MissingOperator(
            operator=operator,
            count=len(places),
            sources=tuple(dict.fromkeys(line for line in places if line)),
        )
        for operator, places in lines.items()
    )
    return tuple(sorted(operators, key=lambda item: (-item.count, item.operator)))


def _list_uses(nodes: Iterable[torch.fx.Node], root: Path) -> Iterator[tuple[str, str]]:
    for node in nodes:
        yield str(node.target), find_node_line(node, root)


def _find_uses_in_program(context: ExportContext) -> Iterator[tuple[str, str]]:
    """Yield the operators without a translation in the decomposed program."""
    if context.program is None or not is_enabled("operators"):
        return
    # For lower opsets, dynamo writes its first opset and the file is converted down.
    opset = max(context.opset, FIRST_DYNAMO_OPSET)
    custom = context.custom.get_translations(context.opset)
    try:
        with apply_state(context.spec):
            nodes = find_untranslated_nodes(context.program, opset, custom)
    except Exception:  # the export itself reports the error; this only adds operators
        return
    yield from _list_uses(nodes, context.root)


def _find_uses_in_trace(context: ExportContext, rejected: str) -> Iterator[tuple[str, str]]:
    """Yield the operators of the traced graph that have no symbolic function or are rejected."""
    call = build_tensor_call(context.spec, context.inputs)
    state = ModelSnapshot(context.model)
    try:
        with (
            warnings.catch_warnings(),
            apply_state(context.spec),
            context.custom.register_symbolics(context.opset),
        ):
            warnings.simplefilter("ignore")
            graph, names = torch.onnx.utils.unconvertible_ops(
                context.model,
                (*call.args, call.kwargs),
                training=getattr(torch.onnx.TrainingMode, MODES[context.spec.mode]),
                opset_version=context.opset,
            )
    except Exception:  # a model that cannot be traced shows no operators
        return
    finally:
        state.restore()
    missing = {rejected, *(name.rstrip("_") for name in names)}
    for node in iterate_nodes(graph):
        # The name of an in-place operator ends with `_`, until a later pass of the exporter.
        kind = node.kind().rstrip("_")
        if kind in missing:
            yield kind, find_node_line(node, context.root)
