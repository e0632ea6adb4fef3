"""The culprit of a wrong output, found by changing one thing at a time.

Each experiment runs the sample that shows the fault. Cheap experiments come first: PyTorch's own
outputs, float64, ONNX Runtime without optimization, other runtimes, a new model, the same export
again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from exporter.checks.protocol import CheckedFile
from exporter.core.device_name import DeviceName
from exporter.core.text import join_names
from exporter.jobs import Sample
from exporter.manifest import Device, Fill, Input, ModelSpec
from exporter.records.record import Blame, Culprit, Divergence
from exporter.runtimes import LoadFailure, RunFailure, RuntimeUnavailable, Session, open_session
from exporter.runtimes.session import OnnxValue
from exporter.worker.diagnosis.divergence import (
    DivergenceLocator,
    repeat_export,
)
from exporter.worker.diagnosis.replay import (
    ExpectedSession,
    ReplayResult,
    SampleReplay,
    find_failing_sample,
    measure_distance,
)
from exporter.worker.diagnosis.runtime_values import find_violation_in_file, measure_error
from exporter.worker.export.attempts import OpsetExport
from exporter.worker.inputs.call import from_numpy
from exporter.worker.model.call_objects import wrap_with_call_objects
from exporter.worker.model.model_kinds import Model
from exporter.worker.model.source_loader import load_model
from exporter.worker.process.failure import Failure
from exporter.worker.process.fork_call import collect_in_fork
from exporter.worker.reference.eager_run import run_model, to_value
from exporter.worker.reference.python_state import ModelSnapshot
from exporter.worker.torch_private import internals

#: The fill by which `masked_by` selects the positions with this value.
_FILLS = {1: Fill(kind="mask", side="right"), 0: Fill(kind="padding", side="right")}


def explain_masked_rows(
    checked: CheckedFile, device_name: str, sample: Sample, session: Session
) -> str:
    """Return the evidence that a file is wrong only at masked positions.

    A softmax over a row without any allowed element has no defined result: PyTorch returns 0, NaN
    or a mixture, and a file returns another of these. Rows of padding depend on such values too.

    Returns:
        "" if another position is wrong too, or if no input is a mask of an output.
    """
    inputs = checked.read(sample).inputs
    for item in checked.spec.inputs:
        array, value = inputs.get(item.name), item.fill.masked_value
        if array is None or value is None or not np.isin(array, (0, 1)).all():
            continue
        masked = array == value
        # Other ones and zeros, such as types of tokens, rarely have such a row.
        is_mask = (
            item.fill.kind in ("mask", "padding")
            or sample.name == f"padded {item.name}"
            or (array.ndim > 1 and masked.all(axis=-1).any())
        )
        if not is_mask or masked.all() or not masked.any():
            continue
        spec = _mask_outputs(checked.spec, item, _FILLS[1 - value])
        if spec is not None:
            replay = SampleReplay(replace(checked, spec=spec), device_name, sample)
            if replay.compare(session).is_right:
                fix = f"declare masked_by = '{item.name}' for the output"
                if value:
                    fix = f'declare fill = {{ padding = "right" }} for the input and {fix}'
                return (
                    f"right at all positions with {1 - value} in '{item.name}', wrong only at "
                    f"masked positions: PyTorch's values there have no meaning; {fix}, or keep an "
                    "allowed element in every row"
                )
    return ""


def _mask_outputs(spec: ModelSpec, item: Input, fill: Fill) -> ModelSpec | None:
    """Return the contract with a mask for every output that can have one, or None."""
    dims = [dim for dim in item.shape if dim != 1]
    outputs = tuple(
        output.model_copy(update={"masked_by": item.name})
        if output.kind == "tensor"
        and not output.masked_by
        and dims
        and all(dims.count(dim) == 1 == output.shape.count(dim) for dim in dims)
        else output
        for output in spec.outputs
    )
    if outputs == spec.outputs:
        return None
    inputs = (
        each.model_copy(update={"fill": fill}) if each.name == item.name else each
        for each in spec.inputs
    )
    return spec.model_copy(update={"inputs": tuple(inputs), "outputs": outputs})


#: Weights that a message names.
_MAX_NAMES = 3


def describe_stored_state(opset_export: OpsetExport, replay: SampleReplay) -> str:
    """Return how PyTorch's outputs depend on earlier calls, or "" if they do not.

    A file keeps no state between calls, so no exporter can write a right file of such a model.
    The sample runs again in the model after all other calls, and in a new model before any call. A
    source that creates another model in each call shows nothing, so two new models are compared.
    """
    new, other = (load_new_model(opset_export) for _ in range(2))
    is_comparable = new is not other and new is not opset_export.model
    is_comparable = is_comparable and not _list_changed_weights(new, other)
    runs = [("PyTorch again, after other calls", opset_export.model)]
    if is_comparable:
        runs.append(("a new model in PyTorch", new))
    for name, model in runs:
        text = _compare(model, opset_export, replay)
        if text:
            names = _list_changed_weights(opset_export.model, other) if is_comparable else ()
            changed = join_names(names, _MAX_NAMES) or "the model"
            return f"{name}: {text}; a call changes {changed}"
    return ""


def _compare(model: Model, opset_export: OpsetExport, replay: SampleReplay) -> str:
    """Return the difference of a model's outputs from PyTorch's first ones, "" if there is none."""
    spec, data = opset_export.spec, replay.data
    inputs = {
        item.name: from_numpy(data.inputs[item.name], is_complex=item.is_complex)
        for item in spec.inputs
        if item.name in data.inputs
    }
    state = ModelSnapshot(model)
    try:
        outputs = tuple(to_value(output) for output in run_model(model, spec, inputs))
    except Failure as failure:
        return f"fails: {failure.message}"
    finally:
        state.restore()
    names = [output.name for output in spec.outputs]
    result = replay.compare(ExpectedSession(names, replace(data, outputs=outputs)))
    return "" if result.is_right else result.text


def load_new_model(opset_export: OpsetExport) -> Model:
    """Return the model as it is before any call."""
    spec, root = opset_export.spec, opset_export.root
    model = wrap_with_call_objects(load_model(spec, root), spec, root)
    with torch.no_grad():
        for name in opset_export.other_values:
            _find_tensor(model, name).copy_(_find_tensor(opset_export.model, name))
    return model


def _find_tensor(model: Model, path: str) -> torch.Tensor:
    """Return a parameter or buffer by its path."""
    module, _, name = path.rpartition(".")
    tensor: torch.Tensor = getattr(model.get_submodule(module), name)
    return tensor


def _list_changed_weights(model: Model, new: Model) -> tuple[str, ...]:
    """Return the names of parameters and buffers with other values than in the new model."""
    values = new.state_dict()
    return tuple(
        name
        for name, value in model.state_dict().items()
        if name in values and not _are_equal(value, values[name])
    )


def _are_equal(value: Any, other: Any) -> bool:
    """Return True if two values of a state are equal; quantized weights are tuples with a dtype."""
    leaves, others = internals.tree_leaves(value), internals.tree_leaves(other)
    return len(leaves) == len(others) and all(
        torch.equal(one, two)
        if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor)
        else one == two
        for one, two in zip(leaves, others, strict=True)
    )


#: If PyTorch's error is within this factor of the file's error, both are rounding.
_ROUNDING = 10.0
#: Two runtimes with the same wrong result differ by rounding only, less than this share.
SAME = 1e-3
#: CPU seconds of the reference evaluator, which is slow.
REFERENCE_SECONDS = 10.0
_REFERENCE = "onnx.reference"
_CPU = ("CPUExecutionProvider",)

Open = Callable[[Path], Session]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one experiment."""

    evidence: str = ""
    culprit: Culprit | None = None
    first: Divergence | None = None
    is_final: bool = False
    """True if no further experiment is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyCell:
    """A red cell with the sample that shows its fault."""

    opset_export: OpsetExport
    checked: CheckedFile
    device: Device
    session: Session
    replay: SampleReplay
    result: ReplayResult
    """The result of the file on the sample."""

    def describe_result(self, result: ReplayResult) -> str:
        is_same = result == self.result and not result.is_numeric
        return "wrong in the same way" if is_same else result.text

    def open(self, path: Path) -> Session:
        """Load a file on the device of the cell."""
        return open_session(path, self.device, self.checked.kernels)

    def make_locator(self) -> DivergenceLocator:
        """Return the search for the first wrong node."""
        path, data = self.checked.path, self.replay.data
        return DivergenceLocator(opset_export=self.opset_export, path=path, data=data)


def analyze_fault(
    opset_export: OpsetExport, checked: CheckedFile, device: Device, check: str
) -> Iterator[Blame]:
    """Yield the culprit of a failed check, as each experiment shows it.

    It yields nothing if the failure does not occur again.
    """
    session = open_session(checked.path, device, checked.kernels)
    sample = find_failing_sample(check, checked, session, device.name)
    if sample is None:
        return
    if sample.error:
        text = f"PyTorch itself rejects this input set: {sample.error}"
        yield Blame(culprit=Culprit.CONTRACT, sample=sample.name, evidence=(text,))
        return
    replay = SampleReplay(checked, device.name, sample)
    cell = FaultyCell(
        opset_export=opset_export,
        checked=checked,
        device=device,
        session=session,
        replay=replay,
        result=replay.compare(session),
    )
    blame = Blame(
        culprit=Culprit.UNKNOWN,
        sample=sample.name,
        evidence=(f"{device.name} on '{sample.name}': {cell.result.text}",),
        allowed=replay.list_limits(),
    )
    yield blame
    try:
        for finding in _run_experiments(cell):
            blame = _add_finding(blame, finding)
            yield blame
    except Exception as error:
        yield _add_finding(blame, Finding(f"the diagnosis failed: {type(error).__name__}"))


def _add_finding(blame: Blame, finding: Finding) -> Blame:
    evidence = (*blame.evidence, *filter(None, (finding.evidence,)))
    culprit = finding.culprit or blame.culprit
    first = finding.first or blame.first
    return blame.model_copy(update={"culprit": culprit, "evidence": evidence, "first": first})


def _run_experiments(faulty: FaultyCell) -> Iterator[Finding]:
    """Yield the findings in order; stop after a final one."""
    is_export = faulty.opset_export.route.is_export
    for experiment in (
        _check_contract,
        _check_masks,
        _check_precision,
        _compare_runtimes,
        _check_state,
        _compare_exports if is_export else _blame_artifact,
    ):
        for finding in experiment(faulty):
            yield finding
            if finding.is_final:
                return


def _check_contract(faulty: FaultyCell) -> Iterator[Finding]:
    """Compare PyTorch's own outputs with the contract."""
    names = [output.name for output in faulty.checked.spec.outputs]
    result = faulty.replay.compare(ExpectedSession(names, faulty.replay.data))
    if not result.is_right:
        culprit = Culprit.PRECISION if result.is_numeric else Culprit.CONTRACT
        yield Finding(f"PyTorch's own outputs: {result.text}", culprit, is_final=True)


def _check_masks(faulty: FaultyCell) -> Iterator[Finding]:
    """Compare only the positions that a mask allows."""
    evidence = explain_masked_rows(
        faulty.checked, faulty.device.name, faulty.replay.sample, faulty.session
    )
    if evidence:
        yield Finding(evidence, Culprit.CONTRACT, is_final=True)


def _check_precision(faulty: FaultyCell) -> Iterator[Finding]:
    """Compare the errors of PyTorch and the file against float64."""
    data = faulty.replay.data
    outputs = _run_sample(faulty.session, faulty.replay)
    if outputs is None:
        return
    errors = []
    columns = zip(outputs, data.outputs, data.float64_outputs, strict=True)
    for index, (actual, expected, exact) in enumerate(columns):
        if exact is not None and faulty.checked.reference.noise[index] is not None:
            errors.append((measure_error(actual, exact), measure_error(expected, exact)))
        elif measure_error(actual, expected):
            return  # an output without float64 values is wrong
    if not errors:
        return
    file_error, torch_error = max(pair[0] for pair in errors), max(pair[1] for pair in errors)
    text = (
        f"compared with float64, the file differs by {_format_magnitude(file_error)} of the scale, "
        f"PyTorch by {_format_magnitude(torch_error)}"
    )
    if any(file > _ROUNDING * pytorch for file, pytorch in errors):
        yield Finding(text)
    else:
        yield Finding(text, Culprit.PRECISION, is_final=True)


def _compare_runtimes(faulty: FaultyCell) -> Iterator[Finding]:
    """Run the same file in other runtimes."""
    for name, culprit, load in _list_runtimes(faulty):
        seconds = REFERENCE_SECONDS if name == _REFERENCE else math.inf
        results, problem = collect_in_fork(partial(_try_runtime, faulty, load), seconds)
        missing = (f"no result: {problem}", False, False)
        text, is_right, are_equal = results[0] if results else missing
        yield Finding(f"{name}: {text}", culprit if is_right else None)
        if is_right:
            first = faulty.make_locator().compare_runtimes(faulty.open, load, name)
            violation = ""
            if first:
                checked, inputs = faulty.checked, faulty.replay.data.inputs
                violation = find_violation_in_file(
                    checked.path, first.output, checked.opset, inputs, load
                )
            # A runtime may reject a node that breaks the documentation of its operator.
            blamed = Culprit.EXPORTER if violation else None
            yield Finding(violation, blamed, first, is_final=True)
        elif culprit is Culprit.KERNEL and are_equal:
            text = f"{faulty.device.name} and {name} agree with each other"
            yield Finding(text, Culprit.EXPORTER)


def _try_runtime(faulty: FaultyCell, load: Open) -> Iterator[tuple[str, bool, bool]]:
    """Yield the result, whether it is right, and whether the outputs are those of the cell."""
    try:
        session = load(faulty.checked.path)
        result = faulty.replay.compare(session)
    except (RuntimeUnavailable, LoadFailure) as error:
        yield f"no result: {error}", False, False
        return
    outputs, others = (_run_sample(each, faulty.replay) for each in (faulty.session, session))
    are_equal = (
        outputs is others  # both fail
        if outputs is None or others is None
        else measure_distance(outputs, others) < SAME
    )
    yield faulty.describe_result(result), result.is_right, are_equal


def _check_state(faulty: FaultyCell) -> Iterator[Finding]:
    """Compare a new model in PyTorch, which no earlier call changed."""
    if problem := describe_stored_state(faulty.opset_export, faulty.replay):
        yield Finding(problem, Culprit.MODEL, is_final=True)


def _list_runtimes(faulty: FaultyCell) -> Iterator[tuple[str, Culprit, Open]]:
    """Yield the name, the culprit if the runtime is right, and the loader."""
    device, kernels = faulty.device, faulty.checked.kernels
    options = {**device.session_options, "graph_optimization_level": "ORT_DISABLE_ALL"}
    unoptimized = device.model_copy(update={"session_options": options})
    cpu = Device(name=DeviceName("cpu"), runtime="onnxruntime")
    reference = Device(name=DeviceName("reference"), runtime="reference")
    is_ours = device.runtime == cpu.runtime
    is_plain_cpu = is_ours and device.providers[:1] in ((), _CPU) and device.environment is None
    for applies, name, culprit, other in (
        (is_ours, "ONNX Runtime without optimization", Culprit.OPTIMIZER, unoptimized),
        (not is_plain_cpu, "ONNX Runtime on the CPU", Culprit.KERNEL, cpu),
        (device.runtime != reference.runtime, _REFERENCE, Culprit.KERNEL, reference),
    ):
        if applies:

            def load(path: Path, device: Device = other) -> Session:
                return open_session(path, device, kernels)

            yield name, culprit, load


def _compare_exports(faulty: FaultyCell) -> Iterator[Finding]:
    """Export the model again."""
    folder = faulty.checked.folder.path
    yield from _compare_declared(faulty)
    try:
        with repeat_export(faulty.opset_export, folder) as repeated:
            result = faulty.replay.compare(faulty.open(repeated.path))
            text = f"the same export again: {faulty.describe_result(result)}"
            yield Finding(text, Culprit.FILE if result.is_right else None)
            locator = faulty.make_locator()
            if locator.is_capture_right(repeated):
                yield Finding(first=locator.compare_with_pytorch(faulty.open, repeated))
            else:
                text = "the program that torch.export captured is wrong too"
                yield Finding(text, Culprit.EXPORTER)
    except (Failure, LoadFailure, RuntimeUnavailable) as error:
        yield Finding(f"the same export again: {error}")


def _blame_artifact(faulty: FaultyCell) -> Iterator[Finding]:
    """Blame the finished file: the runtimes and PyTorch were examined before."""
    yield from _compare_declared(faulty)
    yield Finding("PyTorch did not export the file here, so it is not exported again", Culprit.FILE)


def _compare_declared(faulty: FaultyCell) -> Iterator[Finding]:
    """Run the declared inputs: a file that is right only there contains their constants."""
    first = faulty.checked.reference.samples[0]
    if faulty.replay.sample.kind != "declared" and not first.error:
        declared = SampleReplay(faulty.checked, faulty.device.name, first)
        result = declared.compare(faulty.session)
        reason = "; the file contains constants of these inputs" if result.is_right else ""
        yield Finding(f"on the declared inputs: {result.text}{reason}")


def _run_sample(session: Session, replay: SampleReplay) -> list[OnnxValue] | None:
    """Return the outputs, or None if there are none to compare."""
    try:
        outputs = session.run(replay.data.inputs)
    except RunFailure:
        return None
    return list(outputs) if len(outputs) == len(replay.data.outputs) else None


def _format_magnitude(share: float) -> str:
    """Return a power of ten: exact rounding errors differ between machines."""
    return f"up to 1e{math.ceil(math.log10(share))}" if 0 < share < np.inf else f"{share:g}"
