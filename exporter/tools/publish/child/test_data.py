"""The samples of a published file, as they were proved and for ONNX's own test runners.

Runners pair `input_<i>.pb` with the i-th graph input without a value in the file. They read an
OptionalProto if the graph declares an optional. Weights that a file takes as inputs come last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from onnx import ModelProto, OptionalProto, TensorProto, ValueInfoProto, helper, numpy_helper

from exporter.checks.comparison.compare_outputs import (
    OutputContext,
    choose_limit,
    find_allowed_value,
    find_compared_positions,
    split_float64_items,
)
from exporter.checks.comparison.compare_samples import apply_sample_noise, order_ties
from exporter.checks.files.model_file import UnreadableModel, read_model
from exporter.checks.files.sample_files import DamagedSample, SampleData, hash_sample
from exporter.checks.protocol import CheckContext
from exporter.core.files import PROJECT_LIMIT, TENSOR_LIMIT, read_regular_file
from exporter.core.text import round_up_two_digits
from exporter.jobs.job_folder import JobFolder, write_json
from exporter.jobs.reference import Reference, Sample
from exporter.manifest import ModelSpec
from exporter.runtimes.session import Array
from exporter.tools.publish.protocol import (
    Allowance,
    DataSet,
    PublishRequest,
    PublishTarget,
    TargetResult,
)

_FIX = "export the model again"


def list_open_inputs(model: ModelProto) -> list[ValueInfoProto]:
    """Return the graph inputs without a value in the file, which a runner supplies."""
    stored = {tensor.name for tensor in model.graph.initializer}
    return [item for item in model.graph.input if item.name not in stored]


class UnsupportedSample(Exception):
    """A sample that ONNX's test format cannot represent."""


def write_test_data(request: PublishRequest, target: PublishTarget) -> TargetResult:
    """Write the reference with all samples, and the test data of those that runners can run."""
    built, folder = JobFolder(Path(request.built)), Path(target.folder)
    try:
        reference = Reference.read(read_regular_file(built.reference, PROJECT_LIMIT))
        reference = reference.select(built.find_route(target.opset))
    except (OSError, ValueError):
        return TargetResult(opset=target.opset, problems=(f"reference.json: {_FIX}",))
    try:
        graph_inputs = list_open_inputs(read_model(folder / "model.onnx"))
    except UnreadableModel as error:
        return TargetResult(opset=target.opset, problems=(str(error),))
    context = CheckContext(
        folder=built,
        opset=target.opset,
        spec=request.spec.resolve_cell(target.opset),
        reference=reference,
    )
    writer = _FolderWriter(request, target, context, graph_inputs)
    for sample in reference.samples:
        try:
            writer.add(sample)
        except (DamagedSample, OSError) as error:
            problem = f"{built.sample(sample.index).name}: {error}; {_FIX}"
            return TargetResult(opset=target.opset, problems=(problem,))
    if not writer.sets:
        problems = ("no sample can be run", *writer.notes)
        return TargetResult(opset=target.opset, problems=problems)
    writer.add_weights()
    write_json(JobFolder(folder).reference, reference)
    return TargetResult(
        opset=target.opset,
        notes=tuple(writer.notes),
        sets=tuple(writer.sets),
        allowed=tuple(
            item.model_copy(
                update={
                    "atol": round_up_two_digits(item.atol),
                    "rtol": round_up_two_digits(item.rtol),
                }
            )
            for item in writer.allowed.values()
        ),
        sources=writer.sources,
    )


@dataclass(slots=True)
class _FolderWriter:
    """The samples of one published folder."""

    request: PublishRequest
    target: PublishTarget
    context: CheckContext
    graph_inputs: list[ValueInfoProto]
    sets: list[DataSet] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    allowed: dict[str, Allowance] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def add(self, sample: Sample) -> None:
        """Write a sample as it is stored, and its test data if runners can run it.

        Raises:
            DamagedSample, OSError: If the stored sample cannot be read or was changed.
        """
        stored = self.context.folder.sample(sample.index)
        if sample.sha256 and hash_sample(stored) != sample.sha256:
            raise DamagedSample("is not what was proved")
        data_set = Path(self.target.folder) / f"test_data_set_{len(self.sets)}"
        if sample.kind != "masked" and not sample.error:
            try:
                _write_sample(self.target, self.context, sample, self.graph_inputs, data_set)
            except UnsupportedSample as error:
                self.notes.append(
                    f"the sample '{sample.name}' is only for `exporter verify`: {error}"
                )
            else:
                self.sets.append(
                    DataSet(
                        folder=data_set.name, name=sample.name, kind=sample.kind, axes=sample.axes
                    )
                )
                for item in _list_allowances(self.request, self.target, self.context, sample):
                    self.allowed[item.output] = _merge(self.allowed.get(item.output, item), item)
        for path in sorted(stored.iterdir()):
            self._store(path, stored.name, data_set / path.name)

    def add_weights(self) -> None:
        """Write the weights that are inputs of the file."""
        positions = {item.name: index for index, item in enumerate(self.graph_inputs)}
        data_set = Path(self.target.folder) / self.sets[0].folder
        for index, weight in enumerate(self.context.reference.weight_inputs):
            if weight.name in positions:
                written = data_set / f"input_{positions[weight.name]}.pb"
                self._store(self.context.folder.weight(index), "weights", written)

    def _store(self, path: Path, group: str, written: Path) -> None:
        """Write a stored file to `samples`, unless the test data have a file with its bytes."""
        data, folder = read_regular_file(path, TENSOR_LIMIT), Path(self.target.folder)
        target = written
        if not written.exists() or written.read_bytes() != data:
            target = folder / "samples" / group / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        self.sources[f"{group}/{path.name}"] = target.relative_to(folder).as_posix()


def _write_sample(
    target: PublishTarget,
    context: CheckContext,
    sample: Sample,
    graph_inputs: list[ValueInfoProto],
    folder: Path,
) -> None:
    if sample.undefined:
        raise UnsupportedSample("an output has no defined value")
    content = dict(_encode_inputs(context, sample, graph_inputs))
    source = context.folder.sample(sample.index)
    # Other runtimes select the lower index first among equal values, too, as ONNX requires.
    kind = "tied" if target.has_ties and (source / "tied_0.pb").exists() else "output"
    for index in range(len(context.spec.outputs)):
        content[f"output_{index}.pb"] = read_regular_file(
            source / f"{kind}_{index}.pb", TENSOR_LIMIT
        )
    folder.mkdir()
    for name, data in content.items():
        (folder / name).write_bytes(data)


def _encode_inputs(
    context: CheckContext, sample: Sample, graph_inputs: list[ValueInfoProto]
) -> Iterator[tuple[str, bytes]]:
    source = context.folder.sample(sample.index)
    paths = {
        item.name: source / f"input_{index}.pb" for index, item in enumerate(context.spec.inputs)
    }
    for index, weight in enumerate(context.reference.weight_inputs):
        paths.setdefault(weight.name, context.folder.weight(index))
    for position, item in enumerate(graph_inputs):
        path = paths.get(item.name)
        if path is None:
            raise UnsupportedSample(f"the input '{item.name}' is unknown")
        data = read_regular_file(path, TENSOR_LIMIT) if path.exists() else None
        if item.type.HasField("optional_type"):
            data = _encode_optional(data)
        if data is None:
            raise UnsupportedSample(f"the input '{item.name}' is missing, but the file requires it")
        yield f"input_{position}.pb", data


def _encode_optional(data: bytes | None) -> bytes:
    if data is None:
        value = numpy_helper.from_optional(None)
    else:
        value = helper.make_optional("", OptionalProto.TENSOR, TensorProto.FromString(data))
    return bytes(value.SerializeToString(deterministic=True))


def _list_allowances(
    request: PublishRequest, target: PublishTarget, shared: CheckContext, sample: Sample
) -> Iterator[Allowance]:
    """Yield the tolerance of the contract as a distance from PyTorch's output."""
    for device in target.devices:
        spec = request.spec.resolve_cell(target.opset, device.name)
        context = CheckContext(
            folder=shared.folder, opset=target.opset, spec=spec, reference=shared.reference
        )
        context = apply_sample_noise(sample, context)
        data = context.samples.read(context.folder.sample(sample.index), spec)
        tied = order_ties(data) if target.has_ties else None
        is_exact = sample.exact and tied is None
        for index in range(len(spec.outputs)):
            output = OutputContext(context, index, device.name, is_exact)
            yield from _list_output_allowances(tied or data, output)


def _list_output_allowances(data: SampleData, output: OutputContext) -> Iterator[Allowance]:
    expected, exact = data.outputs[output.index], data.float64_outputs[output.index]
    if isinstance(expected, list):
        pairs = zip(expected, split_float64_items(exact, len(expected)), strict=True)
    else:
        wide = None if isinstance(exact, list) else exact
        pairs = zip(*_select_compared(expected, wide, data, output), strict=True)
    name = output.output.name
    # For an empty sequence and for an output that must be equal.
    base = Allowance(
        output=name, atol=0.0, rtol=0.0, compared_at=_describe_compared(output.context.spec, name)
    )
    yield base
    for actual, float64 in pairs:
        limit, center = choose_limit(actual, float64, output)
        if limit is None:
            continue
        values = _convert_to_float64(center)
        sizes = np.abs(values[np.isfinite(values)])
        beyond = bool(limit.scale < np.inf) and bool((sizes > limit.scale).any())
        yield base.model_copy(
            update={
                "atol": limit.atol + _measure_distance(actual, center),
                "rtol": limit.rtol + (limit.atol / limit.scale if beyond else 0.0),
                "outside": limit.outside,
            }
        )


def _select_compared(
    expected: Array, wide: Array | None, data: SampleData, output: OutputContext
) -> tuple[list[Array], list[Array | None]]:
    """Return PyTorch's values that are compared, in the model's precision and in float64."""
    spec = output.context.spec
    positions = find_compared_positions(spec, output.index, data.inputs, expected.shape)
    if positions is None:
        return [expected], [wide]
    has_wide = wide is not None and wide.shape == expected.shape
    return [expected[positions]], [wide[positions] if wide is not None and has_wide else None]


def _describe_compared(spec: ModelSpec, name: str) -> str:
    """Return the positions of an output that are compared: `mask = 1`, or "" for all."""
    output = next(item for item in spec.outputs if item.name == name)
    mask = next((item for item in spec.inputs if item.name == output.masked_by), None)
    return f"{mask.name} = {find_allowed_value(mask)}" if mask else ""


def _measure_distance(actual: Array, center: Array) -> float:
    """Return the distance of PyTorch's output from the value that the limit refers to."""
    if actual is center:
        return 0.0
    pairs = np.stack([_convert_to_float64(actual).ravel(), _convert_to_float64(center).ravel()])
    pairs = pairs[:, np.isfinite(pairs).all(axis=0)]
    return float(np.abs(pairs[0] - pairs[1]).max()) if pairs.size else 0.0


def _convert_to_float64(array: Array) -> Array:
    """Return float64 values, with complex numbers as pairs."""
    if array.dtype.kind == "c":
        return np.stack([array.real, array.imag], axis=-1).astype(np.float64)
    return array.astype(np.float64)


def _merge(first: Allowance, second: Allowance) -> Allowance:
    return first.model_copy(
        update={
            "atol": max(first.atol, second.atol),
            "rtol": max(first.rtol, second.rtol),
            "outside": max(first.outside, second.outside),
        }
    )
