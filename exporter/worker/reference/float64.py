"""PyTorch in float64: on the cheapest samples first, on all of them where a file is in doubt.

In: a model, its contract and its `Reference`. Out: which samples to begin with; and the `Reference`
with float64 outputs for the others too, written beside theirs.

Float64 costs many times what float32 does. A sample without it is held against PyTorch's float32
within a bound that leaves room for PyTorch's own error: what passes that would pass against float64
(`checks/tolerance.py` shows why), so that only a file which does not is worth the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from exporter.checks.files.sample_files import hash_sample, read_sample, write_float64_outputs
from exporter.jobs.job_folder import JobFolder
from exporter.jobs.reference import Reference, Sample
from exporter.manifest import ModelSpec
from exporter.records.record import Record, Stage, Status
from exporter.worker.inputs.call import Tensors
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.inputs.thorough_sets import choose_all_sets
from exporter.worker.model.source_loader import Model
from exporter.worker.reference import noise as rounding
from exporter.worker.reference.eager_run import build_float64_model, run_in_float64
from exporter.worker.reference.outputs import (
    Outputs,
    Returned,
    from_value,
    list_items,
    to_value,
)
from exporter.worker.reference.weight_tables import list_table_lengths

#: Elements of each output after which the largest error says how large errors are.
_ENOUGH = 64


def choose_first_samples(inputs: Sequence[Tensors], outputs: Sequence[Outputs]) -> list[int]:
    """The samples to begin with: the smallest, up to enough elements of every float output.

    Args:
        inputs: Of each sample that PyTorch runs on.
        outputs: What it put out, in the same order.

    Returns:
        Their places in that order, rising.
    """
    order = sorted(range(len(inputs)), key=lambda index: (_size(inputs[index].values()), index))
    chosen: list[int] = []
    for index in order:
        chosen.append(index)
        columns = zip(*(outputs[each] for each in chosen), strict=True)
        if all(_size(column) >= _ENOUGH or not _is_float(column) for column in columns):
            break
    return sorted(chosen)


def is_worth_float64(record: Record, reference: Reference) -> bool:
    """Whether a file is red for numbers alone, and not yet held against float64 everywhere."""
    is_no = record.status is Status.FAIL and record.stage is Stage.PARITY
    if not is_no or reference.is_measured_everywhere:
        return False
    wrong = [result for result in record.checks if result.status is Status.FAIL]
    excess = [result.metrics.get("of_limit") for result in wrong]
    # Infinite where kinds or shapes differ; none where a check compares no numbers.
    return bool(excess) and all(isinstance(one, float) and math.isfinite(one) for one in excess)


def measure_all_samples(
    model: Model, spec: ModelSpec, root: Path, folder: JobFolder, reference: Reference
) -> Reference:
    """The reference with float64 outputs for every sample that PyTorch runs on.

    Where a sample does not run in float64, no output has a measured bound, as if it had been run
    at once.
    """
    twin, no_twin = build_float64_model(model)
    chosen_sets = choose_all_sets(spec, list_table_lengths(model))
    sets = {(chosen.kind, chosen.name): chosen for chosen in chosen_sets}
    pairs: list[tuple[Outputs, Outputs | None]] = []
    samples: list[Sample] = []
    for sample in reference.samples:
        if sample.error or sample.noise:
            samples.append(sample)
            continue
        path = folder.sample(sample.index)
        data = read_sample(path, spec)
        exact = run_in_float64(twin, spec, draw_inputs(spec, sets[sample.kind, sample.name], root))
        write_float64_outputs(path, [to_value(output) for output in exact or ()])
        pairs.append((tuple(from_value(value) for value in data.outputs), exact))
        measured = {"exact": True, "sha256": hash_sample(path)}
        samples.append(sample.model_copy(update=measured))
    noise, why_not = rounding.compute_noise(pairs)
    return reference.model_copy(
        update={
            "samples": tuple(samples),
            "noise": noise,
            "overflow": rounding.describe_overflow(pairs),
            "float64": no_twin or why_not,
        }
    )


def _size(outputs: Iterable[Returned]) -> int:
    return sum(item.numel() for output in outputs for item in list_items(output))


def _is_float(column: Sequence[Returned]) -> bool:
    return all(item.is_floating_point() for output in column for item in list_items(output))
