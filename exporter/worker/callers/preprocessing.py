"""The key `preprocess` of an input against what PyTorch's program feeds for real samples.

The process of a caller computes the input as a user of the file would, without PyTorch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from exporter.core.import_object import load_attribute
from exporter.manifest import Input, ModelSpec, Preprocess
from exporter.worker.callers.mistakes import explain_input, find_mistake
from exporter.worker.callers.results import Array, Values, list_values
from exporter.worker.process.failure import format_message

#: The folder of computed inputs, a file for each sample.
PREPARED = "prepared"
#: The outcome of an input whose preprocessing is that of PyTorch's program.
PROVED = "proved"
_BYTE = 255.0
#: A filter with a negative part exceeds the range of a picture by a part of it.
_OVERSHOOT = 0.25
#: The most steps of a byte by which two resized pictures may differ.
_STEPS = 1.01
#: The largest difference of other values, as a share of the largest one.
_EQUAL = 1e-3
#: The keys that a picture needs.
_PICTURES = ("layout", "colour", "range")


def prepare_inputs(spec: ModelSpec, folder: Path, sample: object) -> tuple[Values, dict[str, str]]:
    """Return each declared input of a sample, and the reasons why others are not computed.

    `folder`: That of the manifest.
    """
    values, reasons = Values(), dict[str, str]()
    for item in spec.inputs:
        if item.preprocess is None:
            continue
        try:
            if item.preprocess.function:
                function = load_attribute(item.preprocess.function, folder)
                values[item.name] = _call(function, item.preprocess.function, sample)
            elif reason := _find_obstacle(item.preprocess, sample):
                reasons[item.name] = reason
            else:
                values[item.name] = prepare_picture(item, item.preprocess, sample)
        except Exception as error:  # code of the project runs
            text = f"raises {type(error).__name__}: {str(error).partition(chr(10))[0]}"
            reasons[item.name] = format_message(text)
    return values, reasons


def _call(function: Callable[[object], object], name: str, sample: object) -> Array:
    arrays = [*list_values(function(sample)).values()]
    if len(arrays) != 1:
        raise TypeError(f"{name} returns {len(arrays)} arrays, expected one")
    return arrays[0]


def _find_obstacle(table: Preprocess, sample: object) -> str:
    """Return why the keys of a table do not give an array for a sample, or ""."""
    missing = [key for key in _PICTURES if not getattr(table, key)]
    if missing:
        return f"no {missing[0]} is declared"
    if not {*table.layout} <= {*"NCHW"} or not {"H", "W"} <= {*table.layout}:
        return f"{table.layout} is no layout of pictures"
    if isinstance(sample, np.ndarray):
        is_picture = sample.dtype == np.uint8 and sample.ndim in (2, 3)
    else:
        is_picture = isinstance(sample, str | os.PathLike)
    return "" if is_picture else "the samples are no pictures"


def prepare_picture(item: Input, table: Preprocess, sample: object) -> Array:
    """Return the input for a picture, a file or an array of bytes, by the keys of its table."""
    from PIL import Image  # the extra `images`

    picture = (
        Image.fromarray(sample) if isinstance(sample, np.ndarray) else Image.open(Path(str(sample)))
    )
    picture = picture.convert("L" if table.colour == "L" else "RGB")
    dims = dict(zip(table.layout, item.shape, strict=True))
    height, width = table.size or (dims["H"], dims["W"])
    if isinstance(height, int) and isinstance(width, int) and picture.size != (width, height):
        picture = picture.resize((width, height), Image.Resampling[table.resize.upper()])
    pixels = np.asarray(picture, np.float64).reshape(picture.height, picture.width, -1)
    if table.colour == "BGR":
        pixels = pixels[..., ::-1]
    low, high = table.range or (0.0, _BYTE)
    values = low + pixels * ((high - low) / _BYTE)
    values = (values - np.array(table.mean or 0.0)) / np.array(table.std or 1.0)
    axes = {"N": 0, "H": 1, "W": 2, "C": 3}
    order = [axes[letter] for letter in table.layout]
    array = values[None].transpose(*sorted({*axes.values()} - {*order}), *order)
    shape = array.shape[len(axes) - len(order) :]
    return np.asarray(array.reshape(shape), item.file_dtype)


def judge_preprocessing(
    spec: ModelSpec, samples: Sequence[tuple[Values, Values]], reasons: Mapping[str, str]
) -> tuple[str, dict[str, str]]:
    """Compare computed inputs with those of PyTorch's program.

    Args:
        spec: The contract.
        samples: For each sample, the computed inputs and those that the program feeds.
        reasons: Why inputs are not computed.

    Returns:
        The first wrong declaration, "" if there is none; and for each declared input `PROVED`, or
        the reason why it is not.
    """
    outcomes: dict[str, str] = {}
    for item in spec.inputs:
        if item.preprocess is None:
            continue
        problem, outcomes[item.name] = _judge_input(
            item, item.preprocess, samples, reasons.get(item.name, "")
        )
        if problem:
            return f"`preprocess` of '{item.name}': {problem}", outcomes
    return "", outcomes


def _judge_input(
    item: Input, table: Preprocess, samples: Sequence[tuple[Values, Values]], reason: str
) -> tuple[str, str]:
    """Return how the declaration is wrong, or "", and `PROVED` or why it is not."""
    given = [other[item.name] for _, other in samples if item.name in other]
    if problem := next(filter(None, (_find_outside(table, array) for array in given)), ""):
        return problem, ""
    if reason:
        return (f"{table.function}: {reason}" if table.function else ""), reason
    if len(given) < len(samples) or not given:
        return "", "PyTorch's program does not feed it to the model by its name"
    shows_colour = table.colour in (None, "L")
    for values, others in samples:
        value, reference = values[item.name], others[item.name]
        if not _are_equal(table, value, reference):
            is_batch = value.ndim == reference.ndim > 1 and value.shape[1:] == reference.shape[1:]
            if is_batch and value.shape != reference.shape and not table.function:
                return "", "PyTorch's program feeds several samples at once"
            mistake = find_mistake(value, reference)
            if not mistake and value.shape != reference.shape:
                mistake = f"its shape is {list(value.shape)}, and not {list(reference.shape)}"
            if mistake or table.function:
                text = mistake or explain_input(value, reference)
                return f"gives another array than PyTorch's program feeds: {text}", ""
            return "", explain_input(value, reference)
        axis = table.layout.find("C")
        shows_colour = shows_colour or not np.array_equal(np.flip(value, axis), value)
    return "", PROVED if shows_colour else "the samples have no colours"


def _find_outside(table: Preprocess, array: Array) -> str:
    """Return how fed values are outside of the declared range, or ""."""
    if table.range is None or array.dtype.kind not in "fiu" or not array.size:
        return ""
    mean, std = np.array(table.mean or (0.0,)), np.array(table.std or (1.0,))
    low = float(((table.range[0] - mean) / std).min())
    high = float(((table.range[1] - mean) / std).max())
    margin = _OVERSHOOT * (high - low)
    lowest, highest = float(array.min()), float(array.max())
    if low - margin <= lowest and highest <= high + margin:
        return ""
    values = f"PyTorch's program feeds values from {lowest:.3g} to {highest:.3g}"
    return f"{values}, declared are {low:.3g} to {high:.3g}"


def _are_equal(table: Preprocess, value: Array, reference: Array) -> bool:
    """Return whether two arrays differ by rounding only; pictures are rounded to bytes."""
    if value.shape != reference.shape or "U" in (value.dtype.kind, reference.dtype.kind):
        return False
    first, second = (each.astype(np.float64) for each in (value, reference))
    error = float(np.abs(first - second).max(initial=0.0))
    if table.range is None:
        return error <= _EQUAL * max(1e-6, float(np.abs(second).max(initial=0.0)))
    step = (table.range[1] - table.range[0]) / _BYTE / min(table.std or (1.0,))
    return error <= _STEPS * step
