"""The samples of a file that is the reference of another one, and its rounding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exporter.checks.comparison.compare_arrays import measure_scale
from exporter.checks.comparison.tolerance import PRECISIONS, is_float
from exporter.checks.protocol import CheckedFile, read_outputs, write_sample
from exporter.checks.reference_choices import find_choices
from exporter.commands.verify.child.file_inputs import DrawnSet
from exporter.jobs import JobFolder, Reference, Sample
from exporter.manifest import ModelSpec
from exporter.manifest.resolved.model import DEFAULT_NOISE_FACTOR
from exporter.runtimes.reference_file import ReferenceFile, widen_value
from exporter.runtimes.session import OnnxValue, list_items
from exporter.worker.diagnosis.runtime_values import measure_error

#: A larger difference between two runs of one file is not its rounding.
_LARGEST_NOISE = {"float16": 5e-2, "bfloat16": 2e-1}
_LARGEST = 1e-3


@dataclass(frozen=True, slots=True)
class ReferenceSamples:
    """The rounding of a reference, and whether it is random."""

    reference: ReferenceFile
    sets: Sequence[DrawnSet]
    """With the reference's own names."""
    order: Sequence[int]
    """The reference's outputs in the order of the file's."""

    def write(self, sets: Sequence[DrawnSet], spec: ModelSpec, folder: JobFolder) -> Reference:
        """Write the samples with their float64 outputs, and return them with their rounding.

        `sets`: With the names of the other file.
        """
        samples, noise = [], list[list[float | None]]()
        limits = [_LARGEST_NOISE.get(item.dtype, _LARGEST) for item in spec.outputs]
        for index, (each, drawn) in enumerate(zip(sets, self.sets, strict=True)):
            exact = None
            if not index or self.reference.is_fast:
                exact = self._select(self.reference.run_in_float64(drawn.inputs))
            shares = self._measure_noise(drawn, exact) if exact or not index else None
            if drawn.factor != 1.0 and not (shares and _is_rounding(shares, limits)):
                continue  # numbers of another magnitude overflow or cancel
            inputs = [each.inputs[item.name] for item in spec.inputs]
            write_sample(folder.sample(index), inputs, each.outputs, exact or ())
            noise += [shares] if shares else []
            samples.append(_make_sample(index, each, spec, is_exact=bool(exact)))
        largest = [_find_largest(column) for column in zip(*noise, strict=True)]
        pairs = list(zip(largest, limits, strict=True))
        return Reference(
            samples=tuple(samples),
            noise=tuple(None if share is None or share > most else share for share, most in pairs),
            large_noise=tuple(
                share if share is not None and share > most else None for share, most in pairs
            ),
            noise_scales=tuple(samples[0].scales),
            float64=self.reference.reason,
            unstable=self._find_change(spec),
            overflow=tuple(map(_describe_overflow, sets[0].outputs)),
            output_spread=tuple(_measure_spread(sets, index) for index in range(len(limits))),
        )

    def add_choices(self, checked: CheckedFile) -> bool:
        """Write the choices of the reference among equal values; return whether it has any."""
        known = {sample.index for sample in checked.reference.samples}
        has_any = False
        for index, drawn in enumerate(self.sets):
            if index in known:
                folder = checked.folder.sample(index)
                outputs = read_outputs(folder, checked.spec)
                choices = find_choices(self.reference, drawn.inputs)
                has_any |= choices.write(folder, outputs, self.order)
        return has_any

    def _select(self, outputs: Sequence[OnnxValue] | None) -> list[OnnxValue] | None:
        return None if outputs is None else [outputs[index] for index in self.order]

    def _measure_noise(
        self, drawn: DrawnSet, exact: Sequence[OnnxValue] | None
    ) -> list[float | None]:
        """Return the error of the reference's own dtype as a share of the scale of each output.

        Without float64 it is the difference to other orders of the same operations.
        """
        runs = [] if exact else list(self.reference.run_in_other_orders(drawn.inputs))
        noise: list[float | None] = []
        for index, position in enumerate(self.order):
            value = drawn.outputs[position]
            if not isinstance(value, np.ndarray) or not is_float(value.dtype.name):
                noise.append(None)
            elif exact:
                noise.append(_measure_error(value, exact[index]))
            else:
                spread = max((_measure_error(run[position], value) for run in runs), default=0.0)
                precision = PRECISIONS[value.dtype.name]
                noise.append(max(spread, (precision.atol + precision.rtol) / DEFAULT_NOISE_FACTOR))
        return noise

    def _find_change(self, spec: ModelSpec) -> str:
        again = self.reference.run(self.sets[0].inputs)
        for output, index in zip(spec.outputs, self.order, strict=True):
            one, other = self.sets[0].outputs[index], again[index]
            error = measure_error(other, one)
            if error and not math.isnan(error):
                return f"output '{output.name}' differs between two runs on the same input"
        return ""


def _find_largest(shares: Sequence[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return max(known, default=None)


def _is_rounding(shares: Sequence[float | None], limits: Sequence[float]) -> bool:
    pairs = zip(shares, limits, strict=True)
    return all(share is None or share <= most for share, most in pairs)


def _make_sample(index: int, drawn: DrawnSet, spec: ModelSpec, *, is_exact: bool) -> Sample:
    sizes = {
        str(dim): size
        for output, value in zip(spec.outputs, drawn.outputs, strict=True)
        for item in list_items(value)
        for dim, size in zip(output.shape, item.shape, strict=False)
    }
    scales = (
        measure_scale(value)
        if isinstance(value, np.ndarray) and is_float(value.dtype.name)
        else 0.0
        for value in drawn.outputs
    )
    fields = {
        "index": index,
        "name": drawn.name,
        "kind": drawn.kind,
        "axes": {**drawn.axes, **sizes},
        "scales": tuple(scales),
        "exact": is_exact,
        "factor": drawn.factor,
    }
    return Sample.model_validate(fields)


def _measure_error(value: OnnxValue, target: OnnxValue) -> float:
    """Return the largest error as a share of the scale of finite numbers."""
    one, other = widen_value(value), widen_value(target)
    if isinstance(one, list) or isinstance(other, list) or one.shape != other.shape:
        return math.inf
    is_finite = np.isfinite(one) & np.isfinite(other)
    scale = measure_scale(other)
    errors = np.abs(one[is_finite] - other[is_finite])
    return float(errors.max(initial=0.0)) / scale if scale else 0.0


def _describe_overflow(value: OnnxValue) -> str:
    """Return that an output has no number, "" if it has one."""
    if isinstance(value, list) or not is_float(value.dtype.name) or not value.size:
        return ""
    return "" if np.isfinite(value).any() else "all elements are NaN or Inf in the reference"


def _measure_spread(sets: Sequence[DrawnSet], index: int) -> float | None:
    """Return the change of an output by other inputs, as a share of its scale."""
    first = sets[0].outputs[index]
    if _describe_overflow(first):
        return 0.0
    changes = [
        min(measure_error(each.outputs[index], first), 1.0)
        for each in sets[1:]
        if each.kind == "values" and np.shape(each.outputs[index]) == np.shape(first)
    ]
    resized = (
        1.0
        for each in sets[1:]
        if each.kind == "axis" and np.shape(each.outputs[index]) != np.shape(first)
    )
    spread = max(changes, default=None)
    return spread or next(resized, spread)
