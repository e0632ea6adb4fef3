"""The child process of `verify FILE --reference OLD.onnx`: one file against another, no PyTorch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from onnx import ModelProto

from exporter.checks.comparison.compare_samples import remove_tolerance_advice
from exporter.checks.file_differences import (
    Difference,
    GraphValue,
    compare_interfaces,
    compare_weights,
    list_tables,
    pair_values,
    read_inputs,
    read_opsets,
    read_outputs,
)
from exporter.checks.model_file import (
    UnreadableModel,
    find_external_data_problems,
    read_model,
)
from exporter.checks.protocol import CheckedFile, SampleCache
from exporter.checks.sample_checks import check_axes, check_parity, check_values
from exporter.checks.structure_checks import explain_missing_kernel, find_foreign_operators
from exporter.checks.validity_checks import check_determinism, check_placement, check_power
from exporter.commands.verify.child.file_inputs import DrawnSet, InputDraw, name_axes
from exporter.commands.verify.child.reference_samples import ReferenceSamples
from exporter.commands.verify.client import FILES_CHECK, SIGNATURE_CHECK, WEIGHTS_CHECK, PairOptions
from exporter.core.device_name import DeviceName
from exporter.core.files import hash_file
from exporter.core.text import join_names, rename_reference
from exporter.gate.verify_report import DeviceVerdict, hash_settings
from exporter.jobs import JobFolder
from exporter.manifest import Axis, Bound, Device, Input, ModelSpec, Output, Tolerance
from exporter.records.record import CheckResult, Status
from exporter.report.rows.failure_reasons import describe_divergence
from exporter.runtimes import (
    LoadFailure,
    RunFailure,
    RuntimeProcessEnd,
    RuntimeUnavailable,
    open_session,
)
from exporter.runtimes.reference_file import ReferenceFile
from exporter.runtimes.session import OnnxValue, list_items
from exporter.worker.diagnosis.first_divergence import find_first_difference
from exporter.worker.diagnosis.replay import find_exchanged_outputs, find_failing_sample

#: The name of the reference in messages.
NAME = "the reference"
_LOAD = "load"
_TOLERANCE = re.compile(r"declare `tolerance = \{ atol = ([^,]+), rtol = (\S+) \}`")
#: The checks that run the file, with the samples that `find_failing_sample` knows.
_CHECKS = (
    check_placement,
    check_determinism,
    check_power,
    check_parity,
    check_axes,
    check_values,
)


#: Statuses of a file with other values than the reference's.
_DOUBTFUL = (Status.FAIL, Status.INCONCLUSIVE)


class FilePair(Exception):
    """A file that cannot be compared; the message names it."""


def compare_files(
    file: Path, reference: Path, devices: tuple[Device, ...], options: PairOptions
) -> tuple[int | None, tuple[DeviceVerdict, ...]]:
    """Return the opset of a file, and its verdict against another one on each device."""
    try:
        protos = [_read(path, name) for path, name in ((file, file.name), (reference, NAME))]
        weights = compare_weights(protos[0], file.parent, protos[1], reference.parent)
    except (FilePair, ValueError, MemoryError) as error:
        message = str(error) or "not enough memory to read the weights"
        return None, tuple(_report(device, Status.ERROR, message) for device in devices)
    interface = compare_interfaces(*protos)
    with TemporaryDirectory(prefix="exporter-pair-") as folder:
        pair = _Pair(
            file=file,
            reference=reference,
            protos=(protos[0], protos[1]),
            folder=Path(folder),
            weights=weights,
            interface=interface,
        )
        return read_opsets(protos[0])[""], tuple(pair.prove(device, options) for device in devices)


def _read(path: Path, name: str) -> ModelProto:
    """Return the file without its weights.

    Raises:
        FilePair: If it or its external data cannot be read.
    """
    subject = name if name == path.name else f"{name} {path.name}"
    try:
        proto = read_model(path)
    except UnreadableModel as error:
        raise FilePair(f"{subject}: {str(error).removeprefix(f'{path.name}: ')}") from error
    if not proto.graph.output or not read_opsets(proto).get(""):
        raise FilePair(f"{subject}: is not an ONNX file, has no outputs or no opset")
    # Caches of hubs consist of links.
    problems = [
        text
        for text in find_external_data_problems(proto, path.parent)
        if not text.endswith(("is a link", "has more than one hard link"))
    ]
    if problems:
        raise FilePair(f"{subject}: {'; '.join(problems)}")
    return proto


def _report(
    device: Device,
    status: Status,
    message: str,
    check: str = "",
    results: Sequence[CheckResult] = (),
) -> DeviceVerdict:
    return DeviceVerdict(
        device=device.name,
        status=status,
        check=check,
        message=_name_reference(message),
        checks=tuple(
            each.model_copy(update={"message": _name_reference(each.message)}) for each in results
        ),
        session=device.settings,
        settings=hash_settings(device),
    )


def _name_reference(text: str) -> str:
    """Return a message of the checks with the file in place of PyTorch, and options as the fix."""
    text = _TOLERANCE.sub(r"pass `--atol \1 --rtol \2`", text)
    return rename_reference(text, NAME)


def _remove_advice(result: CheckResult) -> CheckResult:
    """Return the result without a tolerance as its fix: other weights are no rounding."""
    return result.model_copy(update={"message": remove_tolerance_advice(result.message)})


def _judge(check: str, difference: Difference) -> CheckResult:
    status = Status.FAIL if difference.problems else Status.PASS
    return CheckResult(check=check, status=status, message=difference.format())


@dataclass(slots=True, kw_only=True)
class _Pair:
    """Two files that can be read, with the differences that no run shows."""

    file: Path
    reference: Path
    protos: tuple[ModelProto, ModelProto]
    folder: Path
    weights: Difference
    interface: Difference
    checked: CheckedFile | None = None
    """The samples with the reference's outputs, after the first device."""
    samples: ReferenceSamples | None = None
    """The samples before a review."""
    notes: tuple[str, ...] = ()

    def prove(self, device: Device, options: PairOptions) -> DeviceVerdict:
        results: list[CheckResult] = []
        first = ""
        load = None
        try:
            if self.checked is None:
                self.checked = self._draw(options)
            results = self._run(self.checked, device)
            if any(each.status in _DOUBTFUL for each in results):
                self.checked, is_changed = self._review(self.checked)
                results = self._run(self.checked, device) if is_changed else results
            first = self._explain(self.checked, device, results)
        except (FilePair, ValueError) as error:
            load = CheckResult(check=_LOAD, status=Status.ERROR, message=str(error))
        except RuntimeUnavailable as error:
            load = CheckResult(check=_LOAD, status=Status.UNAVAILABLE, message=str(error))
        except RuntimeProcessEnd as error:
            load = CheckResult(check=_LOAD, status=Status.CRASH, message=str(error))
        weights = self.weights
        if any(each.status.is_red for each in results):
            weights = weights.blame_values()
        if weights.problems:
            results = [_remove_advice(each) for each in results]
        checks = [
            CheckResult(check=FILES_CHECK, status=Status.PASS, message=self._describe_files()),
            _judge(WEIGHTS_CHECK, weights),
            _judge(SIGNATURE_CHECK, self.interface),
            *((load,) if load else ()),
            *results,
        ]
        deciding = next((each for each in checks if each.status.is_red), load)
        if deciding is None:
            return _report(device, Status.PASS, "", "", checks)
        message = "; ".join(filter(None, (deciding.message, first)))
        explained = deciding.model_copy(update={"message": message})
        checks = [explained if each is deciding else each for each in checks]
        return _report(device, deciding.status, message, deciding.check, checks)

    def _review(self, checked: CheckedFile) -> tuple[CheckedFile, bool]:
        """Write the choices among equal values; return whether the samples have others now."""
        if self.samples is None or not self.samples.add_choices(checked):
            return checked, False
        self.samples = None  # the file of the next device is compared with them
        return replace(checked, samples=SampleCache()), True

    def _describe_files(self) -> str:
        notes = list(self.notes)
        if hash_file(self.file) == hash_file(self.reference):
            notes.insert(0, "the file is the reference itself, byte by byte")
        return "; ".join(notes)

    def _draw(self, options: PairOptions) -> CheckedFile:
        """Run the reference on drawn inputs, and return its outputs as those of an entry.

        Raises:
            FilePair, ValueError, RuntimeUnavailable: If there is nothing to compare.
        """
        values, expected = read_inputs(self.protos[0]), read_inputs(self.protos[1])
        outputs, known = read_outputs(self.protos[0]), read_outputs(self.protos[1])
        inputs = pair_values(values, expected)
        pairs = pair_values(outputs, known)
        complete = len(inputs) == len(values) == len(expected)
        complete = complete and len(pairs) == len(outputs) == len(known)
        if not complete or any(one.dtype != other.dtype for one, other in inputs):
            raise FilePair("the numbers are not compared, because inputs or outputs differ")
        try:
            reference = ReferenceFile(self.reference, self.folder)
        except LoadFailure as error:
            domains = find_foreign_operators(self.protos[1])
            missing = [f"{domain}::{name}" for domain in domains for name in domains[domain]]
            fix = f"; it needs kernels of {join_names(missing)}" if missing else ""
            raise FilePair(f"{NAME} does not load in ONNX Runtime: {error}{fix}") from error
        ends: dict[str, int] = {}
        for name, rows in list_tables(self.protos[1]):
            ends[name] = min(rows, ends.get(name, rows))
        fixed = {
            axis: dim
            for one, other in inputs
            for dim, axis in zip(one.shape, name_axes(other), strict=False)
            if isinstance(dim, int) and isinstance(axis, str)
        }
        draw = InputDraw(expected, options, fixed, ends, reference.run)
        sets, untried = draw.draw()
        self.notes = (*draw.list_guesses(), *untried)
        order = [known.index(other) for _, other in pairs]
        names = {other.name: one.name for one, other in inputs}
        renamed = [
            replace(
                each,
                inputs={names[name]: array for name, array in each.inputs.items()},
                outputs=[each.outputs[index] for index in order],
            )
            for each in sets
        ]
        contract = self._make_contract(inputs, outputs, renamed, options.bound)
        folder = JobFolder(self.folder / "samples")
        self.samples = ReferenceSamples(reference, sets, order)
        return CheckedFile(
            folder=folder,
            opset=contract.opsets[0],
            spec=contract,
            reference=self.samples.write(renamed, contract, folder),
            file=self.file,
        )

    def _make_contract(
        self,
        inputs: Sequence[tuple[GraphValue, GraphValue]],
        outputs: Sequence[GraphValue],
        sets: Sequence[DrawnSet],
        bound: Bound,
    ) -> ModelSpec:
        """Return an entry of the file: an axis of the reference with one drawn size is fixed."""
        first = sets[0]
        free = {
            name: size
            for name, size in first.axes.items()
            if any(each.axes[name] != size for each in sets)
        }
        return ModelSpec(
            id="file",
            manifest="file.toml",
            line=1,
            source=self.reference.name,
            opsets=(read_opsets(self.protos[0])[""],),
            devices=(DeviceName("cpu"),),
            inputs=tuple(
                Input(
                    name=one.name,
                    shape=tuple(
                        dim if isinstance(dim, int) or dim in free else first.axes[dim]
                        for dim in name_axes(other)
                    ),
                    dtype=one.dtype,
                    at=f"args[{index}]",
                )
                for index, (one, other) in enumerate(inputs)
            ),
            outputs=tuple(
                _make_output(item.name, value)
                for item, value in zip(outputs, first.outputs, strict=True)
            ),
            axes=tuple(Axis(name=name, example=size) for name, size in free.items()),
            tolerance=Tolerance(**bound.model_dump()),
        )

    def _run(self, checked: CheckedFile, device: Device) -> list[CheckResult]:
        """Return the results of the checks that run the file.

        Raises:
            FilePair, RuntimeUnavailable, RuntimeProcessEnd: If the device does not load it.
        """
        try:
            session = open_session(self.file, device)
        except LoadFailure as error:
            if reason := explain_missing_kernel(checked, device):
                raise RuntimeUnavailable(reason) from error
            raise FilePair(f"{device.name} does not load the file: {error}") from error
        checks = (each for each in _CHECKS if each.applies(checked))
        return [each(checked, session, device.name) for each in checks]

    def _explain(self, checked: CheckedFile, device: Device, results: Sequence[CheckResult]) -> str:
        """Return the exchanged outputs of a file with wrong numbers, or its first wrong node."""
        failed = next((each for each in results if each.status is Status.FAIL), None)
        if failed is None:
            return ""
        session = open_session(self.file, device)
        sample = find_failing_sample(failed.check, checked, session, device.name)
        if sample is None:
            return ""
        data = checked.read(sample)
        try:
            actual = session.run({name: array.copy() for name, array in data.inputs.items()})
        except RunFailure:
            return ""
        names = [output.name for output in checked.spec.outputs]
        if exchanged := find_exchanged_outputs(names, actual, data.outputs):
            return exchanged
        pairs = pair_values(*map(read_inputs, self.protos))
        divergence = find_first_difference(
            (self.file, self.reference),
            data.inputs,
            {other.name: data.inputs[one.name] for one, other in pairs},
            partial(open_session, device=device),
            self.folder,
        )
        return f"the first difference: {describe_divergence(divergence)}" if divergence else ""


def _make_output(name: str, value: OnnxValue) -> Output:
    items = list_items(value)
    dtype = items[0].dtype.name if items else "float32"
    if isinstance(value, list):
        raise FilePair(f"the output '{name}' is a sequence, which only an entry can compare")
    shape = tuple(f"{name}.{index}" for index in range(items[0].ndim))
    return Output(name=name, shape=shape, dtype=dtype)
