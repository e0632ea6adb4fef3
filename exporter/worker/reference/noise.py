"""Differences between outputs of PyTorch: two runs, float32 and float64, two inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from exporter.checks.comparison.compare_arrays import measure_scale
from exporter.checks.protocol import read_inputs, read_outputs
from exporter.checks.sample_checks import MIN_ROWS, hash_table_parts
from exporter.jobs import JobFolder, Sample, TableParts
from exporter.manifest import ModelSpec
from exporter.runtimes.session import Array, list_items
from exporter.worker.inputs.call import Tensors, from_numpy
from exporter.worker.model.model_kinds import Model
from exporter.worker.process.failure import Failure
from exporter.worker.reference.eager_run import (
    BufferSnapshot,
    Outputs,
    Returned,
    from_value,
    run_model,
    to_value,
)

#: Limits of the noise as a share of the output's scale. A larger difference between float32 and
#: float64 may be no rounding: an argmax has another index, or the model has a cast.
LARGEST_NOISE = {torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 2e-1}
#: Noise grows with the scale of a sample up to this factor. If an output cancels at one size, its
#: relative error there says nothing about larger outputs.
_SCALE_RANGE = 4.0
#: Number of elements that are compared at once.
_BLOCK = 1 << 15


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseMeasurement:
    """The largest float32 error of each output relative to the largest scale of all samples."""

    shares: tuple[float | None, ...]
    """None if the output has no measured error, or one that is too large to be rounding."""
    large: tuple[float | None, ...]
    """The errors that are too large to be rounding."""
    scales: tuple[float, ...]
    reason: str = ""
    """The reasons for outputs without a share."""


def compute_scale(output: Returned) -> float:
    """Return the magnitude of an output by the measure of the checks; 0 if it is no float.

    For a sequence it is the smallest one of its items except 0: each item has its own limit.
    """
    scales = [_compute_tensor_scale(item) for item in list_items(output)]
    return min((scale for scale in scales if scale), default=0.0)


def compute_largest_scale(output: Returned) -> float:
    return max((_compute_tensor_scale(item) for item in list_items(output)), default=0.0)


def _compute_tensor_scale(tensor: torch.Tensor) -> float:
    if not tensor.is_floating_point():
        return 0.0
    # numpy lacks bfloat16.
    return measure_scale((tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy())


def describe_difference(spec: ModelSpec, first: Outputs, second: Outputs) -> str:
    """Return the difference between two runs on one input set, or "" if they are equal."""
    for output, value, other_value in zip(spec.outputs, first, second, strict=True):
        name = f"output '{output.name}'"
        items, others = list_items(value), list_items(other_value)
        if len(items) != len(others):
            return f"{name} has {len(items)} items in one run and {len(others)} in the other"
        for index, (item, other) in enumerate(zip(items, others, strict=True)):
            subject = f"item {index} of {name}" if output.kind == "sequence" else name
            if item.shape != other.shape:
                shapes = f"{list(item.shape)} in one run and {list(other.shape)} in the other"
                return f"{subject} has the shape {shapes}"
            if not _are_equal(item, other):
                distance = _compute_distance(item, other)
                return f"{subject} differs by {distance:.1e} between two runs on the same input"
    return ""


def compute_spread(
    declared: Outputs, perturbed: Sequence[Outputs], resized: Sequence[Outputs] = ()
) -> tuple[float | None, ...]:
    """Return the change of each output between input values, relative to its scale.

    The change is 1 if the output is not a float, because it has to be equal, and if a number
    replaces NaN or Inf.

    `resized`: The outputs for other sizes and cases. They show if an integer output ever
    changes: one label of a few may stay the same by chance. They also show if an output depends
    on sizes only.
    """
    spreads: list[float | None] = []
    for index, output in enumerate(declared):
        shapes = [item.shape for item in list_items(output)]
        same_shape = (
            outputs[index]
            for outputs in perturbed
            if [item.shape for item in list_items(outputs[index])] == shapes
        )
        spread = max((_compute_change(output, other) for other in same_shape), default=None)
        values = _list_exact_values(output)
        other_values = (_list_exact_values(outputs[index]) for outputs in resized)
        if not spread and values and any(values != other for other in other_values):
            spread = 1.0
        if spread == 0:
            changes = (_compute_change_by_size(output, outputs[index]) for outputs in resized)
            spread = max(changes, default=0.0)
        spreads.append(spread)
    return tuple(spreads)


def _compute_change_by_size(declared: Returned, resized: Returned) -> float:
    """Return the change of an output that depends on sizes only, such as positions or a mask.

    Along an axis with another size, an output that repeats one value is a constant. An output
    with other values there is none: only a file that computes them gives all sizes.
    """
    changes = [0.0]
    for item, other in zip(list_items(declared), list_items(resized), strict=False):
        if item.ndim != other.ndim or not other.numel():
            continue
        dims = [dim for dim in range(item.ndim) if item.shape[dim] != other.shape[dim]]
        repeated = (other.narrow(dim, 0, 1).expand_as(other) for dim in dims)
        changes += [_compute_change(other, one) for one in repeated]
        if not dims:
            changes.append(_compute_change(item, other))
    return max(changes)


def _list_exact_values(output: Returned) -> set[float]:
    """Return the values of all items that are not floats."""
    exact = (item for item in list_items(output) if not item.is_floating_point())
    return {value for item in exact for value in torch.unique(item).tolist()}


def _compute_change(output: Returned, other_output: Returned) -> float:
    changes = [0.0]
    for item, other in zip(list_items(output), list_items(other_output), strict=True):
        if _are_equal(item, other):
            continue
        share = 1.0
        if item.is_floating_point():
            share = _compute_distance(item, other) / (_compute_tensor_scale(item) or 1.0)
            if not _is_finite_where(item, other):
                share = max(share, 1.0)
        changes.append(share)
    return max(changes)


def _are_equal(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    if tensor.dtype is not other.dtype:
        return False
    if tensor.shape == other.shape and torch.equal(tensor, other):  # ends at the first difference
        return True
    return bool(((tensor == other) | (tensor.isnan() & other.isnan())).all())


def compute_noise(
    pairs: Sequence[tuple[Outputs, Outputs | None]], usual_scales: Sequence[float] = ()
) -> NoiseMeasurement:
    """Return the largest float32 error of each output relative to the largest scale.

    `pairs`: The outputs of each sample as declared and in float64; at least one sample.
    `usual_scales`: The scales of other samples, if these outputs may be much smaller: an error that
    is small relative to them is rounding.
    """
    count = len(pairs[0][0])
    nothing = (None,) * count
    if any(exact is None for _, exact in pairs):
        reason = "the model does not run in float64"
        return NoiseMeasurement(shares=nothing, large=nothing, scales=(0.0,) * count, reason=reason)
    shares: list[float | None] = []
    large: list[float | None] = []
    scales: list[float] = []
    reasons: list[str] = []
    for index in range(count):
        columns = [(declared[index], exact[index]) for declared, exact in pairs if exact]
        scale = max(compute_largest_scale(exact) for _, exact in columns)
        least = usual_scales[index] if usual_scales else 0.0
        share, reason = _compute_output_noise(columns, scale, least)
        is_large = bool(reason) and share is not None
        shares.append(None if is_large else share)
        large.append(share if is_large else None)
        scales.append(scale)
        if reason:
            reasons.append(f"output {index}: {reason}")
    return NoiseMeasurement(
        shares=tuple(shares), large=tuple(large), scales=tuple(scales), reason="; ".join(reasons)
    )


def _compute_output_noise(
    columns: Sequence[tuple[Returned, Returned]], largest: float, least: float
) -> tuple[float | None, str]:
    """Return the noise of one output, and the reason why it is no bound or "" if it is one."""
    if any(len(list_items(declared)) != len(list_items(exact)) for declared, exact in columns):
        return None, "it has another number of items in float64"
    tensors = _pair_items(columns)
    if not tensors or not tensors[0][0].dtype.is_floating_point:
        return None, ""
    dtype = tensors[0][0].dtype
    noise = 0.0
    for declared, exact in columns:
        noise_of_sample = 0.0
        for item, exact_item in zip(list_items(declared), list_items(exact), strict=True):
            if exact_item.dtype != torch.float64 or dtype == torch.float64:
                return None, "PyTorch computes it in its declared dtype for all inputs"
            if item.shape != exact_item.shape:
                return None, "it has another shape in float64"
            scale = _compute_tensor_scale(exact_item)
            if scale:
                noise_of_sample = max(
                    noise_of_sample, _compute_largest_share(item, exact_item, scale)
                )
        # A smaller sample has the same error as a smaller share of the largest scale.
        if largest:
            noise = max(noise, noise_of_sample * compute_largest_scale(exact) / largest)
    relative = noise * min(1.0, largest / least) if least else noise
    if not relative <= LARGEST_NOISE.get(dtype, 1e-3):
        return noise, f"float64 differs by {noise:.1e} of the scale, which is too much for rounding"
    return noise, ""


def limit_noise(
    usual: NoiseMeasurement, outputs: Outputs, measured: NoiseMeasurement | None
) -> NoiseMeasurement:
    """Return the noise of one sample: its own one, and that of usual samples of its scale.

    `measured`: The noise of the sample itself, if it ran in float64.
    """
    scales = tuple(compute_largest_scale(output) for output in outputs)
    shares = tuple(
        share if share is None or not scale else share * min(1.0, _SCALE_RANGE * known / scale)
        for share, known, scale in zip(usual.shares, usual.scales, scales, strict=True)
    )
    limited = NoiseMeasurement(shares=shares, large=usual.large, scales=scales)
    return limited if measured is None else merge_noise(limited, measured)


def merge_noise(known: NoiseMeasurement, measured: NoiseMeasurement) -> NoiseMeasurement:
    """Return the larger noise of two; none if either has none."""
    shares: list[float | None] = []
    large: list[float | None] = []
    for share, other_share, big_share, other_big_share in zip(
        known.shares, measured.shares, known.large, measured.large, strict=True
    ):
        has_none = share is None or other_share is None
        shares.append(None if has_none else max(share or 0.0, other_share or 0.0))
        large.append(
            max((each for each in (big_share, other_big_share) if each is not None), default=None)
        )
    return NoiseMeasurement(shares=tuple(shares), large=tuple(large), scales=known.scales)


def is_rounding(outputs: Outputs, others: Outputs, usual_scales: Sequence[float] = ()) -> bool:
    """Return False if a run with other rounding gives other shapes, integers or far numbers."""
    for output, other in zip(outputs, others, strict=True):
        items, other_items = list_items(output), list_items(other)
        if [item.shape for item in items] != [item.shape for item in other_items]:
            return False
        for item, other_item in zip(items, other_items, strict=True):
            is_float = item.is_floating_point()
            if not is_float and not torch.equal(item, other_item):
                return False
            if is_float and not _is_finite_where(item, other_item):
                return False
    wide = tuple(widen_output(other) for other in others)
    return all(share is None for share in compute_noise([(outputs, wide)], usual_scales).large)


def widen_output(output: Returned) -> Returned:
    """Return the same numbers in float64."""
    items = [item.double() if item.is_floating_point() else item for item in list_items(output)]
    return items if isinstance(output, list) else items[0]


def describe_overflow(pairs: Sequence[tuple[Outputs, Outputs | None]]) -> tuple[str, ...]:
    """Return a text for each output that is Inf or NaN, but finite in float64; else "".

    `pairs`: The outputs of each sample as declared and in float64; at least one sample.
    """
    texts = []
    for index in range(len(pairs[0][0])):
        count = 0
        total = 0
        largest = 0.0
        name = ""
        columns = [(declared[index], exact[index]) for declared, exact in pairs if exact]
        for declared, exact in _pair_items(columns):
            name = name or str(declared.dtype).removeprefix("torch.")
            if declared.is_floating_point() and declared.shape == exact.shape:
                total += declared.numel()
                if _is_finite(declared):
                    continue
                overflows = ~declared.isfinite() & exact.isfinite()
                count += int(overflows.sum())
                largest = max(largest, _find_largest(exact[overflows].abs()))
        text = (
            f"{name} overflows in PyTorch: {count} of {total} elements are Inf or NaN, but float64 "
            f"has finite numbers up to {largest:.1e}"
        )
        texts.append(text if count else "")
    return tuple(texts)


def _pair_items(
    columns: Sequence[tuple[Returned, Returned]],
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [
        pair
        for declared, exact in columns
        for pair in zip(list_items(declared), list_items(exact), strict=False)
    ]


def _compute_largest_share(declared: torch.Tensor, exact: torch.Tensor, scale: float) -> float:
    """Return the largest finite error relative to a scale.

    An element above the scale, such as a mask, counts relative to its own magnitude.
    """
    largest = 0.0
    for values, wide in _divide(declared, exact):
        errors = wide - values
        largest = max(largest, _find_largest(errors.abs_().div_(wide.abs().clamp_(min=scale))))
    return largest


def _compute_distance(tensor: torch.Tensor, other: torch.Tensor) -> float:
    """Return the largest finite difference in float64."""
    pairs = _divide(tensor, other)
    return max((_find_largest((one.double() - two).abs_()) for one, two in pairs), default=0.0)


def _divide(
    tensor: torch.Tensor, other: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield both tensors of one shape in blocks that stay in the processor's cache."""
    first, second = tensor.flatten(), other.flatten()
    for start in range(0, len(first), _BLOCK):
        yield first[start : start + _BLOCK], second[start : start + _BLOCK]


def _find_largest(magnitudes: torch.Tensor) -> float:
    if magnitudes.numel() and math.isfinite(largest := float(magnitudes.max())):
        return largest
    finite = magnitudes[torch.isfinite(magnitudes)]
    return float(finite.max()) if finite.numel() else 0.0


def _is_finite(tensor: torch.Tensor) -> bool:
    """Return whether all elements are numbers; a sum is many times faster than a look at each."""
    return bool(tensor.sum().isfinite()) or bool(tensor.isfinite().all())


def _is_finite_where(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether a tensor has numbers exactly where the other one has."""
    if _is_finite(tensor) and _is_finite(other):
        return True
    return torch.equal(tensor.isfinite(), other.isfinite())


def has_nan(output: Returned) -> bool:
    return any(not _is_finite(item) and bool(item.isnan().any()) for item in list_items(output))


#: Maximum number of lengths, because each one adds two input sets.
_MOST = 16
_NAMES = {
    torch.float32: "FLOAT",
    torch.float64: "DOUBLE",
    torch.float16: "FLOAT16",
    torch.bfloat16: "BFLOAT16",
}


def digest_tables(model: Model) -> tuple[TableParts, ...]:
    """Return the digests of the weights; a tensor with two names counts once.

    A run in float64 is many times slower than in float32. A sample without it is compared with the
    float32 outputs. That bound leaves room for PyTorch's own error, so a file that passes it would
    also pass against float64 (`checks/comparison/tolerance.py` has the proof). Only a file that
    fails needs the other float64 runs.
    """
    tables = []
    for weight in {id(item): item for item in (*model.parameters(), *model.buffers())}.values():
        if weight.dtype in _NAMES and weight.ndim == 2 and len(weight) >= MIN_ROWS:
            # Bytes, because numpy lacks bfloat16.
            rows: Array = weight.detach().cpu().contiguous().view(torch.uint8).numpy()
            name, shape = _NAMES[weight.dtype], tuple(weight.shape)
            tables.append(TableParts(dtype=name, shape=shape, parts=hash_table_parts(rows)))
    return tuple(tables)


def list_table_lengths(model: Model) -> tuple[int, ...]:
    """Return the lengths of tables that an axis may exceed, rising.

    Tables are embeddings, buffers and the weights of the model's own layers. The weights of
    torch's layers except embeddings are multiplied, so a model does not look up their rows.
    """
    lengths: set[int] = set()
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            lengths.add(module.num_embeddings)
            continue
        tensors = list(module.buffers(recurse=False))
        if not type(module).__module__.startswith("torch.nn."):
            tensors += module.parameters(recurse=False)
        lengths |= {size for tensor in tensors if tensor.ndim >= 2 for size in tensor.shape}
    return tuple(sorted(size for size in lengths if size >= MIN_ROWS)[:_MOST])


#: Elements of an output that are enough to measure its largest error.
_ENOUGH = 64
#: Elements of all outputs after which a few samples are enough: each run in float64 is slow.
_MANY, _FEW = 1 << 24, 4


def choose_first_samples(inputs: Sequence[Tensors], outputs: Sequence[Outputs]) -> list[int]:
    """Return the rising indices of the smallest samples with enough elements of every float output.

    If the model has a large output, too, a few samples are enough for a small one.

    `inputs`, `outputs`: Those of each sample that PyTorch runs on.
    """
    sizes = [_count_elements(tensors.values()) for tensors in inputs]
    chosen: list[int] = []
    count = 0
    for index in sorted(range(len(inputs)), key=lambda index: (sizes[index], index)):
        chosen.append(index)
        count += _count_elements(outputs[index])
        if len(chosen) == _FEW and count >= _MANY:
            break
        columns = zip(*(outputs[each] for each in chosen), strict=True)
        if all(
            _count_elements(column) >= _ENOUGH
            or not all(item.is_floating_point() for each in column for item in list_items(each))
            for column in columns
        ):
            break
    return sorted(chosen)


def read_call(path: Path, spec: ModelSpec) -> tuple[Tensors, Outputs]:
    """Return the inputs and PyTorch's outputs of a stored sample."""
    return read_input_tensors(path, spec), tuple(map(from_value, read_outputs(path, spec)))


def read_input_tensors(path: Path, spec: ModelSpec) -> Tensors:
    """Return the inputs of a stored sample."""
    arrays = read_inputs(path, spec)
    inputs = {
        item.name: from_numpy(arrays[item.name], is_complex=item.is_complex)
        for item in spec.inputs
        if item.name in arrays
    }
    # The values do not depend on the export device.
    return {name: tensor.to(spec.export_device) for name, tensor in inputs.items()}


def run_again(
    model: Model, spec: ModelSpec, job_folder: JobFolder, samples: Iterable[Sample]
) -> Iterator[tuple[Sample, Outputs, Outputs | None]]:
    """Yield the samples without an error with their outputs, and those of a new run.

    There are no new ones if PyTorch fails.
    """
    buffers = BufferSnapshot(model)
    for sample in (each for each in samples if not each.error):
        inputs, outputs = read_call(job_folder.sample(sample.index), spec)
        again: Outputs | None = None
        with suppress(Failure), buffers:
            again = tuple(from_value(to_value(each)) for each in run_model(model, spec, inputs))
        yield sample, outputs, again


def is_repeatable(
    model: Model, spec: ModelSpec, job_folder: JobFolder, samples: Iterable[Sample]
) -> bool:
    """Return True if the model gives the stored outputs again.

    Otherwise earlier calls or a trace changed the model, and further runs show nothing about these
    outputs.
    """
    return all(
        again is not None and not describe_difference(spec, outputs, again)
        for _, outputs, again in run_again(model, spec, job_folder, samples)
    )


def _count_elements(outputs: Iterable[Returned]) -> int:
    return sum(item.numel() for output in outputs for item in list_items(output))
