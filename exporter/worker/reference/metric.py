"""The metric of PyTorch's model, and of one that returns zeros."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from exporter.checks.metric import InvalidMetric, compute_metric
from exporter.core.import_object import load_attribute
from exporter.core.text import join_names
from exporter.jobs import JobFolder
from exporter.manifest import ModelSpec
from exporter.records.record import Stage
from exporter.runtimes.session import OnnxValue
from exporter.worker.inputs.call import Array, Tensors, from_numpy
from exporter.worker.model.model_kinds import Model
from exporter.worker.process.failure import Failure, format_message, wrap_errors
from exporter.worker.reference.eager_run import BufferSnapshot, run_model, to_value


def compute_reference(
    model: Model, spec: ModelSpec, _: Tensors, __: JobFolder, root: Path
) -> tuple[float, ...]:
    """Return the metric of PyTorch, and of a model that returns zeros.

    Raises:
        Failure: Stage `source`, if the function fails or returns no number.
    """
    call = spec.metric.call if spec.metric else ""
    with wrap_errors(Stage.SOURCE):
        function = load_attribute(call, (root / spec.manifest).parent)
    buffers = BufferSnapshot(model)

    def run(**arrays: Array) -> dict[str, OnnxValue]:
        if missing := [item.name for item in spec.inputs if item.name not in arrays]:
            raise TypeError(f"the model needs the inputs {join_names(missing)}")
        tensors = {
            item.name: from_numpy(np.asarray(arrays[item.name]), is_complex=item.is_complex)
            for item in spec.inputs
        }
        outputs = run_model(model, spec, tensors)
        buffers.restore()
        pairs = zip(spec.outputs, outputs, strict=True)
        return {output.name: to_value(value) for output, value in pairs}

    def run_zeros(**arrays: Array) -> dict[str, OnnxValue]:
        values = run(**arrays).items()
        return {name: [] if isinstance(v, list) else np.zeros_like(v) for name, v in values}

    try:
        value = compute_metric(function, call, run)
    except InvalidMetric as error:
        message = format_message(f"metric: {error}; it is called with PyTorch's model")
        raise Failure(Stage.SOURCE, message) from error
    try:
        return value, compute_metric(function, call, run_zeros)
    except InvalidMetric:
        return value, -math.inf
