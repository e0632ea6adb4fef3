"""The child process of a publication: it writes the test data of a file, and proves the file.

Runners of ONNX pair `input_<i>.pb` with the i-th graph input without a value in the file. They read
an OptionalProto if the graph declares an optional. Weights that a file takes as inputs come last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile, ZipInfo

import numpy as np
from onnx import ModelProto, OptionalProto, TensorProto, ValueInfoProto, helper, numpy_helper

from exporter.checks.comparison.compare_outputs import (
    choose_limit,
    find_allowed_value,
    find_compared_positions,
    split_float64_items,
)
from exporter.checks.comparison.compare_samples import apply_sample_noise, order_ties
from exporter.checks.comparison.tolerance import OutputContext
from exporter.checks.model_file import UnreadableModel, read_model
from exporter.checks.protocol import CheckContext, DamagedSample, SampleData, hash_sample
from exporter.core.device_name import DeviceName
from exporter.core.files import PROJECT_LIMIT, TENSOR_LIMIT, read_regular_file
from exporter.core.text import join_lines, round_up_two_digits, truncate
from exporter.jobs import JobFolder, Reference, Sample, write_json
from exporter.manifest import Device, ModelSpec
from exporter.plugins.publish.published_folder import (
    EXAMPLE,
    MARKER,
    MODEL,
    Allowance,
    DataSet,
    Publication,
    PublishTarget,
    TargetResult,
)
from exporter.records.record import Record, Route, Status
from exporter.runtimes import Kernels, load_kernels
from exporter.runtimes.session import Array
from exporter.worker.verify.run_checks import FileProof

_FIX = "export the model again"


def list_open_inputs(model: ModelProto) -> list[ValueInfoProto]:
    """Return the graph inputs without a value in the file, which a runner supplies."""
    stored = {tensor.name for tensor in model.graph.initializer}
    return [item for item in model.graph.input if item.name not in stored]


class UnsupportedSample(Exception):
    """A sample that ONNX's test format cannot represent."""


def write_test_data(
    spec: ModelSpec, built: Path, targets: tuple[PublishTarget, ...]
) -> tuple[TargetResult, ...]:
    """Write each reference with all samples, and the test data of those that runners can run.

    `built`: Its folder in the build folder.
    """
    return tuple(_write_folder(spec, JobFolder(built), target) for target in targets)


def _write_folder(spec: ModelSpec, built: JobFolder, target: PublishTarget) -> TargetResult:
    try:
        reference = Reference.read(read_regular_file(built.reference, PROJECT_LIMIT))
        reference = reference.select(built.find_route(target.opset))
    except (OSError, ValueError):
        return TargetResult(problems=(f"reference.json: {_FIX}",))
    try:
        model = read_model(target.folder / MODEL)
    except UnreadableModel as error:
        return TargetResult(problems=(str(error),))
    context = CheckContext(
        folder=built,
        opset=target.opset,
        spec=spec.resolve_cell(target.opset),
        reference=reference,
    )
    writer = _FolderWriter(spec, target, context, list_open_inputs(model))
    for sample in (*reference.samples, *reference.rollout):
        try:
            writer.add(sample)
        except (DamagedSample, OSError) as error:
            return TargetResult(problems=(f"{_find_stored(built, sample).name}: {error}; {_FIX}",))
    if not writer.sets:
        return TargetResult(problems=("no sample can be run", *writer.notes))
    writer.add_weights()
    _write_example(target.folder, writer)
    write_json(JobFolder(target.folder).reference, reference)
    _describe_file(target, spec, model)
    return TargetResult(
        notes=tuple(writer.notes),
        sets=tuple(writer.sets),
        allowed=tuple(writer.allowed.values()),
        sources=writer.sources,
    )


def _find_stored(folder: JobFolder, sample: Sample) -> Path:
    """Return the folder of a sample, or of a step of the rollout."""
    return (folder.rollout if sample.kind == "rollout" else folder.sample)(sample.index)


def _describe_file(target: PublishTarget, spec: ModelSpec, model: ModelProto) -> None:
    """Append the entry's description to the file: protobuf merges concatenated messages."""
    described = ModelProto()
    if spec.description:
        described.doc_string = spec.description
    if spec.version:
        major, *rest = map(int, spec.version.split("."))
        # ONNX has 16, 16 and 32 bits for the parts of `1.2.0`.
        described.model_version = major << 48 | rest[0] << 32 | rest[1] if rest else major
    values = {"model_author": spec.owner, "model_license": spec.license}
    known = {item.key for item in model.metadata_props}
    for key, value in {**values, "exporter.commit": target.commit}.items():
        if value and key not in known:
            described.metadata_props.add(key=key, value=value)
    with (target.folder / MODEL).open("ab") as file:
        file.write(described.SerializeToString(deterministic=True))


def _write_example(folder: Path, writer: _FolderWriter) -> None:
    """Write the first data set as `example.npz`, unless numpy cannot store a value."""
    inputs, outputs = writer.graph_inputs, writer.context.spec.outputs
    names = {f"input_{index}.pb": item.name for index, item in enumerate(inputs)}
    names |= {f"output_{index}.pb": item.name for index, item in enumerate(outputs)}
    is_tensor = all(item.type.HasField("tensor_type") for item in inputs)
    if not is_tensor or any(item.kind != "tensor" for item in outputs):
        return
    source, arrays = folder / writer.sets[0].folder, dict[str, Array]()
    for file, name in names.items():
        array = numpy_helper.to_array(TensorProto.FromString((source / file).read_bytes()))
        arrays[name] = array.astype(str) if array.dtype.kind == "O" else array
        if array.dtype.kind == "V":  # bfloat16
            return
    with ZipFile(folder / EXAMPLE, "w") as archive:  # `savez` has parameters with names of its own
        for name, array in arrays.items():
            with archive.open(ZipInfo(f"{name}.npy"), "w") as stream:
                np.lib.format.write_array(stream, array, allow_pickle=False)


@dataclass(slots=True)
class _FolderWriter:
    """The samples of one published folder."""

    spec: ModelSpec
    """The contract of all cells of the model."""
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
        stored = _find_stored(self.context.folder, sample)
        if sample.sha256 and hash_sample(stored) != sample.sha256:
            raise DamagedSample("is not what was proved")
        data_set = self.target.folder / f"test_data_set_{len(self.sets)}"
        if sample.kind not in ("masked", "rollout") and not sample.error:
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
                for item in self._list_allowances(sample):
                    self.allowed[item.output] = _merge(self.allowed.get(item.output, item), item)
        for path in sorted(stored.iterdir()):
            group = stored.relative_to(self.context.folder.path).as_posix()
            self._store(path, group, data_set / path.name)

    def _list_allowances(self, sample: Sample) -> Iterator[Allowance]:
        """Yield the tolerance of the contract as a distance from PyTorch's output."""
        for device in self.target.devices:
            spec = self.spec.resolve_cell(self.target.opset, device.name)
            context = apply_sample_noise(sample, replace(self.context, spec=spec))
            data = context.samples.read(context.folder.sample(sample.index), spec)
            tied = order_ties(data) if self.target.has_ties else None
            is_exact = sample.exact and tied is None
            for index in range(len(spec.outputs)):
                output = OutputContext(context, index, device.name, is_exact)
                yield from _list_output_allowances(tied or data, output)

    def add_weights(self) -> None:
        """Write the weights that are inputs of the file."""
        positions = {item.name: index for index, item in enumerate(self.graph_inputs)}
        data_set = self.target.folder / self.sets[0].folder
        for index, weight in enumerate(self.context.reference.weight_inputs):
            if weight.name in positions:
                written = data_set / f"input_{positions[weight.name]}.pb"
                self._store(self.context.folder.weight(index), "weights", written)

    def _store(self, path: Path, group: str, written: Path) -> None:
        """Write a stored file to `samples`, unless the test data have a file with its bytes."""
        data, folder = read_regular_file(path, TENSOR_LIMIT), self.target.folder
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
            if data is None:
                value = numpy_helper.from_optional(None)
            else:
                value = helper.make_optional("", OptionalProto.TENSOR, TensorProto.FromString(data))
            data = bytes(value.SerializeToString(deterministic=True))
        if data is None:
            raise UnsupportedSample(f"the input '{item.name}' is missing, but the file requires it")
        yield f"input_{position}.pb", data


def _list_output_allowances(data: SampleData, output: OutputContext) -> Iterator[Allowance]:
    expected, exact = data.outputs[output.index], data.float64_outputs[output.index]
    if isinstance(expected, list):
        pairs = zip(expected, split_float64_items(exact, len(expected)), strict=True)
    else:
        wide = None if isinstance(exact, list) else exact
        pairs = zip(*_select_compared(expected, wide, data, output), strict=True)
    name = output.output.name
    inputs = output.context.spec.inputs
    mask = next((item for item in inputs if item.name == output.output.masked_by), None)
    # For an empty sequence and for an output that must be equal.
    base = Allowance(
        output=name,
        atol=0.0,
        rtol=0.0,
        compared_at=f"{mask.name} = {find_allowed_value(mask)}" if mask else "",
    )
    if output.output.compare is not None and not output.output.compare.rows:
        fields = output.output.compare.model_dump(exclude_defaults=True).items()
        yield base.model_copy(update={"comparator": ", ".join(f"{k} = {v}" for k, v in fields)})
        return
    yield base
    for actual, float64 in pairs:
        limit, center = choose_limit(actual, float64, output)
        if limit is None:
            continue
        values = _convert_to_float64(center)
        sizes = np.abs(values[np.isfinite(values)])
        beyond = bool(limit.scale < np.inf) and bool((sizes > limit.scale).any())
        distance = _measure_distance(actual, center)
        yield base.model_copy(
            update={
                "atol": round_up_two_digits(limit.atol + distance) if distance else limit.atol,
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
    keys = ("atol", "rtol", "outside")
    larger = {key: max(getattr(first, key), getattr(second, key)) for key in keys}
    return first.model_copy(update=larger)


_PROBLEM_LENGTH = 300
#: The runtime if none of the target's devices is available.
_CPU = Device(name=DeviceName("ONNX Runtime on the CPU"), runtime="onnxruntime")
#: The names of stored files, and of the published files with their content.
_STORED = re.compile(r"(test_data_set_\d+|weights|rollout/step_\d+)/\w+\.pb")
_PUBLISHED = re.compile(rf"(samples/)?{_STORED.pattern}")


class DamagedFolder(Exception):
    """A published folder without the samples that it lists."""


def verify_files(
    spec: ModelSpec, root: Path, targets: tuple[PublishTarget, ...]
) -> tuple[TargetResult, ...]:
    """Prove each published file on the first of its devices that is available."""
    return tuple(_verify_file(spec, root, target) for target in targets)


def _verify_file(spec: ModelSpec, root: Path, target: PublishTarget) -> TargetResult:
    notes: list[str] = []
    problems: list[str] = []
    folder = target.folder
    try:
        publication = Publication.model_validate_json(
            read_regular_file(folder / MARKER, PROJECT_LIMIT)
        )
        kernels = load_kernels(spec, root)
        for device in (*target.devices, _CPU):
            code = (kernels, root)
            (record,) = prove_folder(folder, None, publication, spec, [device], code)
            failed = [each for each in record.checks if each.status is not Status.PASS]
            texts = [f"{each.check}: {each.message}" for each in failed]
            if not texts and record.status is not Status.PASS:
                texts = [record.message]
            problems = [f"{device.name}: {text}" for text in texts]
            if record.status is not Status.UNAVAILABLE:
                break
            notes.append(f"not loaded on {device.name}, which is unavailable: {record.message}")
    except Exception as error:  # kernels are code of the project
        problems = [str(error)]
    lines = (join_lines(problem.replace(f"{folder}/", "")) for problem in problems)
    return TargetResult(
        problems=tuple(truncate(line, _PROBLEM_LENGTH) for line in lines),
        notes=tuple(notes),
    )


def prove_folder(
    folder: Path,
    file: Path | None,
    publication: Publication,
    spec: ModelSpec,
    devices: Sequence[Device],
    code: tuple[Kernels, Path],
) -> Iterator[Record]:
    """Yield the record of the published file, or of another one, on each device.

    `file`: Another file with the same promises.

    Raises:
        DamagedFolder: If the reference or a sample is missing or changed.
    """
    with open_samples(folder, publication) as (samples, reference):
        context = CheckContext(
            folder=samples,
            opset=publication.opset,
            spec=spec.resolve_cell(publication.opset),
            reference=reference,
            kernels=code[0],
            root=code[1],
            file=file or folder / MODEL,
        )
        route = Route(exporter="file", capture="none", reason="published")
        proof = FileProof(spec=spec, context=context, route=route)
        yield from (proof.prove(device, is_full=True) for device in devices)


@contextmanager
def open_samples(folder: Path, publication: Publication) -> Iterator[tuple[JobFolder, Reference]]:
    """Yield the samples in a temporary folder with the layout of an export."""
    try:
        reference = Reference.read(read_regular_file(JobFolder(folder).reference, PROJECT_LIMIT))
    except (OSError, ValueError) as error:
        raise DamagedFolder(f"reference.json: {error}; publish the file again") from error
    with TemporaryDirectory(prefix="exporter-samples-") as scratch:
        samples = JobFolder(Path(scratch))
        for name, source in publication.sources.items():
            if not _STORED.fullmatch(name) or not _PUBLISHED.fullmatch(source):
                raise DamagedFolder(f"{MARKER}: {source!r} is not the name of a sample's file")
            target = samples.path / name
            target.parent.mkdir(exist_ok=True, parents=True)
            try:
                target.write_bytes(read_regular_file(folder / source, TENSOR_LIMIT))
            except OSError as error:
                raise DamagedFolder(f"{source} cannot be read: {error}") from error
        for sample in (*reference.samples, *reference.rollout):
            path = _find_stored(samples, sample)
            if not path.is_dir() or hash_sample(path) != sample.sha256:
                raise DamagedFolder(f"the sample '{sample.name}' differs from its hash")
        yield samples, reference
