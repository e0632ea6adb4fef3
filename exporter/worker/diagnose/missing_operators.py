"""All operators that an exporter lacks for a model, not the first one alone.

In: a `ExportContext` whose conversion failed for want of an operator. Out: each such operator with its count
and the model's lines.

Dynamo: the decomposed program against the registry of the opset. TorchScript: the traced graph
against its registry, by torch's own `unconvertible_ops`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from exporter.planning.plan import FIRST_DYNAMO_OPSET
from exporter.records.record import MissingOperator
from exporter.worker.diagnose.source_lines import find_source_line
from exporter.worker.export.convert import MODES
from exporter.worker.export.export_context import ExportContext
from exporter.worker.inputs.call import build_tensor_call
from exporter.worker.reference.eager_run import BufferSnapshot
from exporter.worker.torch_private.graph_operators import untranslated

#: How the exporters say that it is an operator that they lack.
_COMPLAINT = re.compile(
    r"No ONNX function found for <OpOverload\(op='(?P<op>[\w.:]+)', overload='(?P<overload>\w+)'\)>"
    r"|(?:Exporting the operator|Failed to export operator|unrecognized namespace) "
    r"'?(?P<name>[\w.]+::[\w.]+)'?"
    r"|Unsupported: ONNX export of (?:operator )?(?P<refused>\w+)[ ,.]"
)


def find_missing_operators(message: str, case: ExportContext) -> tuple[MissingOperator, ...]:
    """Every missing operator, those with the most uses first.

    Args:
        message: What the exporter said; where it does not speak of an operator, none is looked for.
        case: The model, its capture and the opset.
    """
    complaint = _COMPLAINT.search(message)
    if complaint is None:
        return ()
    named = complaint["name"] or f"aten::{complaint['refused']}"
    if complaint["op"]:
        named = f"{complaint['op']}.{complaint['overload']}"
    by_dynamo = case.route.exporter == "dynamo"
    uses = list(_under_dynamo(case) if by_dynamo else _under_torchscript(case, named))
    if named not in {operator for operator, _ in uses}:
        uses.append((named, ""))
    return _counted(uses)


def group_missing_nodes(nodes: Iterable[torch.fx.Node], root: Path) -> tuple[MissingOperator, ...]:
    """Nodes of a decomposed program that have no translation, by operator."""
    return _counted(_told(nodes, root))


def _counted(uses: Iterable[tuple[str, str]]) -> tuple[MissingOperator, ...]:
    sources: dict[str, list[str]] = {}
    for operator, source in uses:
        sources.setdefault(operator, []).append(source)
    found = (
        MissingOperator(
            operator=operator,
            count=len(places),
            sources=tuple(dict.fromkeys(place for place in places if place)),
        )
        for operator, places in sources.items()
    )
    return tuple(sorted(found, key=lambda item: (-item.count, item.operator)))


def _under_dynamo(case: ExportContext) -> Iterator[tuple[str, str]]:
    if case.program is None:
        return
    # Below its first opset, dynamo translates to that one and has the file converted down.
    known = case.custom.get_translations(case.opset)
    nodes = untranslated(case.program, max(case.opset, FIRST_DYNAMO_OPSET), known)
    yield from _told(nodes, case.root)


def _told(nodes: Iterable[torch.fx.Node], root: Path) -> Iterator[tuple[str, str]]:
    for node in nodes:
        trace = node.meta.get("stack_trace") or ""
        yield str(node.target), find_source_line(trace, root)


def _under_torchscript(case: ExportContext, named: str) -> Iterator[tuple[str, str]]:
    """Nodes of the traced graph whose operator has no symbolic function, or that one refused."""
    call = build_tensor_call(case.spec, case.inputs)
    state = BufferSnapshot(case.model)
    try:
        with warnings.catch_warnings(), torch.no_grad(), case.custom.register_symbolics(case.opset):
            warnings.simplefilter("ignore")
            graph, names = torch.onnx.utils.unconvertible_ops(
                case.model,
                (*call.args, call.kwargs),
                training=getattr(torch.onnx.TrainingMode, MODES[case.spec.mode]),
                opset_version=case.opset,
            )
    except Exception:  # what cannot be traced says nothing of its operators
        return
    finally:
        state.restore()
    missing = {named, *(name.rstrip("_") for name in names)}
    for node in _nodes(graph):
        # What works in place has a name with `_` until a pass of the exporter's takes it off.
        kind = node.kind().rstrip("_")
        if kind in missing:
            yield kind, find_source_line(str(node.sourceRange()), case.root)


def _nodes(graph: torch.Graph | torch.Block) -> Iterator[torch.Node]:
    for node in graph.nodes():
        yield node
        for block in node.blocks():
            yield from _nodes(block)
