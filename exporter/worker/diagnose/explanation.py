"""The explanation of a red record or a failure, with advice for the manifest."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir
import torch

from exporter.checks import RUNTIME_CHECKS, STRUCTURE_CHECKS
from exporter.checks.protocol import CheckContext, SampleCache
from exporter.core.device_name import DeviceName
from exporter.core.text import pluralize
from exporter.jobs import JobFolder, Sample
from exporter.manifest import Axis, Device, Input, ModelSpec
from exporter.planning.plan import FIRST_DYNAMO_OPSET
from exporter.records.record import Blame, Culprit, MissingOperator, Record, Stage, Status
from exporter.runtimes import LoadFailure, RuntimeUnavailable, open_session
from exporter.worker.diagnose.divergence import (
    ReExport,
    export_with_other_exporter,
    is_optimized,
    repeat_export,
)
from exporter.worker.diagnose.fault_analysis import REFERENCE_SECONDS, analyze_fault
from exporter.worker.diagnose.replay import SampleReplay
from exporter.worker.diagnose.runtime_values import FileGraph
from exporter.worker.export.attempts import ExportContext, capture_program, list_obstacles
from exporter.worker.export.convert import MODES
from exporter.worker.inputs.call import build_call, build_tensor_call
from exporter.worker.model.source_loader import Model
from exporter.worker.process.failure import Failure, find_node_line
from exporter.worker.process.fork_call import collect_in_fork
from exporter.worker.process.setup import apply_state
from exporter.worker.reference.python_state import ModelSnapshot
from exporter.worker.torch_private import internals
from exporter.worker.torch_private.graph_operators import find_untranslated_nodes, iterate_nodes
from exporter.worker.torch_private.guards import is_enabled

#: The messages of the exporters about a missing operator.
_COMPLAINT = re.compile(
    r"No ONNX function found for <OpOverload\(op='(?P<op>[\w.:]+)', overload='(?P<overload>\w+)'\)>"
    r"|(?:Exporting the operator|Failed to export operator|unrecognized namespace) "
    r"'?(?P<name>[\w.]+::[\w.]+)'?"
    r"|Unsupported: ONNX export of (?:operator )?(?P<refused>\w+)[ ,.]"
)


# All operators that an exporter cannot translate, not only the first. For dynamo, the decomposed
# program is compared with the registry of the opset. For TorchScript, torch's own
# `unconvertible_ops` compares the traced graph with its registry.
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


#: Two messages of torch: of a capture without assertions, and of one with assertions.
_CONSTANTS = (
    re.compile(
        r"L(?P<path>(?:\[[^\]]+\])+)\.size\(\)\[(?P<dim>\d+)\] as dynamic "
        r"but your code specialized it to be a constant \((?P<size>\d+)\)"
    ),
    re.compile(
        r"inferred a static shape of (?P<size>\d+) for dimension "
        r"inputs(?P<path>(?:\[[^\]]+\])+)\.shape\[(?P<dim>\d+)\]"
    ),
)
#: One per line after `Suggested fixes:`.
_FIX = re.compile(r"^\s+(?P<name>[A-Za-z_]\w*) = (?P<fix>[^\n]+)$", re.MULTILINE)
_RANGE = re.compile(r"Dim\('\w+'(?:, min=(?P<min>\d+))?(?:, max=(?P<max>\d+))?\)")
_MULTIPLE = re.compile(r"(?P<factor>\d+)\*_?\w+")


def advise_on_failure(
    text: str, model: Model, spec: ModelSpec, samples: Sequence[Sample] = ()
) -> tuple[str, ...]:
    """Return advice from the text of an exception.

    `model`: The model; its `forward` shows which input `L['x']` is.
    `samples`: PyTorch's runs: if one has another size, only the capture fixed the size.
    """
    accepted = {item for sample in samples if not sample.error for item in sample.axes.items()}
    advice: list[str] = []
    others: list[str] = []
    inputs = _map_paths(model, spec)
    for pattern in _CONSTANTS:
        for match in pattern.finditer(text):
            item = inputs.get(match["path"])
            dim, size = int(match["dim"]), match["size"]
            axis = item.shape[dim] if item is not None else None
            if item is None or not isinstance(axis, str):
                continue
            if any(name == axis and other != int(size) for name, other in accepted):
                others.append(
                    f"torch.export fixed dimension {dim} of input '{item.name}' to {size}, but "
                    "PyTorch accepts other sizes: compute with `shape` in the model, without "
                    "`int()` and branches on this size"
                )
                continue
            advice.append(
                f"dimension {dim} of input '{item.name}' is always {size} in this model: "
                f"replace '{axis}' by {size}"
            )
    _, _, fixes = text.partition("Suggested fixes:")
    axes = {axis.name: axis for axis in spec.axes}
    for match in _FIX.finditer(fixes):
        is_size = match["fix"].strip().isdigit() and accepted
        if match["name"] in axes and not is_size:  # the samples decide about a fixed size
            advice += _translate_fix(axes[match["name"]], match["fix"].strip(), set(axes))
    return (*dict.fromkeys(others), *_mark_weaker(advice))


def advise_on_program(program: Any, spec: ModelSpec, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Return advice if a captured program accepts fewer sizes than the contract.

    `sizes`: The sizes of the failing sample; a range that contains them is not the reason.
    """
    advice: list[str] = []
    inputs = {item.name: item for item in spec.inputs}
    user_inputs = {str(name) for name in program.graph_signature.user_inputs}
    values = [node.meta.get("val") for node in program.graph.nodes if node.name in user_inputs]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if len(tensors) != len(inputs):
        return ()
    call = build_call(spec, {name: name for name in inputs}, lambda _: None)
    names = internals.tree_leaves((call.args, call.kwargs))
    for name, tensor in zip(names, tensors, strict=False):
        symbols: tuple[Any, ...] = tuple(tensor.shape)
        for dim, size in zip(inputs[name].shape, symbols, strict=False):
            if not isinstance(dim, str) or not isinstance(size, torch.SymInt):
                continue
            limits = program.range_constraints.get(size.node.expr)
            if limits is not None and dim in sizes:
                advice += _compare_range(spec.find_axis(dim), limits, sizes[dim])
    return _mark_weaker(advice)


def _mark_weaker(advice: list[str]) -> tuple[str, ...]:
    """Return each line once; a reader must see that it weakens a promise."""
    return tuple(f"{line} (promises less)" for line in dict.fromkeys(advice))


def _map_paths(model: Model, spec: ModelSpec) -> dict[str, Input]:
    """Return the inputs by their paths in messages of torch.export, such as `['pair'][0]`."""
    call = build_call(spec, {item.name: item for item in spec.inputs}, lambda _: None)
    if not isinstance(model, torch.nn.Module):
        return {}
    try:
        bound = inspect.signature(model.forward).bind(*call.args, **call.kwargs)
    except (TypeError, ValueError):
        return {}
    leaves, _ = internals.tree_flatten_with_path(dict(bound.arguments))
    return {internals.keystr(path): leaf for path, leaf in leaves if leaf is not None}


def _translate_fix(axis: Axis, fix: str, names: set[str]) -> Iterator[str]:
    if fix.isdigit():
        yield f"replace '{axis.name}' by {fix}"
    elif fix in names:
        yield f"replace '{axis.name}' by '{fix}': the model requires equal sizes"
    elif match := _RANGE.fullmatch(fix):
        for end in ("min", "max"):
            if match[end]:
                yield f"axes.{axis.name}.{end} = {match[end]}"
    elif match := _MULTIPLE.fullmatch(fix):
        factor = int(match["factor"])
        example = max(-(-(axis.example or factor) // factor) * factor, 2)
        yield f"axes.{axis.name} = {{ example = {example}, multiple_of = {factor} }}"


def _compare_range(axis: Axis, limits: Any, size: int) -> Iterator[str]:
    if axis.rule:
        return  # torch infers its limits from those of the other axes
    reason = "torch.export captured the model for these sizes only"
    lower, upper = (_read_limit(limits.lower), _read_limit(limits.upper))
    # torch assumes a lower limit of 2 for every dynamic size.
    if lower is not None and lower > max(axis.min, 2) and size < lower:
        yield f"axes.{axis.name}.min = {lower}: {reason}"
    if upper is not None and (axis.max is None or upper < axis.max) and size > upper:
        yield f"axes.{axis.name}.max = {upper}: {reason}"


def _read_limit(limit: Any) -> int | None:
    """Return a finite limit, or None; torch writes infinity as a number near 2**63."""
    number = float(limit)
    return int(number) if abs(number) < 2**62 else None


#: Parts of operator names, and the setting that replaces them by operators of ONNX.
_SETTINGS = (
    (
        re.compile(r"(?:\b|_)grouped_mm"),
        'a mixture of experts of transformers: set `experts_implementation = "batched_mm"`',
    ),
    (
        re.compile(r"\b(?:flex|flash)_attention|\bflash_attn"),
        'a model of transformers: set `attn_implementation = "sdpa"` in its configuration',
    ),
)


def advise_on_operators(missing: Iterable[MissingOperator]) -> tuple[str, ...]:
    """Return one sentence for each setting that avoids missing operators."""
    names = [each.operator for each in missing]
    return tuple(text for name, text in _SETTINGS if any(map(name.search, names)))


#: Failures that a draft export passes, so that it reports the next ones too.
_PASSED = re.compile(
    r"data-dependent|Could not (guard|extract)|ConstraintViolation|Constraints violated"
    r"|[Ff]ake (impl|kernel)|meta kernel|GuardOnDataDependent"
)


def find_obstacles(text: str, context: ExportContext) -> tuple[str, ...]:
    """Return all places at which torch.export cannot capture the model.

    `text`: The message of the failed capture and the end of its traceback.

    Returns:
        Nothing if a draft export cannot pass such a failure, or fails too.
    """
    is_module = isinstance(context.model, torch.nn.Module)
    if not is_module or context.route.exporter != "dynamo" or not _PASSED.search(text):
        return ()
    state = ModelSnapshot(context.model)
    try:
        with suppress(Failure):
            program = capture_program(
                context.model, context.spec, context.inputs, strict=False, draft=True
            )
            return list_obstacles(program, context.root)
    finally:
        state.restore()
    return ()


def advise_other_exporter(context: ExportContext, check_context: CheckContext) -> tuple[str, ...]:
    """Return one line if the file of the other exporter passes all checks on all devices.

    `check_context`: The contract and PyTorch's outputs; its file need not exist.
    """
    if not context.route.is_export:  # another file is a matter of its author
        return ()
    if context.spec.weights_are_inputs or not check_context.reference.samples:
        return ()
    exporter = "torchscript" if context.route.exporter == "dynamo" else "dynamo"
    other = export_with_other_exporter(context, check_context.folder.path, converts_opset=True)
    text = f'exporter = "{exporter}": its file passes all checks at opset {context.opset}'
    return _advise_if_right(text, other, context, check_context)


def advise_unoptimized(context: ExportContext, check_context: CheckContext) -> tuple[str, ...]:
    """Return one line if the file passes all checks without dynamo's graph optimizer."""
    if not is_optimized(context) or not check_context.reference.samples:
        return ()
    again = repeat_export(context, check_context.folder.path, optimize=False)
    text = "options.optimize = false: its file passes all checks"
    return _advise_if_right(text, again, context, check_context)


def advise_on_weights(context: ExportContext, check_context: CheckContext) -> tuple[str, ...]:
    """Return one line if most weights of a finished file differ from those of the model."""
    if not isinstance(context.model, torch.nn.Module):
        return ()
    weights = dict((*context.model.named_parameters(), *context.model.named_buffers()))
    shared, changed = 0, []
    with suppress(Exception):
        for name, value in ir.load(check_context.path).graph.initializers.items():
            stored, weight = value.const_value, weights.get(name)
            if stored is not None and weight is not None and stored.shape == weight.shape:
                shared += 1
                numbers = np.asarray(stored.numpy(), np.float64)  # NumPy has no bfloat16
                if not np.array_equal(numbers, weight.detach().cpu().double().numpy()):
                    changed.append(name)
    if 2 * len(changed) <= shared:
        return ()
    differ = f"{len(changed)} of {shared} weights of the file differ from those of the model"
    return (f"{differ}, such as {changed[0]}: name the trained ones in `weights`",)


def advise_lower_opset(context: ExportContext, check_context: CheckContext) -> tuple[str, ...]:
    """Return one line if the file passes at the last opset without its newest operator."""
    if context.program is None or context.spec.weights_are_inputs:
        return ()
    if not check_context.reference.samples:
        return ()
    used = {node.op_type for node in FileGraph(check_context.path).nodes if not node.domain}
    first: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.name in used and not schema.domain:
            version = first.get(schema.name, schema.since_version)
            first[schema.name] = min(version, schema.since_version)
    newest = max(first, key=lambda name: first[name], default="")
    opset = first.get(newest, 0) - 1
    if not FIRST_DYNAMO_OPSET <= opset < context.opset:
        return ()
    lower = replace(context, job=context.job.model_copy(update={"opset": opset}))
    again = repeat_export(lower, check_context.folder.path)
    text = f"opset {opset}, which has no {newest}: its file passes all checks"
    return _advise_if_right(text, again, lower, replace(check_context, opset=opset))


def _advise_if_right(
    text: str,
    export: AbstractContextManager[ReExport | None],
    context: ExportContext,
    check_context: CheckContext,
) -> tuple[str, ...]:
    """Return the text if a new file passes."""
    folder = check_context.folder
    with suppress(Exception), export as other:
        if other is not None:
            scratch = JobFolder(other.path.parent)
            for sample in check_context.reference.promised_samples:
                scratch.sample(sample.index).symlink_to(folder.sample(sample.index))
            again = replace(check_context, folder=scratch, samples=SampleCache())
            if all(_passes(again, device) for device in context.job.devices):
                return (text,)
    return ()


def _passes(context: CheckContext, device: Device) -> bool:
    """Return True if the file passes all checks on a device."""
    context = replace(context, spec=context.spec.resolve_cell(context.opset, device.name))
    if any(check(context).status is not Status.PASS for check in STRUCTURE_CHECKS):
        return False
    session = open_session(context.path, device, context.kernels)
    return all(
        check(context, session, device.name).status is Status.PASS
        for check in RUNTIME_CHECKS
        if check.applies(context)
    )


#: The structure checks that compare the sizes of the file with the declared ones.
_CHECKS_OF_SIZES = ("signature", "wellformed")
#: Faults that a file with other operators may not have.
_FAULTS = (Culprit.EXPORTER, Culprit.KERNEL, Culprit.OPTIMIZER, Culprit.UNKNOWN)
#: The advice for a culprit.
_ADVICE = {
    Culprit.EXPORTER: advise_other_exporter,
    Culprit.EXPORTER_OPTIMIZER: advise_unoptimized,
    Culprit.FILE: advise_on_weights,
}
_DATA_DEPENDENT = re.compile(r"GuardOnDataDependent|[Dd]ata-dependent (branching|expression)")
_BRANCH = (
    "a condition depends on values: use torch.where or torch.cond; or keep the branch of the "
    'example by capture = "draft"; or keep both by exporter = "torchscript" and capture = "script"'
)
#: What dynamo and TorchScript raise for `return y, 7`.
_NUMBER = re.compile(
    r"'(int|float|bool)' object has no attribute 'name'|^.*output \d+ \([-\w.]+$", re.MULTILINE
)
_CONSTANT = "an output is a Python number that no input changes: return a tensor, or leave it out"
_SPECIFICATION = Device(name=DeviceName("reference"), runtime="reference")


# A diagnosis may end at any time, so these functions yield fields of the record as they find them.
# The first ones of a failure need no export.
Explanation: TypeAlias = Iterator[dict[str, Any]]


def explain_record(
    record: Record, context: ExportContext, check_context: CheckContext, device: Device
) -> Explanation:
    """Yield the culprit, if a runtime rejects the file or a check that runs the file failed."""
    if record.stage is Stage.LOAD and record.status is Status.ERROR:
        blame = blame_load_failure(check_context, device)
        yield {"blame": blame}
        unoptimized = advise_unoptimized(context, check_context)
        if unoptimized and (blame is None or blame.culprit is not Culprit.RUNTIME):
            yield {"blame": _blame_optimizer(check_context, unoptimized)}
        yield {"advice": (*unoptimized, *advise_lower_opset(context, check_context))}
    elif record.stage is Stage.STRUCTURE and record.status is Status.FAIL:
        if record.check in _CHECKS_OF_SIZES and (blame := blame_contract(check_context)):
            yield {"blame": blame}
        elif advice := advise_unoptimized(context, check_context):
            yield {"blame": _blame_optimizer(check_context, advice), "advice": advice}
        else:
            yield {"advice": advise_other_exporter(context, check_context)}
    elif record.stage is Stage.PARITY and record.check == "determinism":
        unstable = check_context.reference.unstable
        yield {"blame": Blame(culprit=Culprit.MODEL, sample="declared", evidence=(unstable,))}
    elif record.stage is Stage.PARITY and record.status is Status.FAIL and record.check:
        yield from _explain_fault(record.check, context, check_context, device)


def _explain_fault(
    check: str, context: ExportContext, check_context: CheckContext, device: Device
) -> Explanation:
    blame = None
    for blame in analyze_fault(context, check_context, device, check):
        yield {"blame": blame}
    if blame is None:
        return
    advise = _ADVICE.get(blame.culprit)
    advice = advise(context, check_context) if advise else ()
    yield {"advice": advice}
    if blame.culprit in _FAULTS:
        advice += advise_lower_opset(context, check_context)
    if context.program is not None:
        samples = check_context.reference.samples
        sizes = next(each.axes for each in samples if each.name == blame.sample)
        advice += advise_on_program(context.program, context.spec, sizes)
    yield {"advice": advice}


def _blame_optimizer(check_context: CheckContext, evidence: tuple[str, ...]) -> Blame:
    sample = check_context.reference.samples[0].name
    return Blame(culprit=Culprit.EXPORTER_OPTIMIZER, sample=sample, evidence=evidence)


def explain_failure(
    failure: Failure, context: ExportContext, check_context: CheckContext | None = None
) -> Explanation:
    """Yield all missing operators and advice for the manifest.

    `check_context`: PyTorch's outputs, to try the other exporter if the capture failed.
    """
    text = f"{failure.__cause__ or ''}\n{failure.message}\n{failure.detail}"
    if failure.stage is Stage.CAPTURE:
        samples = check_context.reference.samples if check_context is not None else ()
        advice = advise_on_failure(text, context.model, context.spec, samples)
        advice += (_BRANCH,) if _DATA_DEPENDENT.search(text) else ()
        yield {"advice": advice}
        if check_context is not None:
            yield {"advice": (*advise_other_exporter(context, check_context), *advice)}
        yield {"obstacles": find_obstacles(text, context)}
    elif _NUMBER.search(text):
        yield {"advice": (_CONSTANT,)}
    elif missing := find_missing_operators(text, context):
        message, others = failure.message, len(missing) - 1
        if others:
            message += f" (and {pluralize(others, 'more operator')} missing)"
        yield {"message": message, "missing": missing, "advice": advise_on_operators(missing)}


def blame_contract(check_context: CheckContext) -> Blame | None:
    """Return the contract as the culprit if PyTorch rejects a promised input set, else None.

    A file with fixed sizes is right if PyTorch accepts no other sizes.
    """
    for sample in check_context.reference.promised_samples:
        if sample.error:
            problem = f"PyTorch itself rejects this input set: {sample.error}"
            return Blame(culprit=Culprit.CONTRACT, sample=sample.name, evidence=(problem,))
    return None


def blame_load_failure(check_context: CheckContext, device: Device) -> Blame | None:
    """Return the culprit if a runtime rejects a file.

    The reference evaluator of ONNX runs the file on the declared inputs. If its outputs are right,
    the file is right and the runtime lacks something.

    Returns:
        None if the runtime is the reference evaluator, or if there are no outputs to compare.
    """
    declared = check_context.reference.samples[:1]
    if device.runtime == "reference" or not declared or declared[0].error:
        return None

    def evaluate() -> Iterator[tuple[str, str]]:
        try:
            session = open_session(check_context.path, _SPECIFICATION)
        except (LoadFailure, RuntimeUnavailable) as error:
            yield f"rejects the file too: {error}", Culprit.UNKNOWN.value
            return
        result = SampleReplay(check_context, device.name, declared[0]).compare(session)
        others = Culprit.EXPORTER if result.is_numeric else Culprit.UNKNOWN
        yield result.text, (Culprit.RUNTIME if result.is_right else others).value

    results, problem = collect_in_fork(evaluate, REFERENCE_SECONDS)
    text, culprit = results[0] if results else (problem, Culprit.UNKNOWN.value)
    evidence = (f"onnx.reference: {text}",)
    return Blame(culprit=Culprit(culprit), sample=declared[0].name, evidence=evidence)
