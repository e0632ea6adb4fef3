"""One more comparison of a file, with other values of the weights that hide a part of the model.

A scale of 0 hides the branch before it, a weight 1 and a bias 0 of a norm hide each other's places,
and a table of zeros hides its rows. Trained values show them, so a file of initial ones proves
less. A copy of such a file gets noise there, and so does the model for one call. Neither the file
nor the model keeps it.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, numpy_helper

from exporter.checks.comparison.compare_samples import compare_samples
from exporter.checks.model_file import read_model
from exporter.checks.protocol import CheckedFile, SampleCache
from exporter.core.text import join_names
from exporter.jobs import JobFolder
from exporter.manifest import Device
from exporter.records.record import UNPROVED_PREFIX, CheckResult, Record, Stage, Status
from exporter.runtimes import open_session
from exporter.runtimes.graph_walk import iter_nodes
from exporter.runtimes.session import list_items
from exporter.worker.diagnosis.divergence import export_variant
from exporter.worker.export.attempts import OpsetExport
from exporter.worker.inputs.input_sets import choose_usual_sets
from exporter.worker.model.call_objects import WRAPPED_NAME
from exporter.worker.model.model_kinds import Model
from exporter.worker.model.source_loader import is_constant
from exporter.worker.reference.reference_run import run_further_sets
from exporter.worker.reference.review import is_worth_review, review_reference

_CHECK = "parity"
#: The number that all values of a tensor are, its dtype, and its shape without axes of length 1.
_Group = tuple[float, str, tuple[int, ...]]
_TYPES = {
    TensorProto.FLOAT: "float32",
    TensorProto.DOUBLE: "float64",
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
}
#: The norms that exporters may fold into the operator before them, and their own operator.
_FOLDED_NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)
_NORM = "BatchNormalization"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantWeights:
    """The weights with one initial number each that a file has.

    Exporters store equal tensors once, with the name of one of them, and transpose some. So all
    weights of one number and shape get the same noise.
    """

    weights: Mapping[str, torch.Tensor]
    noise: Mapping[_Group, torch.Tensor]
    names: frozenset[str]
    """The names of all weights of the model."""
    unproved: tuple[str, ...]
    """A text for each number of the weights that the file does not have, or not only as weights."""

    def describe(self) -> tuple[str, ...]:
        return _describe_numbers(self.weights)

    @contextmanager
    def change_model(self) -> Iterator[None]:
        """Give the weights of the model other values inside."""
        values = [weight.detach().clone() for weight in self.weights.values()]
        with torch.no_grad():
            try:
                for weight in self.weights.values():
                    weight.copy_(self.noise[_describe_group(weight)].reshape(weight.shape))
                yield
            finally:
                for weight, value in zip(self.weights.values(), values, strict=True):
                    weight.copy_(value)

    def write_copy(self, path: Path, copy: Path) -> None:
        """Write a copy of the file with the other values; external data stay where they are."""
        proto = read_model(path)
        for tensor, group, is_transposed in _list_places(
            proto, path.parent, self.noise, self.names
        ):
            values = self.noise[group].reshape(group[2])
            array = (values.T if is_transposed else values).reshape(tuple(tensor.dims))
            new = onnx.helper.make_tensor(
                tensor.name, tensor.data_type, tensor.dims, array.double().numpy().reshape(-1)
            )
            tensor.CopyFrom(new)
        copy.write_bytes(proto.SerializeToString(deterministic=True))


def find_constant_weights(model: Model, names: Sequence[str], path: Path) -> ConstantWeights:
    """Return the weights with these names that have a place of their own in the file."""
    tensors = _list_tensors(model)
    weights = {name: tensors[name] for name in names if name in tensors}
    groups: dict[_Group, list[str]] = {}
    for name, weight in weights.items():
        if weight.is_contiguous() and not weight.is_inference():
            groups.setdefault(_describe_group(weight), []).append(name)
    # Other tensors of the model with these values have the same place.
    shapes = {group[2] for group in groups}
    for name, tensor in tensors.items():
        has_shape = tuple(size for size in tensor.shape if size != 1) in shapes
        if name not in weights and has_shape and tensor.is_floating_point() and is_constant(tensor):
            groups.pop(_describe_group(tensor), None)
    proto = read_model(path) if groups else onnx.ModelProto()
    norms = [each for each in model.modules() if isinstance(each, _FOLDED_NORMS)]
    if len(norms) != sum(node.op_type == _NORM for node in proto.graph.node):
        folded = {id(each) for norm in norms for each in (*norm.parameters(), *norm.buffers())}
        for group, members in list(groups.items()):
            if any(id(weights[name]) in folded for name in members):
                del groups[group]
    # Equal weights have one place, and an optimizer removes the addition of 0.
    reads = Counter(name for node in iter_nodes(proto) for name in node.input)
    uses = Counter[_Group]()
    for tensor, group, _ in _list_places(proto, path.parent, groups, frozenset(tensors)):
        uses[group] += reads[tensor.name]
    groups_in_file = {group for group, members in groups.items() if uses[group] >= len(members)}
    # Exporters cut a weight that is not in the file, such as the biases of an attention.
    cut = [(group, prod(group[2])) for group in groups if not uses[group]]
    groups_in_file -= {
        group
        for group in groups_in_file
        for other, count in cut
        if group[:2] == other[:2] and count > prod(group[2]) and count % prod(group[2]) == 0
    }
    placed = {
        name: weights[name] for group in groups if group in groups_in_file for name in groups[group]
    }
    return ConstantWeights(
        weights=placed,
        noise={
            group: _draw(group, number)
            for number, group in enumerate(groups)
            if group in groups_in_file
        },
        names=frozenset(tensors),
        unproved=_describe_numbers({n: each for n, each in weights.items() if n not in placed}),
    )


def _list_tensors(model: Model) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers by their names in the model of the user."""
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        bare = name
        while bare.startswith(f"{WRAPPED_NAME}."):
            bare = bare.removeprefix(f"{WRAPPED_NAME}.")
        tensors[bare] = tensor
    return tensors


def _describe_group(tensor: torch.Tensor) -> _Group:
    shape = tuple(size for size in tensor.shape if size != 1)
    return _get_number(tensor), str(tensor.dtype).removeprefix("torch."), shape


def _get_number(tensor: torch.Tensor) -> float:
    return float(tensor.detach().reshape(-1)[0])


def _describe_numbers(weights: Mapping[str, torch.Tensor]) -> tuple[str, ...]:
    names: dict[float, list[str]] = {}
    for name, weight in weights.items():
        names.setdefault(_get_number(weight), []).append(name)
    return tuple(
        f"{join_names(each, 1)}: all values are {value:g}" for value, each in names.items()
    )


def _draw(group: _Group, seed: int) -> torch.Tensor:
    """Return other values: half to one and a half of a number, or small ones around 0.

    A variance stays positive. The sums that a matrix gives stay small.
    """
    number, dtype, shape = group
    generator = torch.Generator().manual_seed(seed)
    share = torch.rand(shape, generator=generator, dtype=torch.float64)
    terms = shape[-1] if len(shape) > 1 else 4
    values = number * (0.5 + share) if number else (share - 0.5) / terms**0.5
    kind: torch.dtype = getattr(torch, dtype)
    return values.to(kind)


def _list_places(
    proto: onnx.ModelProto, folder: Path, groups: Mapping[_Group, object], names: frozenset[str]
) -> Iterator[tuple[TensorProto, _Group, bool]]:
    """Yield each tensor of the file with the values of a group, and whether it is transposed.

    `names`: Those of the model; exporters name a transposed matrix themselves.
    """
    for tensor in proto.graph.initializer:
        dtype, shape = _TYPES.get(tensor.data_type, ""), tuple(d for d in tensor.dims if d != 1)
        shapes = (shape, shape[::-1]) if len(shape) == 2 else (shape,)
        candidates = [group for group in groups if group[1] == dtype and group[2] in shapes]
        is_named = tensor.name in names
        if not candidates or (not shape and not is_named):  # 0 and 1 are numbers of exporters, too
            continue
        array = numpy_helper.to_array(tensor, base_dir=str(folder)).astype(np.float64).reshape(-1)
        for group in candidates:
            if bool((array == group[0]).all()):
                is_turned = len(shape) == 2 and (shape != group[2] or not is_named)
                yield tensor, group, is_turned
                break


@contextmanager
def prove_hidden_parts(
    record: Record,
    opset_export: OpsetExport,
    checked: CheckedFile,
    device: Device,
    constant: ConstantWeights,
) -> Iterator[tuple[Record, OpsetExport, CheckedFile]]:
    """Compare a green file with other values of its weights, and yield the record with the result.

    If it is red, the model has these values inside, and so do the yielded file and its sample.
    """
    if record.status is not Status.PASS or record.proved_on or not constant.weights:
        yield record, opset_export, checked
        return
    scratch = JobFolder(checked.folder.path / ".constant")
    with ExitStack() as changed:
        changed.callback(_get_copy_path(checked).unlink, missing_ok=True)
        changed.callback(shutil.rmtree, scratch.path, ignore_errors=True)
        try:
            changed.enter_context(constant.change_model())
            result, other = _compare(record, opset_export, checked, device, constant, scratch)
        except Exception:  # a model or a runtime raises any error with other values
            result, other = None, checked
        if result is not None and result.status is Status.FAIL:
            subject = join_names(list(constant.weights), 1)
            message = (
                f"with other values of {subject}, which hide it in this file: {result.message}"
            )
            result = result.model_copy(update={"message": message})
            checks = tuple(result if each.check == _CHECK else each for each in record.checks)
            update = {"status": result.status, "stage": Stage.PARITY, "check": _CHECK}
            red = record.model_copy(update={**update, "message": message, "checks": checks})
            weights = {id(each) for each in constant.weights.values()}
            named = (*opset_export.model.named_parameters(), *opset_export.model.named_buffers())
            paths = tuple(path for path, each in named if id(each) in weights)
            yield red, replace(opset_export, other_values=paths), other
            return
    if result is None or result.status is not Status.PASS:
        texts = (f"{UNPROVED_PREFIX}{text}" for text in constant.describe())
        record = record.model_copy(update={"notes": (*record.notes, *texts)})
    yield record, opset_export, checked


def _get_copy_path(checked: CheckedFile) -> Path:
    """Return the path of a copy, beside the external data of the file."""
    return checked.path.with_suffix(".constant.onnx")


def _compare(
    record: Record,
    opset_export: OpsetExport,
    checked: CheckedFile,
    device: Device,
    constant: ConstantWeights,
    scratch: JobFolder,
) -> tuple[CheckResult | None, CheckedFile]:
    """Return the result of a copy of the file with the values that the model has now.

    There is no result if PyTorch computes no numbers with them, or if the copy is no right one: an
    exporter may have computed other constants from the weights. A new export decides that.
    """
    spec, model = opset_export.spec, opset_export.model
    declared = choose_usual_sets(spec)[:1]
    samples = run_further_sets(model, spec, opset_export.root, scratch, declared, checked.reference)
    reference = checked.reference.model_copy(update={"samples": samples, "is_reviewed": False})
    copy = _get_copy_path(checked)
    other = replace(checked, folder=scratch, file=copy, reference=reference, samples=SampleCache())
    if samples[0].error or not _is_finite(other):
        return None, checked
    constant.write_copy(checked.path, copy)

    def compare(current: CheckedFile) -> CheckResult:
        session = open_session(current.path, device, current.kernels)
        return compare_samples(_CHECK, current.reference.samples, current, session, device.name)

    result = compare(other)
    red = {"status": result.status, "stage": Stage.PARITY, "checks": (result,)}
    doubtful = record.model_copy(update=red)
    if is_worth_review(doubtful, reference):
        reference = review_reference(model, spec, scratch, reference, doubtful)
        other = replace(other, reference=reference, samples=SampleCache())
        result = compare(other)
    if result.status is not Status.FAIL:
        return result, other
    route = opset_export.route
    with export_variant(opset_export, scratch.path, route.exporter, route.capture) as exported:
        again = compare(replace(other, file=exported.path))
    return (result, other) if again.status is Status.FAIL else (None, checked)


def _is_finite(checked: CheckedFile) -> bool:
    values = [
        item
        for value in checked.read(checked.reference.samples[0]).outputs
        for item in list_items(value)
    ]
    return all(
        bool(np.isfinite(item.astype(np.float64)).all())
        for item in values
        if item.dtype.kind not in "biu"
    )
