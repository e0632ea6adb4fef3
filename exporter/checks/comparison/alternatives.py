"""Other right outputs of a sample, if equal or near values leave PyTorch a choice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from exporter.checks.files.sample_files import SampleData
from exporter.runtimes.values import Array, OnnxValue


def list_alternatives(values: Sequence[OnnxValue], data: SampleData) -> Iterator[SampleData]:
    """Yield the sample with other right outputs.

    They are those with the lower index first among equal values, as ONNX selects, and those of
    PyTorch with other rounding. At last each row has the run that is nearest to the file: the rows
    of a batch have a choice each.

    Args:
        values: The outputs of the file.
        data: The sample.
    """
    others = [outputs for outputs in (data.tied_outputs, *data.rounded_outputs) if outputs]
    without_float64 = (None,) * len(data.outputs)
    for outputs in others:
        yield replace(data, outputs=outputs, float64_outputs=without_float64)
    if data.rounded_outputs and (nearest := _combine_rows(values, [data.outputs, *others])):
        yield replace(data, outputs=nearest, float64_outputs=without_float64)


def order_ties(data: SampleData) -> SampleData | None:
    """Return the sample with the lower index first among equal values, as ONNX selects.

    Returns:
        None if no operator of the model selects indices.
    """
    if not data.tied_outputs:
        return None
    return replace(data, outputs=data.tied_outputs, float64_outputs=(None,) * len(data.outputs))


def _combine_rows(
    values: Sequence[OnnxValue], runs: Sequence[Sequence[OnnxValue]]
) -> tuple[Array, ...] | None:
    """Return outputs with the nearest run in each row, or None if the outputs have no rows."""
    columns: list[list[Array]] = []
    for value, *others in zip(values, *runs, strict=True):
        arrays = [each for each in (value, *others) if isinstance(each, np.ndarray)]
        shapes = {array.shape for array in arrays}
        if len(arrays) != len(runs) + 1 or len(shapes) != 1 or not arrays[0].ndim:
            return None
        columns.append(arrays)
    if len({arrays[0].shape[0] for arrays in columns}) != 1:
        return None
    distances = sum(_measure_distances(arrays) for arrays in columns)
    nearest = np.argmin(distances, axis=0)
    rows = np.arange(nearest.size)
    return tuple(np.stack(arrays[1:])[nearest, rows] for arrays in columns)


def _measure_distances(arrays: Sequence[Array]) -> Array:
    """Return the distance of each run from the file in each row, as a share of the output."""
    actual, *runs = (np.asarray(each, np.float64).reshape(len(each), -1) for each in arrays)
    scale = float(np.abs(actual[np.isfinite(actual)]).max(initial=0.0)) or 1.0
    with np.errstate(invalid="ignore"):
        distances = [np.abs(run - actual).max(axis=1, initial=0.0) / scale for run in runs]
    stacked: Array = np.nan_to_num(np.stack(distances), nan=1.0, posinf=1e9)
    return stacked
