"""The test data of a published file, in the form in which ONNX's own test runners read it.

In: a `PublishTarget` with its `model.onnx`, and the samples in the build folder. Out: folders
`test_data_set_<n>` beside the file, numbered without gaps, and how far each output may be off.

Runners pair `input_<i>.pb` with the i-th input of the graph that has no value in the file, and read
an OptionalProto where the graph says optional. Weights that a file takes as inputs come last.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from onnx import OptionalProto, TensorProto, ValueInfoProto, helper, numpy_helper

from exporter.checks.comparison.compare_outputs import (
    OutputContext,
    choose_limit,
    split_float64_items,
)
from exporter.checks.comparison.compare_samples import apply_sample_noise
from exporter.checks.files.model_file import UnreadableModel, read_model
from exporter.checks.files.sample_files import DamagedSample, SampleData, hash_sample
from exporter.checks.protocol import CheckContext
from exporter.core.text_format import round_up_two_digits
from exporter.jobs.job_folder import JobFolder
from exporter.jobs.reference import Reference, Sample
from exporter.runtimes.values import Array
from exporter.tools.publish.child.data_sets import list_open_inputs
from exporter.tools.publish.protocol import (
    Allowance,
    DataSet,
    PublishRequest,
    PublishTarget,
    TargetResult,
)

_AGAIN = "export the model again"


class _Unfit(Exception):
    """A sample that runners cannot be given."""


def write_test_data(request: PublishRequest, target: PublishTarget) -> TargetResult:
    """Writes every sample on which PyTorch runs."""
    built, folder = JobFolder(Path(request.built)), Path(target.folder)
    try:
        reference = Reference.read(built.reference.read_bytes())
    except (OSError, ValueError):
        return TargetResult(opset=target.opset, problems=(f"reference.json: {_AGAIN}",))
    try:
        graph_inputs = list_open_inputs(read_model(folder / "model.onnx"))
    except UnreadableModel as unreadable:
        return TargetResult(opset=target.opset, problems=(str(unreadable),))
    subject = CheckContext(
        folder=built,
        opset=target.opset,
        spec=request.spec.resolve_cell(target.opset),
        reference=reference,
    )
    sets: list[DataSet] = []
    notes: list[str] = []
    allowed: dict[str, Allowance] = {}
    for sample in (item for item in reference.samples if not item.error):
        name = f"test_data_set_{len(sets)}"
        try:
            _intact(sample, built)
            _write(subject, sample, graph_inputs, folder / name)
        except _Unfit as unfit:
            notes.append(f"the sample '{sample.name}' is left out: {unfit}")
            continue
        except (DamagedSample, OSError) as damaged:
            problem = f"{built.sample(sample.index).name}: {damaged}; {_AGAIN}"
            return TargetResult(opset=target.opset, problems=(problem,))
        sets.append(DataSet(folder=name, name=sample.name, kind=sample.kind, axes=sample.axes))
        for found in _allowances(request, target, subject, sample):
            allowed[found.output] = _wider(allowed.get(found.output, found), found)
    if not sets:
        return TargetResult(opset=target.opset, problems=("no sample of it can be run", *notes))
    return TargetResult(
        opset=target.opset,
        notes=tuple(notes),
        sets=tuple(sets),
        allowed=tuple(_rounded(each) for each in allowed.values()),
    )


def _intact(sample: Sample, built: JobFolder) -> None:
    if sample.sha256 and hash_sample(built.sample(sample.index)) != sample.sha256:
        raise DamagedSample("is not what was proved")


def _write(
    subject: CheckContext, sample: Sample, graph_inputs: list[ValueInfoProto], folder: Path
) -> None:
    content = dict(_inputs(subject, sample, graph_inputs))
    source = subject.folder.sample(sample.index)
    for index in range(len(subject.spec.outputs)):
        name = f"output_{index}.pb"
        content[name] = (source / name).read_bytes()
    folder.mkdir()
    for name, data in content.items():
        (folder / name).write_bytes(data)


def _inputs(
    subject: CheckContext, sample: Sample, graph_inputs: list[ValueInfoProto]
) -> Iterator[tuple[str, bytes]]:
    source = subject.folder.sample(sample.index)
    paths = {
        item.name: source / f"input_{index}.pb" for index, item in enumerate(subject.spec.inputs)
    }
    for index, weight in enumerate(subject.reference.weight_inputs):
        paths.setdefault(weight.name, subject.folder.weight(index))
    for position, item in enumerate(graph_inputs):
        path = paths.get(item.name)
        if path is None:
            raise _Unfit(f"nothing is known of the input '{item.name}'")
        data = path.read_bytes() if path.exists() else None
        if item.type.HasField("optional_type"):
            data = _optional(data)
        if data is None:
            raise _Unfit(f"it has no input '{item.name}', and the file needs it")
        yield f"input_{position}.pb", data


def _optional(data: bytes | None) -> bytes:
    if data is None:
        made = numpy_helper.from_optional(None)
    else:
        made = helper.make_optional("", OptionalProto.TENSOR, TensorProto.FromString(data))
    return bytes(made.SerializeToString(deterministic=True))


def _allowances(
    request: PublishRequest, target: PublishTarget, subject: CheckContext, sample: Sample
) -> Iterator[Allowance]:
    """What the contract allows in this sample, turned into a distance from PyTorch's own output."""
    for device in target.devices:
        spec = request.spec.resolve_cell(target.opset, device.name)
        on = CheckContext(
            folder=subject.folder, opset=target.opset, spec=spec, reference=subject.reference
        )
        on = apply_sample_noise(sample, on)
        data = on.samples.read(on.folder.sample(sample.index), spec)
        for index in range(len(spec.outputs)):
            yield from _of_output(data, OutputContext(on, index, device.name, sample.exact))


def _of_output(data: SampleData, at: OutputContext) -> Iterator[Allowance]:
    expected, exact = data.outputs[at.index], data.float64_outputs[at.index]
    if isinstance(expected, list):
        pairs = zip(expected, split_float64_items(exact, len(expected)), strict=True)
    else:
        pairs = zip([expected], [None if isinstance(exact, list) else exact], strict=True)
    name = at.output.name
    # A sequence may be empty, and an output that has to be equal is allowed nothing.
    yield Allowance(output=name, atol=0.0, rtol=0.0)
    for own, wide in pairs:
        limit, against = choose_limit(own, wide, at)
        if limit is None:
            continue
        beyond = bool(limit.scale < np.inf) and bool((np.abs(_finite(against)) > limit.scale).any())
        yield Allowance(
            output=name,
            atol=limit.atol + _distance(own, against),
            rtol=limit.rtol + (limit.atol / limit.scale if beyond else 0.0),
            outside=limit.outside,
        )


def _distance(own: Array, against: Array) -> float:
    """How far PyTorch's own output is from what the limit is about."""
    if own is against:
        return 0.0
    pairs = np.stack([_real(own).ravel(), _real(against).ravel()])
    pairs = pairs[:, np.isfinite(pairs).all(axis=0)]
    return float(np.abs(pairs[0] - pairs[1]).max()) if pairs.size else 0.0


def _real(array: Array) -> Array:
    """In float64; complex numbers as pairs."""
    if array.dtype.kind == "c":
        return np.stack([array.real, array.imag], axis=-1).astype(np.float64)
    return array.astype(np.float64)


def _finite(array: Array) -> Array:
    values = _real(array)
    finite: Array = values[np.isfinite(values)]
    return finite


def _wider(one: Allowance, other: Allowance) -> Allowance:
    return Allowance(
        output=one.output,
        atol=max(one.atol, other.atol),
        rtol=max(one.rtol, other.rtol),
        outside=max(one.outside, other.outside),
    )


def _rounded(allowed: Allowance) -> Allowance:
    """With two significant digits, never less."""
    return allowed.model_copy(
        update={
            "atol": round_up_two_digits(allowed.atol),
            "rtol": round_up_two_digits(allowed.rtol),
        }
    )
