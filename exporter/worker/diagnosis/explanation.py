"""The explanation of a red record or a failure, with advice for the manifest."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import onnx_ir as ir
import torch

from exporter.checks.protocol import CheckedFile
from exporter.core.check_table import DETERMINISM_CHECK
from exporter.core.device_name import DeviceName
from exporter.core.text import pluralize
from exporter.manifest import Device
from exporter.manifest.rules.sources import TRAINING_MODES
from exporter.manifest.syntax.values import FIRST_DYNAMO_OPSET
from exporter.records.record import (
    AGREES,
    PROVED,
    Blame,
    Culprit,
    MissingOperator,
    Record,
    Stage,
    Status,
)
from exporter.runtimes import LoadFailure, RuntimeUnavailable, open_session
from exporter.worker.diagnosis.divergence import repeat_export
from exporter.worker.diagnosis.fault_analysis import (
    REFERENCE_SECONDS,
    analyze_fault,
)
from exporter.worker.diagnosis.reference_files import explain_against_file
from exporter.worker.diagnosis.remedies import (
    DRAWS,
    LOOP,
    UNOPTIMIZED,
    advise_on_kept_values,
    advise_on_random_numbers,
    advise_on_state,
    advise_on_weights,
    find_cause,
    find_code,
    find_draw,
    find_kept_values,
    find_lost_input,
    find_remedies,
    find_traced_line,
)
from exporter.worker.diagnosis.replay import SampleReplay
from exporter.worker.export.attempts import Captures, OpsetExport
from exporter.worker.inputs.call import build_tensor_call
from exporter.worker.model.onnx_model import OnnxModel
from exporter.worker.process.failure import Failure
from exporter.worker.process.fork_call import collect_in_fork
from exporter.worker.process.model_lines import find_node_line, quote_line
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


#: The operator of the node that failed.
_OPERATOR = re.compile(r"; the operator is (\S+::\S+)")


def find_missing_operators(message: str, opset_export: OpsetExport) -> tuple[MissingOperator, ...]:
    """Return every missing operator, sorted by the number of uses.

    For dynamo, the decomposed program is compared with the registry of the opset. For TorchScript,
    torch's own `unconvertible_ops` compares the traced graph with its registry.

    `message`: The message of the exporter. If it names no operator, the result is empty.
    """
    complaint = _COMPLAINT.search(message)
    if complaint is None:
        return ()
    known = _OPERATOR.search(message)
    operator = complaint["name"] or (known[1] if known else f"aten::{complaint['refused']}")
    if complaint["op"]:
        operator = f"{complaint['op']}.{complaint['overload']}"
    if opset_export.route.exporter == "dynamo":
        uses = list(_find_uses_in_program(opset_export))
    elif opset_export.route.is_export:
        uses = list(_find_uses_in_trace(opset_export, operator))
    else:
        uses = []
    if operator not in {name for name, _ in uses}:
        uses.append((operator, ""))
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


def _find_uses_in_program(opset_export: OpsetExport) -> Iterator[tuple[str, str]]:
    """Yield the operators without a translation in the decomposed program."""
    if opset_export.program is None or not is_enabled("operators"):
        return
    # For lower opsets, dynamo writes its first opset and the file is converted down.
    opset = max(opset_export.opset, FIRST_DYNAMO_OPSET)
    custom = opset_export.custom.get_translations(opset_export.opset)
    try:
        with apply_state(opset_export.spec):
            nodes = find_untranslated_nodes(opset_export.program, opset, custom)
    except Exception:  # the export itself reports the error; this only adds operators
        return
    yield from ((str(node.target), find_node_line(node, opset_export.root)) for node in nodes)


def _find_uses_in_trace(opset_export: OpsetExport, rejected: str) -> Iterator[tuple[str, str]]:
    """Yield the operators of the traced graph that have no symbolic function or are rejected."""
    call = build_tensor_call(opset_export.spec, opset_export.inputs)
    state = ModelSnapshot(opset_export.model)
    try:
        with (
            warnings.catch_warnings(),
            apply_state(opset_export.spec),
            opset_export.custom.register_symbolics(opset_export.opset),
        ):
            warnings.simplefilter("ignore")
            graph, names = torch.onnx.utils.unconvertible_ops(
                opset_export.model,
                (*call.args, call.kwargs),
                training=getattr(torch.onnx.TrainingMode, TRAINING_MODES[opset_export.spec.mode]),
                opset_version=opset_export.opset,
            )
    except Exception:  # a model that cannot be traced shows no operators
        return
    finally:
        state.restore()
    missing = {rejected, *(name.rstrip("_") for name in names)}
    for node in iterate_nodes(graph):
        # The name of an in-position operator ends with `_`, until a later pass of the exporter.
        kind = node.kind().rstrip("_")
        if kind in missing:
            yield kind, find_node_line(node, opset_export.root)


#: Failures that a draft export passes, so that it reports the next ones too.
_PASSED = re.compile(
    r"data-dependent|Could not (guard|extract)|ConstraintViolation|Constraints violated"
    r"|[Ff]ake (impl|kernel)|meta kernel|GuardOnDataDependent"
)


def find_obstacles(text: str, opset_export: OpsetExport) -> tuple[str, ...]:
    """Return all places at which torch.export cannot capture the model.

    `text`: The message of the failed capture and the end of its traceback.

    Returns:
        Nothing if a draft export cannot pass such a failure, or fails too.
    """
    if opset_export.route.exporter != "dynamo" or not _PASSED.search(text):
        return ()
    captures = Captures(
        opset_export.model, opset_export.spec, opset_export.inputs, opset_export.root
    )
    with suppress(Failure):
        notes = captures.capture(opset_export.route.model_copy(update={"capture": "draft"})).notes
        return tuple(note.removeprefix("draft export: ") for note in notes)
    return ()


#: Culprits with an experiment of their own, and those that another export does not change.
_ADVICE = {
    Culprit.FILE: advise_on_weights,
    **dict.fromkeys((Culprit.CONTRACT, Culprit.MODEL, Culprit.PRECISION), lambda *_: ()),
}
_SPECIFICATION = Device(name=DeviceName("reference"), runtime="reference")


# A diagnosis may end at any time, so these functions yield fields of the record as they find them.
# Fields that need no export come first.
Explanation: TypeAlias = Iterator[dict[str, Any]]


def explain_record(
    record: Record, opset_export: OpsetExport, checked: CheckedFile, device: Device
) -> Explanation:
    """Yield the culprit, if a runtime rejects the file or a check that runs the file failed."""
    if isinstance(opset_export.model, OnnxModel):
        yield from explain_against_file(opset_export.model, record, checked, device)
    else:
        yield from _explain_against_pytorch(record, opset_export, checked, device)


def _explain_against_pytorch(
    record: Record, opset_export: OpsetExport, checked: CheckedFile, device: Device
) -> Explanation:
    text = record.message
    line = ""
    sentence = ""
    known: dict[str, Any] = {}
    for fields in _explain_check(record, opset_export, checked, device):
        known |= fields
        yield fields
    blame, advice = known.get("blame"), known.get("advice", ())
    if advice and advice[0].startswith(UNOPTIMIZED):
        blame = blame or Blame(culprit=Culprit.UNKNOWN, sample="declared", evidence=advice)
        is_open = blame.culprit in (Culprit.UNKNOWN, Culprit.EXPORTER)
        if is_open and "ONNX documents" not in blame.evidence[-1]:
            known["blame"] = blame.model_copy(update={"culprit": Culprit.EXPORTER_OPTIMIZER})
    if record.check == DETERMINISM_CHECK and (cause := find_cause(text, opset_export))[0]:
        line, sentence = cause
        if advice := advise_on_random_numbers(opset_export):
            known["advice"], (text, _, _) = advice, text.rpartition("; ")
    elif blame and blame.culprit is Culprit.TRACE:
        line, sentence = find_traced_line(checked.notes, opset_export)
    elif blame and blame.culprit is Culprit.MODEL:
        line, sentence = find_kept_values(opset_export, text)
    elif blame and blame.first:
        line = blame.first.source
    elif blame and blame.culprit is Culprit.CONTRACT:
        line = next(iter(re.findall(r" at (\S+\.py:\d+)", text)), "")
    else:
        line, sentence = _explain_file(record, opset_export, checked)
        if sentence.endswith(DRAWS):
            known["advice"] = advise_on_random_numbers(opset_export) or advice
    if not line and not sentence:
        line, sentence = find_cause(text, opset_export)
    yield from _describe(text, line, sentence, known, opset_export)


def _explain_file(
    record: Record, opset_export: OpsetExport, checked: CheckedFile
) -> tuple[str, str]:
    """Return the line and the cause of a file that a structure check or a runtime rejects."""
    text = record.message
    if record.stage not in (Stage.STRUCTURE, Stage.LOAD):
        return "", ""
    draw = find_draw(text, opset_export)
    if draw[0]:
        return draw
    if "the graph ignores input" in text:
        return find_lost_input(text, opset_export)
    is_known = "is fixed at" in text or _NODE.search(text)
    return (_find_line(text, opset_export, checked) if is_known else ""), ""


def _describe(
    message: str, line: str, sentence: str, known: Mapping[str, Any], opset_export: OpsetExport
) -> Explanation:
    """Yield the message with the user's code first, then the cause, a proven fix and torch."""
    position = quote_line(line, opset_export.root) if line else ""
    fixes = [text for text in known.get("advice", ()) if PROVED in text or AGREES in text]
    text = message.removeprefix(f"{position}: ")
    parts = (sentence, *fixes[:1], text) if line else (text, sentence, *fixes[:1])
    text = "; ".join(filter(None, parts))
    fields = {"lines": (line,), "message": f"{position}: {text}"} if line else {"message": text}
    yield {"advice": (), **known, **fields}


def _explain_check(
    record: Record, opset_export: OpsetExport, checked: CheckedFile, device: Device
) -> Explanation:
    if record.stage is Stage.LOAD and record.status is Status.ERROR:
        yield {"blame": blame_load_failure(checked, device)}
        yield {"advice": find_remedies(opset_export, checked, record.message)}
    elif record.stage is Stage.STRUCTURE and record.status is Status.FAIL:
        if record.check in ("signature", "wellformed") and (blame := blame_contract(checked)):
            yield {"blame": blame}
        else:
            yield {"advice": find_remedies(opset_export, checked, record.message)}
    elif record.stage is Stage.PARITY and record.check == DETERMINISM_CHECK:
        unstable = checked.reference.unstable
        yield {"blame": Blame(culprit=Culprit.MODEL, sample="declared", evidence=(unstable,))}
        if advice := advise_on_state(opset_export, checked):
            yield {"advice": advice}
    elif record.stage is Stage.PARITY and record.status is Status.FAIL and record.check:
        yield from _explain_fault(record, opset_export, checked, device)


def _explain_fault(
    record: Record, opset_export: OpsetExport, checked: CheckedFile, device: Device
) -> Explanation:
    blame = None
    for blame in analyze_fault(opset_export, checked, device, record.check or ""):
        yield {"blame": blame}
    if blame is None:
        return
    if blame.culprit in (Culprit.EXPORTER, Culprit.FILE, Culprit.UNKNOWN):
        names = find_kept_values(opset_export)[1]
        if names and (advice := advise_on_kept_values(opset_export, checked)):
            yield {"blame": blame.model_copy(update={"culprit": Culprit.MODEL}), "advice": advice}
            return
        if find_traced_line(checked.notes, opset_export)[0]:
            blame = blame.model_copy(update={"culprit": Culprit.TRACE})
            yield {"blame": blame}
    find = partial(find_remedies, text=record.message)
    advice = _ADVICE.get(blame.culprit, find)(opset_export, checked)
    if blame.culprit is Culprit.UNKNOWN and advice and PROVED in advice[0]:
        blame = blame.model_copy(update={"culprit": Culprit.EXPORTER})
    yield {"blame": blame, "advice": advice}


#: The node that a checker or a runtime rejects.
_NODE = re.compile(r"node '([^']+)'|\bnode name: ([^)\s]+)|[Nn]ode ?\(([^)\s]+)\)")


def _find_line(text: str, opset_export: OpsetExport, checked: CheckedFile) -> str:
    """Return the line behind the node that the runtime rejects, or that fixes an axis."""
    node, axis = _NODE.search(text), re.search("axis '([^']+)'", text)
    name = next(filter(None, node.groups()), "") if node else ""
    with suppress(Exception), repeat_export(opset_export, checked.folder.path) as again:
        for each in ir.load(again.path).graph:
            shapes = [[str(x.shape) for x in ends if x] for ends in (each.inputs, each.outputs)]
            is_fixed = not re.search("[a-z]", str(shapes[1]))
            is_fixing = axis and axis[1] in str(shapes[0]) and is_fixed
            line = again.lines.get(str(each.outputs[0].name))
            if line and (is_fixing or (name and each.name == name)):
                return line
    return ""


#: The line of a call that a rewrite replaces.
_REPLACED = re.compile(r"in place of .*? at (\S+\.py:\d+)")


def explain_failure(
    failure: Failure, opset_export: OpsetExport, checked: CheckedFile | None = None
) -> Explanation:
    """Yield all missing operators, advice for the manifest, and the line of the model.

    `checked`: PyTorch's outputs, to try other exports.
    """
    text = f"{failure.__cause__ or ''}\n{failure.message}\n{failure.detail}"
    message, line = failure.message, next(iter(failure.lines), "")
    known: dict[str, Any] = {}
    if failure.stage is not Stage.CAPTURE and (
        missing := find_missing_operators(text, opset_export)
    ):
        if others := len(missing) - 1:
            message += f" (and {pluralize(others, 'more operator')} missing)"
        known = {"message": message, "missing": missing}
        line = line or next((each for item in missing for each in item.sources), "")
    yield {**known}
    position, sentence = draw = find_draw(text, opset_export)
    if not position:
        position, sentence = find_cause(text, opset_export)
    line = position if draw[0] else line or position
    if not line and "static shape" in text and (line := find_code(opset_export, LOOP)):
        sentence = "torch.export repeats the loop as often as for the example"
    yield from _describe(message, line, sentence, known, opset_export)
    advice = advise_on_random_numbers(opset_export) if draw[0] else ()
    if not advice and checked:
        advice = find_remedies(opset_export, checked, text)
    known["advice"] = advice
    if not line and advice:  # a rewrite names its line
        line = next(iter(_REPLACED.findall(advice[0])), "")
    yield from _describe(message, line, sentence, known, opset_export)
    if failure.stage is Stage.CAPTURE:
        yield {"obstacles": find_obstacles(text, opset_export)}


def blame_contract(checked: CheckedFile) -> Blame | None:
    """Return the contract as the culprit if PyTorch rejects a promised input set, else None.

    A file with fixed sizes is right if PyTorch accepts no other sizes.
    """
    for sample in checked.reference.promised_samples:
        if sample.error:
            problem = f"PyTorch itself rejects this input set: {sample.error}"
            return Blame(culprit=Culprit.CONTRACT, sample=sample.name, evidence=(problem,))
    return None


def blame_load_failure(checked: CheckedFile, device: Device) -> Blame | None:
    """Return the culprit if a runtime rejects a file.

    The reference evaluator of ONNX runs the file on the declared inputs. If its outputs are right,
    the file is right and the runtime lacks something.

    Returns:
        None if the runtime is the reference evaluator, or if there are no outputs to compare.
    """
    declared = checked.reference.samples[:1]
    if device.runtime == _SPECIFICATION.runtime or not declared or declared[0].error:
        return None

    def evaluate() -> Iterator[tuple[str, str]]:
        try:
            session = open_session(checked.path, _SPECIFICATION)
        except (LoadFailure, RuntimeUnavailable) as error:
            yield f"rejects the file too: {error}", Culprit.UNKNOWN.value
            return
        result = SampleReplay(checked, device.name, declared[0]).compare(session)
        others = Culprit.EXPORTER if result.is_numeric else Culprit.UNKNOWN
        yield result.text, (Culprit.RUNTIME if result.is_right else others).value

    results, problem = collect_in_fork(evaluate, REFERENCE_SECONDS)
    text, culprit = results[0] if results else (problem, Culprit.UNKNOWN.value)
    evidence = (f"onnx.reference: {text}",)
    return Blame(culprit=Culprit(culprit), sample=declared[0].name, evidence=evidence)
