"""The child process of a publication: it writes the test data of a file, and proves the file.

Runners of ONNX pair `input_<i>.pb` with the i-th graph input without a value in the file. They read
an OptionalProto if the graph declares an optional. Weights that a file takes as inputs come last.
"""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile, ZipInfo

import numpy as np
from onnx import ModelProto, OptionalProto, TensorProto, ValueInfoProto, helper, numpy_helper

from exporter.checks.comparison.compare_arrays import to_float64
from exporter.checks.comparison.compare_outputs import (
    find_allowed_value,
    find_compared_positions,
    split_float64_items,
)
from exporter.checks.comparison.compare_samples import apply_sample_noise, compare_samples
from exporter.checks.comparison.tensor_limit import choose_limit
from exporter.checks.comparison.tolerance import ComparedOutput
from exporter.checks.model_file import UnreadableModel, read_model
from exporter.checks.next_token import apply_search
from exporter.checks.protocol import CheckedFile, DamagedSample, SampleData, hash_sample
from exporter.checks.rollout import find_tie_margin, list_loops
from exporter.checks.sample_checks import SAMPLE_KINDS, select_samples
from exporter.commands.publish.child.replaced_folder import compare_numbers
from exporter.commands.publish.published_folder import (
    EXAMPLE,
    GENERATOR,
    MARKER,
    MODEL,
    RAW,
    RUNNER,
    Allowance,
    DataSet,
    ExampleTensor,
    Publication,
    PublishedLink,
    PublishTarget,
    TargetResult,
    has_generator,
)
from exporter.core.device_name import DeviceName
from exporter.core.files import PROJECT_LIMIT, TENSOR_LIMIT, read_regular_file
from exporter.core.text import join_lines, round_up_two_digits, truncate
from exporter.jobs import JobFolder, Reference, Sample, write_json
from exporter.manifest import Device, ModelSpec
from exporter.manifest.resolved.keys import DECODER_TOKENS, Generate
from exporter.records.record import Record, Route, Status
from exporter.runtimes import Kernels, RunFailure
from exporter.runtimes.chain import list_links
from exporter.runtimes.session import Array, OnnxValue
from exporter.worker.model.kernels import load_kernels
from exporter.worker.verify.run_checks import FileProof

_FIX = "export the model again"
#: The inputs of an encoder that `generate.py` takes as prompts.
_SOURCES = ("input_ids", "input_features")


def list_open_inputs(proto: ModelProto) -> list[ValueInfoProto]:
    """Return the graph inputs without a value in the file, which a runner supplies."""
    stored = {tensor.name for tensor in proto.graph.initializer}
    return [item for item in proto.graph.input if item.name not in stored]


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
    stored = Reference.find(built.reference, PROJECT_LIMIT)
    if stored is None:
        return TargetResult(problems=(f"reference.json: {_FIX}",))
    reference = stored.select(built.find_route(target.opset))
    try:
        proto = read_model(target.folder / MODEL)
    except UnreadableModel as error:
        return TargetResult(problems=(str(error),))
    checked = CheckedFile(
        folder=built,
        opset=target.opset,
        spec=spec.resolve_cell(target.opset),
        reference=reference,
    )
    writer = _FolderWriter(spec, target, checked, list_open_inputs(proto))
    for sample in reference.all_samples:
        try:
            writer.add(sample)
        except (DamagedSample, OSError) as error:
            return TargetResult(problems=(f"{built.locate(sample).name}: {error}; {_FIX}",))
    if not writer.sets:
        return TargetResult(problems=("no sample can be run", *writer.notes))
    writer.add_weights()
    example = _write_example(target.folder, writer)
    old = target.previous
    numbers = tuple(compare_numbers(old, target.folder, checked.spec)) if old else ()
    write_json(JobFolder(target.folder).reference, reference)
    _describe_file(target, spec, proto)
    return TargetResult(
        notes=tuple(writer.notes),
        numbers=numbers,
        sets=tuple(writer.sets),
        example=example,
        links=tuple(PublishedLink.from_fields(link) for link in list_links(proto)),
        allowed=tuple(writer.allowed.values()),
        sources=writer.sources,
    )


def _describe_file(target: PublishTarget, spec: ModelSpec, proto: ModelProto) -> None:
    """Append the entry's description to the file: protobuf merges concatenated messages."""
    described = ModelProto()
    if spec.description:
        described.doc_string = spec.description
    if spec.version:
        major, *rest = map(int, spec.version.split("."))
        # ONNX has 16, 16 and 32 bits for the parts of `1.2.0`.
        described.model_version = major << 48 | rest[0] << 32 | rest[1] if rest else major
    values = {"model_author": spec.owner, "model_license": spec.license}
    known = {item.key for item in proto.metadata_props}
    for key, value in {**values, "exporter.commit": target.commit}.items():
        if value and key not in known:
            described.metadata_props.add(key=key, value=value)
    with (target.folder / MODEL).open("ab") as file:
        file.write(described.SerializeToString(deterministic=True))


def _write_example(folder: Path, writer: _FolderWriter) -> tuple[ExampleTensor, ...]:
    """Write the first data set as `example.npz` and as raw tensors, unless numpy cannot store it.

    Texts have no raw tensors.
    """
    inputs, outputs = writer.graph_inputs, writer.checked.spec.outputs
    names = {f"input_{index}.pb": item.name for index, item in enumerate(inputs)}
    names |= {f"output_{index}.pb": item.name for index, item in enumerate(outputs)}
    is_tensor = all(item.type.HasField("tensor_type") for item in inputs)
    if not is_tensor or any(item.kind != "tensor" for item in outputs):
        return ()
    source, arrays = folder / writer.sets[0].folder, dict[str, Array]()
    for file, name in names.items():
        array = numpy_helper.to_array(
            TensorProto.FromString(read_regular_file(source / file, TENSOR_LIMIT))
        )
        arrays[name] = array.astype(str) if array.dtype.kind == "O" else array
        if array.dtype.kind == "V":  # bfloat16
            return ()
    with ZipFile(folder / EXAMPLE, "w") as archive:  # `savez` has parameters with names of its own
        for name, array in arrays.items():
            with archive.open(ZipInfo(f"{name}.npy"), "w") as stream:
                np.lib.format.write_array(stream, array, allow_pickle=False)
    if any(array.dtype.kind == "U" for array in arrays.values()):
        return ()
    tensors: list[ExampleTensor] = []
    (folder / RAW).mkdir()
    for file, name in names.items():
        array = arrays[name]
        path = f"{RAW}/{file.removesuffix('.pb')}.bin"
        (folder / path).write_bytes(array.astype(array.dtype.newbyteorder("<")).tobytes())
        tensors.append(
            ExampleTensor(name=name, file=path, dtype=array.dtype.name, shape=array.shape)
        )
    return tuple(tensors)


@dataclass(slots=True)
class _FolderWriter:
    """The samples of one published folder."""

    spec: ModelSpec
    """The contract of all cells of the model."""
    target: PublishTarget
    checked: CheckedFile
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
        stored = self.checked.folder.locate(sample)
        if sample.sha256 and hash_sample(stored) != sample.sha256:
            raise DamagedSample("is not what was proved")
        data_set = self.target.folder / f"test_data_set_{len(self.sets)}"
        if sample.kind in SAMPLE_KINDS.values() and not sample.error:
            try:
                content = self._encode(sample, stored)
            except UnsupportedSample as error:
                self.notes.append(
                    f"the sample '{sample.name}' is only for `exporter verify`: {error}"
                )
            else:
                data_set.mkdir()
                for name, data in content.items():
                    (data_set / name).write_bytes(data)
                self.sets.append(DataSet.from_fields(sample, folder=data_set.name))
                self._widen_allowances(sample)
        for path in sorted(stored.iterdir()):
            group = stored.relative_to(self.checked.folder.path).as_posix()
            self._store(path, group, data_set / path.name)

    def _encode(self, sample: Sample, source: Path) -> dict[str, bytes]:
        """Return the files of a data set by name.

        Raises:
            UnsupportedSample: If a runner cannot run it.
        """
        if sample.undefined:
            raise UnsupportedSample("an output has no defined value")
        spec, content = self.checked.spec, dict[str, bytes]()
        paths = {item.name: source / f"input_{index}.pb" for index, item in enumerate(spec.inputs)}
        for index, weight in enumerate(self.checked.reference.weight_inputs):
            paths.setdefault(weight.name, self.checked.folder.weight(index))
        for position, item in enumerate(self.graph_inputs):
            if item.name not in paths:
                raise UnsupportedSample(f"the input '{item.name}' is unknown")
            path = paths[item.name]
            data = read_regular_file(path, TENSOR_LIMIT) if path.exists() else None
            if item.type.HasField("optional_type"):
                value = numpy_helper.from_optional(None)
                if data is not None:
                    tensor = TensorProto.FromString(data)
                    value = helper.make_optional("", OptionalProto.TENSOR, tensor)
                data = bytes(value.SerializeToString(deterministic=True))
            if data is None:
                message = f"the input '{item.name}' is missing, but the file requires it"
                raise UnsupportedSample(message)
            content[f"input_{position}.pb"] = data
        # Other runtimes select the lower index first among equal values, too, as ONNX requires.
        kind = "tied" if self.target.has_ties and (source / "tied_0.pb").exists() else "output"
        for index in range(len(spec.outputs)):
            path = source / f"{kind}_{index}.pb"
            content[f"output_{index}.pb"] = read_regular_file(path, TENSOR_LIMIT)
        return content

    def _widen_allowances(self, sample: Sample) -> None:
        """Raise the allowances to those of a sample on each device."""
        for device in self.target.devices:
            spec = self.spec.resolve_cell(self.target.opset, device.name)
            checked = apply_sample_noise(sample, replace(self.checked, spec=spec))
            data = checked.samples.read(checked.folder.sample(sample.index), spec)
            is_exact = sample.exact
            if self.target.has_ties and data.tied_outputs:  # the lower index first, as ONNX selects
                wide = (None,) * len(data.outputs)
                data = replace(data, outputs=data.tied_outputs, float64_outputs=wide)
                is_exact = False
            for index, declared in enumerate(spec.outputs):
                checked_output = ComparedOutput(checked, index, device.name, is_exact)
                new = _measure_allowance(data, checked_output)
                old = self.allowed.get(declared.name, new)
                keys = ("atol", "rtol", "outside")
                larger = {key: max(getattr(old, key), getattr(new, key)) for key in keys}
                self.allowed[declared.name] = old.model_copy(update=larger)

    def add_weights(self) -> None:
        """Write the weights that are inputs of the file."""
        positions = {item.name: index for index, item in enumerate(self.graph_inputs)}
        data_set = self.target.folder / self.sets[0].folder
        for index, weight in enumerate(self.checked.reference.weight_inputs):
            if weight.name in positions:
                written = data_set / f"input_{positions[weight.name]}.pb"
                self._store(self.checked.folder.weight(index), "weights", written)

    def _store(self, path: Path, group: str, written: Path) -> None:
        """Write a stored file to `samples`, unless the test data have a file with its bytes."""
        data, folder = read_regular_file(path, TENSOR_LIMIT), self.target.folder
        target = written
        if not written.exists() or read_regular_file(written, TENSOR_LIMIT) != data:
            target = folder / "samples" / group / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        self.sources[f"{group}/{path.name}"] = target.relative_to(folder).as_posix()


def _measure_allowance(data: SampleData, checked_output: ComparedOutput) -> Allowance:
    """Return the tolerance of the contract as a distance from PyTorch's output."""
    spec, declared = checked_output.checked.spec, checked_output.output
    expected, exact = data.outputs[checked_output.index], data.float64_outputs[checked_output.index]
    pairs: list[tuple[Array, Array | None]]
    if isinstance(expected, list):
        pairs = [*zip(expected, split_float64_items(exact, len(expected)), strict=True)]
    else:
        wide = exact if isinstance(exact, np.ndarray) and exact.shape == expected.shape else None
        positions = find_compared_positions(spec, checked_output.index, data.inputs, expected.shape)
        if positions is not None:
            expected, wide = expected[positions], None if wide is None else wide[positions]
        pairs = [(expected, wide)]
    comparator = declared.compare
    fields = dict[str, object]()
    if comparator is not None and not comparator.rows:
        fields, pairs = comparator.model_dump(exclude_defaults=True), []
    # The first limit is that of an empty sequence, and of an output that must be equal.
    limits = [(0.0, 0.0, 0.0), *(_measure_limit(*pair, checked_output) for pair in pairs)]
    atol, rtol, outside = map(max, zip(*limits, strict=True))
    mask = next((item for item in spec.inputs if item.name == declared.masked_by), None)
    return Allowance(
        output=declared.name,
        atol=atol,
        rtol=rtol,
        outside=outside,
        compared_at=f"{mask.name} = {find_allowed_value(mask)}" if mask else "",
        comparator=", ".join(f"{key} = {value}" for key, value in fields.items()),
    )


def _measure_limit(
    expected: Array, wide: Array | None, checked_output: ComparedOutput
) -> tuple[float, float, float]:
    """Return `atol` and `rtol` around PyTorch's values, and the share that may exceed them."""
    limit, center = choose_limit(expected, wide, checked_output)
    if limit is None:
        return 0.0, 0.0, 0.0
    values = to_float64(center)
    is_beyond = limit.scale < np.inf and bool(
        (np.abs(values[np.isfinite(values)]) > limit.scale).any()
    )
    with np.errstate(invalid="ignore"):
        distances = np.abs(to_float64(expected) - values)
    distance = float(distances[np.isfinite(distances)].max(initial=0.0))
    atol = round_up_two_digits(limit.atol + distance) if distance else limit.atol
    return atol, limit.rtol + (limit.atol / limit.scale if is_beyond else 0.0), limit.outside


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
        publication = Publication.from_folder(folder)
        kernels = load_kernels(spec, root)
        if publication.links:
            problems += _find_runner_problems(folder, publication, spec)
            if has_generator(spec):
                problems += find_generator_problems(folder, publication, spec)
        for device in (*target.devices, _CPU):
            (record,) = prove_folder(folder, None, publication, spec, [device], kernels, root)
            failed = [each for each in record.checks if each.status is not Status.PASS]
            texts = [f"{each.check}: {each.message}" for each in failed]
            if not texts and record.status is not Status.PASS:
                texts = [record.message]
            if record.status is not Status.UNAVAILABLE:
                problems += [f"{device.name}: {text}" for text in texts]
                break
            notes.append(f"not loaded on {device.name}, which is unavailable: {record.message}")
    except Exception as error:  # kernels are code of the project
        problems = [str(error)]
    lines = (join_lines(problem.replace(f"{folder}/", "")) for problem in problems)
    return TargetResult(
        problems=tuple(truncate(line, _PROBLEM_LENGTH) for line in lines),
        notes=tuple(notes),
    )


@dataclass(slots=True)
class _Runner:
    """The program of a published chain as a session."""

    chain: Any
    output_names: Sequence[str]
    placement: None = None

    def run(self, inputs: Mapping[str, Array]) -> Sequence[OnnxValue]:
        try:
            outputs = self.chain.run(dict(inputs))
        except Exception as error:
            raise RunFailure(str(error)) from error
        return [outputs[name] for name in self.output_names]


def _find_runner_problems(folder: Path, publication: Publication, spec: ModelSpec) -> list[str]:
    """Return how the program of a chain differs from PyTorch: as a program, and on all samples."""
    command = [sys.executable, "-P", RUNNER]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if process.returncode:
        return [f"{RUNNER}: {(process.stderr.strip().splitlines() or ['fails'])[-1]}"]
    resolved = spec.resolve_cell(publication.opset)
    session = _Runner(
        runpy.run_path(str(folder / RUNNER))["Chain"](), [item.name for item in spec.outputs]
    )
    with open_samples(folder, publication) as (samples, reference):
        checked = CheckedFile(
            folder=samples, opset=publication.opset, spec=resolved, reference=reference
        )
        device = publication.records[0].cell.device
        results = [
            compare_samples(check, chosen, checked, session, device)
            for check in SAMPLE_KINDS
            if (chosen := select_samples(check, checked))
        ]
    failed = [each for each in results if each.status is not Status.PASS]
    return [f"{RUNNER}: {each.check}: {each.message}" for each in failed]


def find_generator_problems(
    folder: Path, publication: Publication, spec: ModelSpec
) -> Iterator[str]:
    """Yield how the tokens of `generate.py` differ from PyTorch's, for prompts with `begin` only.

    A row is compared up to its end, and all rows up to another token that is as good as PyTorch's.
    """
    generate = runpy.run_path(str(folder / GENERATOR))["generate"]
    settings, resolved = spec.generate or Generate(), spec.resolve_cell(publication.opset)
    position = [output.name for output in spec.outputs].index("logits")
    with open_samples(folder, publication) as (samples, reference):
        checked = CheckedFile(
            folder=samples, opset=publication.opset, spec=resolved, reference=reference
        )
        for steps in list_loops(reference) if spec.tokens is None else ():
            data = [checked.samples.read(samples.locate(step), resolved) for step in steps]
            given = data[0].inputs
            if given[DECODER_TOKENS].shape[1] > 1:
                continue
            source = next(given[name] for name in _SOURCES if name in given)
            tokens = generate(source, len(steps), given.get("attention_mask"))
            ended = np.zeros(len(tokens), bool)
            for number, step in enumerate(steps):
                if ended.all():
                    break
                logits = np.asarray(data[number].outputs[position])[:, -1]
                inputs = [each.inputs for each in data[: number + 1]]
                scores = apply_search(settings.search, logits, inputs)
                right, chosen = scores.argmax(-1), tokens[:, number]
                margins = scores.max(-1) - scores[np.arange(len(chosen)), chosen]
                noisy = apply_sample_noise(step, checked)
                margin = find_tie_margin(logits, ComparedOutput(noisy, position, "cpu", False))
                if (wrong := (margins > margin) & ~ended).any():
                    row = int(wrong.argmax())
                    pair = f"token {chosen[row]} in place of {right[row]}"
                    yield f"{GENERATOR}: {step.name}, row {row + 1}: {pair}"
                    break
                if ((chosen != right) & ~ended).any():
                    break
                ended |= np.isin(right, settings.end)


def prove_folder(
    folder: Path,
    file: Path | None,
    publication: Publication,
    spec: ModelSpec,
    devices: Sequence[Device],
    kernels: Kernels,
    root: Path,
) -> Iterator[Record]:
    """Yield the record of the published file, or of another one, on each device.

    `file`: Another file with the same promises.

    Raises:
        DamagedFolder: If the reference or a sample is missing or changed.
    """
    with open_samples(folder, publication) as (samples, reference):
        checked = CheckedFile(
            folder=samples,
            opset=publication.opset,
            spec=spec.resolve_cell(publication.opset),
            reference=reference,
            kernels=kernels,
            root=root,
            file=file or folder / MODEL,
        )
        route = Route(exporter="file", capture="none", reason="published")
        proof = FileProof(spec=spec, checked=checked, route=route)
        yield from (proof.prove(device, is_full=True) for device in devices)


@contextmanager
def open_samples(folder: Path, publication: Publication) -> Iterator[tuple[JobFolder, Reference]]:
    """Yield the samples in a temporary folder with the layout of an export."""
    try:
        reference = Reference.read(read_regular_file(JobFolder(folder).reference, PROJECT_LIMIT))
    except (OSError, ValueError) as error:
        raise DamagedFolder(f"reference.json: {error}; publish the file again") from error
    # A folder of another person could fill the disk with copies of one file.
    repeated = [name for name, count in Counter(publication.sources.values()).items() if count > 2]
    if repeated:
        raise DamagedFolder(f"{MARKER}: {repeated[0]!r} is the source of several files")
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
        for sample in reference.all_samples:
            path = samples.locate(sample)
            if not path.is_dir() or hash_sample(path) != sample.sha256:
                raise DamagedFolder(f"the sample '{sample.name}' differs from its hash")
        yield samples, reference
