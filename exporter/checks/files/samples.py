"""What PyTorch was given and gave back, in files of ONNX's own test format.

In: a folder `test_data_set_<n>`. Out: its inputs by name and its outputs in order; and the writing
of such a folder. `input_<i>.pb` and `output_<i>.pb` are what ONNX's test runners read;
`float64_<i>.pb` beside them is the same output computed in float64, where the model runs in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from exporter.manifest import ModelSpec, Output
from exporter.runtimes.values import Array, OnnxValue, items_of


class DamagedSample(Exception):
    """The folder does not hold what was written there; no fault of the model or the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleData:
    """The tensors of one sample."""

    inputs: Mapping[str, Array]
    """By the names of the contract."""
    outputs: tuple[OnnxValue, ...]
    """In the order of the contract, in the dtypes that PyTorch gave."""
    exact: tuple[OnnxValue | None, ...]
    """The outputs in float64; None where there is none."""


class SampleMemory:
    """Samples that were read before: the same ones are asked for by each opset and device.

    Args:
        limit: Bytes to keep; what is beyond is read each time.
    """

    def __init__(self, limit: int = 1 << 28) -> None:
        self._left = limit
        self._kept: dict[Path, SampleData] = {}

    def read(self, folder: Path, spec: ModelSpec) -> SampleData:
        """The sample in `folder`, as `read_sample` gives it; nobody writes into its arrays."""
        if folder not in self._kept:
            data = read_sample(folder, spec)
            values = (*data.inputs.values(), *data.outputs, *data.exact)
            known = (value for value in values if value is not None)
            size = sum(array.nbytes for value in known for array in items_of(value))
            if size > self._left:
                return data
            self._left -= size
            self._kept[folder] = data
        return self._kept[folder]


def write_sample(
    folder: Path,
    inputs: Sequence[Array | None],
    outputs: Sequence[OnnxValue],
    float64_outputs: Sequence[OnnxValue] = (),
) -> None:
    """Writes one sample; the same arrays give the same bytes.

    Args:
        folder: Is made where it is missing.
        inputs: In the order of the contract; None for an optional one that is left out.
        outputs: In the order of the contract; none where PyTorch does not run on these inputs.
        float64_outputs: The outputs computed in float64, one for each output, or none at all.

    Raises:
        ValueError: where there are other counts of `outputs` and `float64_outputs`.
    """
    if len(float64_outputs) not in (0, len(outputs)):
        raise ValueError(f"{len(outputs)} outputs, but {len(float64_outputs)} in float64")
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder, "input", inputs)
    _write(folder, "output", outputs)
    write_exact(folder, float64_outputs)


def write_exact(folder: Path, float64_outputs: Sequence[OnnxValue]) -> None:
    """Adds the outputs computed in float64 to a sample, in place of what is there."""
    _write(folder, "float64", float64_outputs)


def _write(folder: Path, kind: str, values: Sequence[OnnxValue | None]) -> None:
    for index, value in enumerate(values):
        if value is None:
            continue
        data = _proto(value).SerializeToString(deterministic=True)
        (folder / f"{kind}_{index}.pb").write_bytes(data)


def sample_digest(folder: Path) -> str:
    """The sha256 of the names and bytes of a sample's files, in hex.

    Raises:
        OSError: where one cannot be read.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(path.name.encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def read_sample(folder: Path, spec: ModelSpec) -> SampleData:
    """Reads one sample.

    Raises:
        DamagedSample: where a file is missing, too many or unreadable.
    """
    paths = {item.name: folder / f"input_{index}.pb" for index, item in enumerate(spec.inputs)}
    absent = {item.name for item in spec.inputs if item.optional and not paths[item.name].exists()}
    wanted = {"input": len(spec.inputs) - len(absent), "output": len(spec.outputs)}
    for kind, count in wanted.items():
        found = len(list(folder.glob(f"{kind}_*.pb")))
        if found != count:
            raise DamagedSample(f"{folder.name} holds {found} {kind}s, the contract has {count}")
    inputs = {name: _read(path) for name, path in paths.items() if name not in absent}
    outputs = list(enumerate(spec.outputs))
    return SampleData(
        inputs=inputs,
        outputs=tuple(_read_value(folder / f"output_{index}.pb", item) for index, item in outputs),
        exact=tuple(_read_exact(folder / f"float64_{index}.pb", item) for index, item in outputs),
    )


def _proto(value: OnnxValue) -> onnx.TensorProto | onnx.SequenceProto:
    if isinstance(value, list):
        return numpy_helper.from_list(value, dtype=onnx.SequenceProto.TENSOR)
    return numpy_helper.from_array(np.asarray(value))


def _read_value(path: Path, output: Output) -> OnnxValue:
    if output.kind == "tensor":
        return _read(path)
    with _damage_of(path):
        sequence = onnx.SequenceProto.FromString(path.read_bytes())
        size = sequence.ByteSize()
        sequence.DiscardUnknownFields()
        # A tensor's bytes can be read as a sequence too, of no items and with much left over.
        if sequence.elem_type != onnx.SequenceProto.TENSOR or sequence.ByteSize() != size:
            raise ValueError("it holds no sequence of tensors")
        return [numpy_helper.to_array(item) for item in sequence.tensor_values]


def _read(path: Path) -> Array:
    with _damage_of(path):
        return numpy_helper.to_array(onnx.load_tensor(path))


@contextmanager
def _damage_of(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, DecodeError, ValueError, TypeError) as error:
        what = type(error).__name__  # its text may hold the path of this machine
        raise DamagedSample(f"{path.parent.name}/{path.name} cannot be read: {what}") from error


def _read_exact(path: Path, output: Output) -> OnnxValue | None:
    if not path.exists():
        return None
    value = _read_value(path, output)
    return value if all(array.dtype == np.float64 for array in items_of(value)) else None
