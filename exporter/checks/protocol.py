"""The interface of a check, and its input: a file and samples in the format of the ONNX tests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from exporter.checks.model_file import UnreadableModel, read_model
from exporter.checks.weight_inputs import read_weight_inputs
from exporter.core.files import TENSOR_LIMIT, open_regular_file, read_regular_file
from exporter.core.import_object import load_attribute
from exporter.jobs import JobFolder, Reference, Sample
from exporter.manifest import ModelSpec, Output
from exporter.records.record import CheckResult, Status
from exporter.runtimes import NO_KERNELS, Kernels, Session
from exporter.runtimes.session import Array, OnnxValue, list_items

#: The files of a `SelectionData`; the rule is the margin and whether the first is promised.
_SELECTION_PARTS = ("keys", "rows", "exact", "rule")


class DamagedSample(Exception):
    """The folder differs from the written one; neither the model nor the file is at fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionData:
    """The values from which an output of indices selects."""

    keys: Array
    """Rows of float64 or int64; each index selects one value of its row."""
    rows: Array
    """The row of each index."""
    exact: Array
    """Whether float32 and float64 are equal, for each value."""
    margin: float
    """The difference of two values that may be rounding."""
    is_first_promised: bool
    """Whether PyTorch promises the first of equal values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleData:
    """The tensors of one sample."""

    inputs: Mapping[str, Array]
    """The tensors by their names in the contract."""
    outputs: tuple[OnnxValue, ...]
    """PyTorch's outputs in their own dtypes, in the order of the contract."""
    float64_outputs: tuple[OnnxValue | None, ...]
    """The outputs in float64; None if an output has no float64 value."""
    tied_outputs: tuple[OnnxValue, ...] = ()
    """The outputs with the lower index first among equal values; empty if nothing was selected."""
    selections: tuple[SelectionData | None, ...] = ()
    """For each output, the values that it selects from; None if it has other values."""
    rounded_outputs: tuple[tuple[OnnxValue, ...], ...] = ()
    """PyTorch's outputs with other rounding, if they are far from its usual ones."""


class SampleCache:
    """Samples in memory, because each opset and device reads the same ones.

    `limit`: Bytes in memory; samples beyond it are read from disk each time.
    """

    def __init__(self, limit: int = 1 << 28) -> None:
        self._left = limit
        self._samples: dict[Path, SampleData] = {}

    def read(self, folder: Path, spec: ModelSpec) -> SampleData:
        """Return the sample in `folder`; callers must not write to its arrays."""
        if folder not in self._samples:
            data = read_sample(folder, spec)
            values = (*data.inputs.values(), *data.outputs, *data.float64_outputs)
            arrays = (a for value in values if value is not None for a in list_items(value))
            size = sum(array.nbytes for array in arrays)
            if size > self._left:
                return data
            self._left -= size
            self._samples[folder] = data
        return self._samples[folder]


def write_sample(
    folder: Path,
    inputs: Sequence[Array | None],
    outputs: Sequence[OnnxValue],
    float64_outputs: Sequence[OnnxValue] = (),
) -> None:
    """Write one sample; equal arrays give equal bytes.

    All arrays have the order of the contract. An omitted input is None. There are no outputs if
    PyTorch fails on these inputs, and all or none in float64.
    """
    if len(float64_outputs) not in (0, len(outputs)):
        raise ValueError(f"{len(outputs)} outputs, but {len(float64_outputs)} in float64")
    folder.mkdir(parents=True, exist_ok=True)
    _write_values(folder, "input", inputs)
    _write_values(folder, "output", outputs)
    write_float64_outputs(folder, float64_outputs)


def write_float64_outputs(folder: Path, outputs: Sequence[OnnxValue]) -> None:
    """Write the outputs computed in float64 to a sample, and replace existing ones."""
    _write_values(folder, "float64", outputs)


def write_ties(
    folder: Path, outputs: Sequence[OnnxValue], selections: Sequence[SelectionData | None]
) -> None:
    """Write the outputs with ties in ONNX's order, and the values that each selects from."""
    _write_values(folder, "tied", outputs)
    for index, selection in enumerate(selections):
        if selection is not None:
            rule = np.array([selection.margin, selection.is_first_promised])
            arrays = (selection.keys, selection.rows, selection.exact, rule)
            for part, array in zip(_SELECTION_PARTS, arrays, strict=True):
                path = folder / f"selection_{index}_{part}.pb"
                proto = numpy_helper.from_array(array)
                path.write_bytes(proto.SerializeToString(deterministic=True))


def write_rounded_outputs(folder: Path, runs: Sequence[Sequence[OnnxValue]]) -> None:
    for number, outputs in enumerate(runs):
        _write_values(folder, f"rounded{number}", outputs)


def _write_values(folder: Path, kind: str, values: Sequence[OnnxValue | None]) -> None:
    for index, value in enumerate(values):
        if value is None:
            continue
        proto = (
            numpy_helper.from_list(value, dtype=onnx.SequenceProto.TENSOR)
            if isinstance(value, list)
            else numpy_helper.from_array(np.asarray(value))
        )
        path = folder / f"{kind}_{index}.pb"
        path.write_bytes(proto.SerializeToString(deterministic=True))


def hash_sample(folder: Path) -> str:
    """Return the SHA-256 of the names and bytes of a sample's files, in hex."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(path.name.encode() + b"\0")
        with open_regular_file(path) as file:  # opening a pipe would wait for a writer
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def read_sample(folder: Path, spec: ModelSpec) -> SampleData:
    """Read one sample.

    Raises:
        DamagedSample: if a file is missing, unexpected or unreadable.
    """
    inputs = read_inputs(folder, spec)
    outputs = list(enumerate(spec.outputs))
    has_ties = (folder / "tied_0.pb").exists()
    return SampleData(
        inputs=inputs,
        outputs=read_outputs(folder, spec),
        float64_outputs=tuple(
            _read_float64_value(folder / f"float64_{index}.pb", item) for index, item in outputs
        ),
        tied_outputs=tuple(
            _read_value(folder / f"tied_{index}.pb", item) for index, item in outputs if has_ties
        ),
        selections=tuple(_read_selection(folder, index) for index, _ in outputs if has_ties),
        rounded_outputs=tuple(
            tuple(
                _read_value(folder / f"rounded{number}_{index}.pb", item) for index, item in outputs
            )
            for number in range(len(list(folder.glob("rounded*_0.pb"))))
        ),
    )


def read_inputs(folder: Path, spec: ModelSpec) -> dict[str, Array]:
    """Read the inputs of one sample, without its outputs, which may be large.

    Raises:
        DamagedSample: as `read_sample`.
    """
    paths = {item.name: folder / f"input_{index}.pb" for index, item in enumerate(spec.inputs)}
    absent = {item.name for item in spec.inputs if item.optional and not paths[item.name].exists()}
    _require_count(folder, "input", len(spec.inputs) - len(absent))
    return {name: _read_tensor(path) for name, path in paths.items() if name not in absent}


def read_outputs(folder: Path, spec: ModelSpec) -> tuple[OnnxValue, ...]:
    """Read PyTorch's outputs of one sample in their own dtypes.

    Raises:
        DamagedSample: as `read_sample`.
    """
    _require_count(folder, "output", len(spec.outputs))
    return tuple(
        _read_value(folder / f"output_{index}.pb", item) for index, item in enumerate(spec.outputs)
    )


def _require_count(folder: Path, kind: str, count: int) -> None:
    actual = len(list(folder.glob(f"{kind}_*.pb")))
    if actual != count:
        raise DamagedSample(f"{folder.name} has {actual} {kind}s, the contract has {count}")


def _read_selection(folder: Path, index: int) -> SelectionData | None:
    """Return the values that an output selects from, or None if it has other values."""
    paths = [folder / f"selection_{index}_{part}.pb" for part in _SELECTION_PARTS]
    if not paths[0].exists():
        return None
    keys, rows, exact, rule = (_read_tensor(path) for path in paths)
    return SelectionData(
        keys=keys,
        rows=rows,
        exact=exact,
        margin=float(rule[0]),
        is_first_promised=bool(rule[1]),
    )


def _read_float64_value(path: Path, output: Output) -> OnnxValue | None:
    """Return the value, or None if the file is missing or has another dtype."""
    if not path.exists():
        return None
    value = _read_value(path, output)
    return value if all(array.dtype == np.float64 for array in list_items(value)) else None


def _read_value(path: Path, output: Output) -> OnnxValue:
    if output.kind == "tensor":
        return _read_tensor(path)
    with _report_damage(path):
        sequence = onnx.SequenceProto.FromString(read_regular_file(path, TENSOR_LIMIT))
        size = sequence.ByteSize()
        sequence.DiscardUnknownFields()
        # The bytes of a tensor parse as a sequence without items and with unknown fields.
        if sequence.elem_type != onnx.SequenceProto.TENSOR or sequence.ByteSize() != size:
            raise ValueError("it contains no sequence of tensors")
        return [numpy_helper.to_array(item) for item in sequence.tensor_values]


def _read_tensor(path: Path) -> Array:
    with _report_damage(path):
        return numpy_helper.to_array(
            onnx.TensorProto.FromString(read_regular_file(path, TENSOR_LIMIT))
        )


@contextmanager
def _report_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, DecodeError, ValueError, TypeError) as error:
        kind = type(error).__name__  # its text may contain a path of this machine
        raise DamagedSample(f"{path.parent.name}/{path.name} cannot be read: {kind}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFile:
    """One exported file with its contract and PyTorch's reference outputs."""

    folder: JobFolder
    opset: int
    spec: ModelSpec
    reference: Reference
    notes: tuple[str, ...] = ()
    """Warnings of the exporter about the file."""
    samples: SampleCache = field(default_factory=SampleCache, compare=False, repr=False)
    """Shared by the files of one job."""
    kernels: Kernels = NO_KERNELS
    """Kernels of the custom operators in the file."""
    file: Path | None = None
    """The `.onnx` file if it is not in the folder of a model."""
    is_short: bool = False
    """Whether the file is compared with few samples; see `Reference.shorten`."""
    root: Path = Path()
    """The folder of the project, with the functions that the contract names."""

    @property
    def path(self) -> Path:
        """The `.onnx` file."""
        return self.file or self.folder.model(self.opset)

    def read(self, sample: Sample) -> SampleData:
        """Return PyTorch's values, and the weights if they are inputs; see `read_sample`."""
        data = self.samples.read(self.folder.sample(sample.index), self.spec)
        if not self.spec.weights_are_inputs:
            return data
        declared = [item.name for item in self.spec.inputs]
        read = read_weight_inputs
        weights = read(self.path, self.folder, self.reference.weight_inputs, declared)
        return replace(data, inputs={**data.inputs, **weights})

    def load_function(self, text: str) -> Callable[..., object]:
        """Return a function of the project; one that cannot be loaded raises when it is called."""
        try:
            function = load_attribute(text, (self.root / self.spec.manifest).parent)
        except Exception as error:  # noqa: BLE001 - code of the project runs
            return partial(_raise, f"cannot be loaded: {type(error).__name__}: {error}")
        return function if callable(function) else partial(_raise, "is no function")


def _raise(problem: str, *_: object, **__: object) -> None:
    raise TypeError(problem)


@dataclass(frozen=True, slots=True)
class RuntimeCheck:
    """A check that runs the file, or decides if a run proves anything."""

    name: str
    """The name in records and in the manifest's `expect`."""
    compare: Callable[[CheckedFile, Session, str], CheckResult]
    applies: Callable[[CheckedFile], bool] = lambda _: True
    """Whether the contract has the promise; otherwise there is no result."""

    def __call__(self, checked: CheckedFile, session: Session, device_name: str) -> CheckResult:
        """Compare the outputs of the session on a device with one promise of the contract."""
        return self.compare(checked, session, device_name)


@dataclass(frozen=True, slots=True)
class StructureCheck:
    """A check that reads the file and needs no runtime; it passes if it finds no problem."""

    name: str
    find: Callable[[CheckedFile, onnx.ModelProto], Iterable[str]]
    applies: Callable[[CheckedFile], bool] = lambda _: True

    def __call__(self, checked: CheckedFile) -> CheckResult:
        """Compare the file with one promise of the contract."""
        try:
            problems = tuple(self.find(checked, read_model(checked.path)))
        except UnreadableModel as error:
            problems = (str(error),)
        status = Status.FAIL if problems else Status.PASS
        return CheckResult(check=self.name, status=status, message="; ".join(problems))
