"""Float64 outputs: first for the cheapest samples, and for all samples if a file is in doubt.

A run in float64 is many times slower than in float32. A sample without it is compared with the
float32 outputs. That bound leaves room for PyTorch's own error, so a file that passes it would
also pass against float64 (`checks/comparison/tolerance.py` has the proof). Only a file that fails
needs the other float64 runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from exporter.checks.runtime_checks import MIN_ROWS, hash_table_parts
from exporter.checks.sample_files import hash_sample, read_sample, write_float64_outputs
from exporter.jobs import JobFolder, Reference, Sample, TableParts
from exporter.manifest import ModelSpec
from exporter.runtimes.session import Array
from exporter.worker.inputs.call import Tensors
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.inputs.thorough_sets import index_sets
from exporter.worker.model.source_loader import Model
from exporter.worker.reference.eager_run import build_float64_model, run_in_float64
from exporter.worker.reference.noise import (
    NoiseMeasurement,
    compute_noise,
    describe_overflow,
    merge_noise,
)
from exporter.worker.reference.outputs import (
    Outputs,
    Returned,
    from_value,
    hide_masked_values,
    list_items,
    to_value,
)

#: Maximum number of lengths, because each one adds two input sets.
_MOST = 16
_NAMES = {
    torch.float32: "FLOAT",
    torch.float64: "DOUBLE",
    torch.float16: "FLOAT16",
    torch.bfloat16: "BFLOAT16",
}


def digest_tables(model: Model) -> tuple[TableParts, ...]:
    """Return the digests of the weights; a tensor with two names counts once."""
    if not isinstance(model, torch.nn.Module):
        return ()
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
    if not isinstance(model, torch.nn.Module):
        return ()
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


def choose_first_samples(inputs: Sequence[Tensors], outputs: Sequence[Outputs]) -> list[int]:
    """Return the smallest samples that have enough elements of every float output.

    Args:
        inputs: The inputs of each sample that PyTorch runs on.
        outputs: The outputs of each sample, in the same order.

    Returns:
        Rising indices in that order.
    """
    sizes = [_count_elements(tensors.values()) for tensors in inputs]
    chosen: list[int] = []
    for index in sorted(range(len(inputs)), key=lambda index: (sizes[index], index)):
        chosen.append(index)
        columns = zip(*(outputs[each] for each in chosen), strict=True)
        if all(
            _count_elements(column) >= _ENOUGH
            or not all(item.is_floating_point() for each in column for item in list_items(each))
            for column in columns
        ):
            break
    return sorted(chosen)


def measure_all_samples(
    model: Model, spec: ModelSpec, root: Path, folder: JobFolder, reference: Reference
) -> Reference:
    """Return the reference with float64 outputs and their noise for every sample that runs."""
    float64_model, reason = build_float64_model(model)
    sets = index_sets(spec, list_table_lengths(model), reference.samples)
    pairs: list[tuple[Outputs, Outputs | None]] = []
    samples: list[Sample] = []
    usual = next((each.scales for each in reference.samples if each.kind == "declared"), ())
    for sample in reference.samples:
        if sample.error or sample.factor != 1.0 or sample.kind == "masked":
            samples.append(sample)
            continue
        path = folder.sample(sample.index)
        data = read_sample(path, spec)
        inputs = draw_inputs(spec, sets[sample.kind, sample.name], root)
        exact = run_in_float64(float64_model, spec, inputs)
        write_float64_outputs(path, [to_value(output) for output in exact or ()])
        outputs = tuple(from_value(value) for value in data.outputs)
        hidden = hide_masked_values(spec, inputs, exact) if exact is not None else None
        pairs.append((hide_masked_values(spec, inputs, outputs), hidden))
        noise = compute_noise(pairs[-1:], () if sample.scales else usual)
        measured = add_noise(sample, reference, noise)
        samples.append(measured.model_copy(update={"exact": True, "sha256": hash_sample(path)}))
    return reference.model_copy(
        update={
            "samples": tuple(samples),
            "overflow": describe_overflow(pairs),
            "float64": reason or reference.float64,
        }
    )


def add_noise(sample: Sample, reference: Reference, measured: NoiseMeasurement) -> Sample:
    """Return the sample with its own noise, if it is larger than the usual one."""
    nothing = (None,) * len(reference.noise)
    known = NoiseMeasurement(
        shares=sample.noise or reference.noise,
        large=sample.large_noise or reference.large_noise or nothing,
        scales=measured.scales,
    )
    noise = merge_noise(known, measured)
    return sample.model_copy(update={"noise": noise.shares, "large_noise": noise.large})


def _count_elements(outputs: Iterable[Returned]) -> int:
    return sum(item.numel() for output in outputs for item in list_items(output))
