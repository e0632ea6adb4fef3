"""The values of the weights that are inputs of a file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from onnx import load_tensor, numpy_helper

from exporter.checks.model_file import UnreadableModel, read_model
from exporter.jobs import JobFolder, Weight
from exporter.runtimes.session import Array


def read_weight_inputs(
    path: Path, job_folder: JobFolder, weights: Sequence[Weight], declared: Collection[str]
) -> Mapping[str, Array]:
    """Return the values of the weights that are inputs of a file."""
    try:
        inputs = read_model(path).graph.input
    except UnreadableModel:  # the structure checks report it
        return {}
    names = {item.name for item in inputs} - set(declared)
    return {
        weight.name: numpy_helper.to_array(load_tensor(job_folder.weight(index)))
        for index, weight in enumerate(weights)
        if weight.name in names
    }
