"""Draw the tensors of one input set."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from exporter.core.import_object import load_attribute
from exporter.manifest import Case, Fill, Input, ModelSpec
from exporter.records.record import Stage
from exporter.worker.inputs import data_files, inputs_from
from exporter.worker.inputs.call import Tensors
from exporter.worker.inputs.input_sets import InputSet, select_inputs_function
from exporter.worker.inputs.other_values import mirror_values, perturb_values
from exporter.worker.process.failure import Failure, wrap_errors

#: A normal distribution has no end. One of ten billion draws is above 6.5, which `relu6` clips.
_NORMAL_END = 6.5
#: Numbers that models compare with, halves that are rounded, and the first special tokens.
_FLOATS, _INTEGERS = (0, 1, 0.5, 2.5), (0, 1, 2)
#: The share of the elements that get a special value, unless the ends need more.
_SHARE = 0.5
#: Multiples of a number of the model, odd ones first: `0.9 // 0.3` is 2, and 0.9 / 0.3 is 3.
_MULTIPLES = tuple(sign * n for first in (1, 2) for n in range(first, 17, 2) for sign in (1, -1))


def set_special_values(
    item: Input, fill: Fill, declared: torch.Tensor, chosen: InputSet, generator: torch.Generator
) -> torch.Tensor:
    """Return the declared values with special ones among them, or special values only.

    A model may treat the lowest token, the exact value 0.0, an input without negative numbers or a
    mask without any True in a special way. A trace keeps the branch of its example, and draws
    within the range do not reveal it.

    All elements of a boolean become equal, if the fill can draw them. Integers of 0 and 1 become
    all 1 only, because a mask that allows no element has no defined result.
    """
    special = chosen.special
    match fill.kind:
        case "bernoulli":
            if special == "highest" and fill.probability > 0:
                return torch.ones_like(declared)
            if special == "lowest" and fill.probability < 1 and item.dtype == "bool":
                return torch.zeros_like(declared)
            return declared
        case "mask" | "padding" | "lengths_of":
            return declared if special in ("constant", "lowest") else _allow_all(fill, declared)
        case "normal" | "uniform" | "randint":
            return _set_numbers(fill, declared, chosen, generator)
        case _:
            return declared


def _set_numbers(
    fill: Fill, declared: torch.Tensor, chosen: InputSet, generator: torch.Generator
) -> torch.Tensor:
    """Return the declared numbers with special ones among them, as `chosen.special` says."""
    low, high = _find_range(fill)
    special = chosen.special
    candidates: Iterable[float] = _INTEGERS if fill.kind == "randint" else _FLOATS
    if special == "constant":
        inside = [each for each in candidates if low <= each <= high and each != high]
        if low < 0 and inside:
            return torch.full_like(declared, inside[0])
        return torch.full_like(declared, low)
    if special == "rising":
        return _draw_rising(fill, declared)
    if special == "multiples":
        is_float = fill.kind != "randint"
        usable = [each for each in chosen.numbers if is_float or each == int(each)]
        multiples = [n * each for n in _MULTIPLES for each in usable]
        values = _spread([each for each in multiples if low <= each <= high], declared, generator)
    else:
        ends = [high]
        if special == "ends":
            ends = [low, high]
        elif special == "lowest":
            ends = [low]
        inside = [each for each in candidates if low <= each <= high and each not in ends]
        count = max(len(ends), int(declared.numel() * _SHARE))
        values = _spread([*ends, *inside][:count], declared, generator)
    # The last of several rows is negative, if the fill can draw that.
    rows = values.shape[0] if values.ndim > 1 else 0
    if fill.kind == "normal" and rows > 1 and not values.is_complex() and not chosen.numbers:
        values[-1] = -values[-1].abs()
    return values


def _find_range(fill: Fill) -> tuple[float, float]:
    """Return the smallest and the largest number that the fill can draw."""
    if fill.kind == "normal":
        return -_NORMAL_END, _NORMAL_END
    if fill.kind == "randint":
        return int(fill.low), int(fill.high) - 1
    return fill.low, fill.high


def _draw_rising(fill: Fill, declared: torch.Tensor) -> torch.Tensor:
    """Return rows that rise over the range of the fill.

    Two rows after each other are equal, also those of two inputs: their distance is 0. A file may
    compute it as a difference of sums that rounding makes unequal: too large for the first two
    rows, and negative for the next two.
    """
    if declared.is_complex() or not declared.ndim:
        return declared
    first, last = _find_range(fill)
    if fill.kind == "normal":
        first, last = 0.0, last / 2
    length = declared.shape[-1]
    is_rounded = declared.is_floating_point() and 1 < length <= _LONGEST_SEARCH
    rows: dict[int, torch.Tensor] = {}
    for seed in range(_RISING_DRAWS if is_rounded else 1):
        shares = torch.rand(length, generator=torch.Generator().manual_seed(seed))
        steps = (torch.arange(length) + 0.05 + 0.9 * shares) / max(length, 1)
        row = (first + (last - first) * steps).to(declared.dtype)
        rows.setdefault(_find_rounding(row) if is_rounded else 0, row)
        if {1, -1} <= rows.keys():
            break
    usual = next(iter(rows.values()))
    pair = torch.stack([rows.get(1, usual), rows.get(-1, usual)])
    count = declared.shape[-2] if declared.ndim > 1 else 1
    values = pair[torch.arange(count) // 2 % 2]
    return values.expand(declared.shape).clone() if declared.ndim > 1 else values[0].clone()


#: Draws that are tried for rows whose sums of squares are rounded in both directions, and the
#: longest of such rows.
_RISING_DRAWS, _LONGEST_SEARCH = 256, 1024
#: The numbers of partial sums in which runtimes add.
_LANES = (1, 2, 4, 8, 16)


def _find_rounding(row: torch.Tensor) -> int:
    """Compare the sum of squares with the product of a row and itself.

    Returns:
        1 or -1 if the sum is larger or smaller in each usual order, else 0.
    """
    numbers = row.to(torch.float32).numpy()
    product = np.float32(0)
    for number in numbers:
        # A matrix product rounds each term once.
        product = np.float32(float(number) * float(number) + float(product))
    squares = numbers * numbers
    signs = set()
    for lanes in _LANES:
        parts = np.pad(squares, (0, -len(squares) % lanes)).reshape(-1, lanes)
        total = np.add.accumulate(np.add.accumulate(parts, 0)[-1])[-1]
        signs.add(int(np.sign(total - product)))
    return signs.pop() if len(signs) == 1 else 0


def _spread(
    numbers: Sequence[float], declared: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """Return the declared values with each number at a place that the generator draws."""
    values = declared.flatten().clone()
    order = torch.randperm(values.numel(), generator=generator).tolist()
    for index, number in zip(order, numbers, strict=False):
        values[index] = number
    return values.reshape(declared.shape)


def _allow_all(fill: Fill, declared: torch.Tensor) -> torch.Tensor:
    """Return a mask without padding, or lengths that are all the largest one."""
    if not declared.numel():
        return declared
    return torch.full_like(
        declared, int(declared.min() if fill.kind == "padding" else declared.max())
    )


def draw_lengths(shape: Sequence[int], size: int, generator: torch.Generator) -> torch.Tensor:
    """Return integers from 1 to `size`; of several, one is `size` and the others are smaller."""
    count = math.prod(shape)
    if count <= 1 or size <= 1:
        end = size + 1 if size else 1
        return torch.randint(min(size, 1), end, tuple(shape), generator=generator)
    lengths = torch.randint(1, size, (count,), generator=generator)
    lengths[int(torch.randint(0, count, (), generator=generator))] = size
    return lengths.reshape(tuple(shape))


def pad_rows(mask: torch.Tensor) -> torch.Tensor:
    """Return the mask with only the first element of each row, and a complete first row."""
    rows = torch.zeros_like(mask)
    rows[..., :1] = mask[..., :1]
    rows[0] = mask[0]
    return rows


def draw_mask(side: str, shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """Return True for allowed elements; the last axis of the shape is a row.

    `side`: The side of the padding: `left`, `right` or `random`.
    """
    *rows, size = shape
    if not math.prod(shape):
        return torch.ones(tuple(shape), dtype=torch.bool)
    if side == "random":
        mask = torch.rand(tuple(shape), generator=generator) < 0.5
        allowed = torch.randint(0, size, (*rows, 1), generator=generator)
        return mask.scatter(-1, allowed, True)
    lengths = draw_lengths(rows, size, generator).unsqueeze(-1)
    positions = torch.arange(size)
    return positions < lengths if side == "right" else positions >= size - lengths


#: Draws of other values before the declared ones are kept.
_DRAWS = 16


def get_torch_dtype(name: str) -> torch.dtype:
    """Return PyTorch's dtype for a name in a manifest."""
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def draw_inputs(spec: ModelSpec, chosen: InputSet, root: Path) -> Tensors:
    """Return the inputs of one set, by name; the same seed gives the same values.

    Each input has its own generator, so a further input does not change the others.

    Raises:
        Failure: Stage `source`, if a fill or a case does not fit its input.
    """
    function = select_inputs_function(spec, chosen)
    returned = inputs_from.draw_from_function(spec, chosen, function, root) if function else {}
    case = chosen.case or Case(name="")
    if case.inputs_from:
        return returned
    sizes = inputs_from.measure_axes(spec, chosen, returned)
    folder = (root / spec.manifest).parent
    tensors: Tensors = {}
    with wrap_errors(Stage.SOURCE):
        for index, item in enumerate(spec.inputs):
            if item.name in case.absent:
                continue
            fill = case.fills.get(item.name, item.fill).bind(sizes)
            if fill.kind == "function":
                tensors[item.name] = returned[item.name]
                continue
            shape = tuple(sizes[dim] if isinstance(dim, str) else dim for dim in item.shape)
            seed = ((spec.seed + chosen.seed) * 1009 + index) * 2
            generator = torch.Generator().manual_seed(seed)
            draw = partial(_fill_tensor, item, fill, shape, generator, folder, sizes)
            tensor = draw()
            if fill.kind == "file" and item.name not in case.fills:
                tensor = data_files.fit_to_shape(tensor, item, shape)
            if chosen.kind == "masked" and item.name == chosen.changed_input:
                tensor = torch.full_like(tensor, fill.masked_value or 0)
            elif chosen.is_padded and item.name == chosen.changed_input:
                tensor = pad_rows(tensor)
            elif item.name == chosen.changed_input:
                generator.manual_seed(seed + 1)
                changed = mirror_values(fill, tensor, generator)
                if changed is None and fill.is_random:
                    # The first of a few draws that differs: a short mask has few values.
                    draws = (draw() for _ in range(_DRAWS))
                    others = (each for each in draws if not torch.equal(each, tensor))
                    changed = next(others, None if fill.kind == "python" else tensor)
                tensor = perturb_values(tensor, changed, chosen)
            elif chosen.special:
                generator.manual_seed(seed + 1)
                tensor = set_special_values(item, fill, tensor, chosen, generator)
            if tuple(tensor.shape) != shape or tensor.dtype != get_torch_dtype(item.dtype):
                raise Failure(
                    Stage.SOURCE,
                    f"input '{item.name}' of set '{chosen.name}': the values are "
                    f"{tensor.dtype} {list(tensor.shape)}, declared {item.dtype} {list(shape)}"
                    f"{f' (from {fill.file})' if fill.file else ''}",
                )
            # The generator is on the CPU, so the values do not depend on the export device.
            tensors[item.name] = tensor.to(spec.export_device)
    return tensors


def _fill_tensor(
    item: Input,
    fill: Fill,
    shape: Sequence[int],
    generator: torch.Generator,
    folder: Path,
    sizes: Mapping[str, int],
) -> torch.Tensor:
    dtype = get_torch_dtype(item.dtype)
    # Half precision has no generator on some devices: draw in float32 and round.
    half = torch.complex64 if dtype.is_complex else torch.float32
    drawn = dtype if dtype in (torch.float64, torch.complex128) else half
    match fill.kind:
        case "python":
            custom: torch.Tensor = load_attribute(fill.python, folder)(
                tuple(shape), dtype, generator
            )
            return custom
        case "file" | "image":
            stored: torch.Tensor = (
                data_files.read_picture(folder, fill, shape, dtype)
                if fill.kind == "image"
                else data_files.read_tensor(folder, fill.file)
            )
            return stored
        case "normal":
            values = torch.randn(shape, generator=generator, dtype=drawn)
        case "uniform":
            unit = torch.rand(shape, generator=generator, dtype=drawn)
            values = unit * (fill.high - fill.low) + fill.low
        case "randint":
            values = torch.randint(int(fill.low), int(fill.high), shape, generator=generator)
        case "bernoulli":
            values = torch.rand(shape, generator=generator) < fill.probability
        case "mask" | "padding" | "lengths_of":
            values = (
                draw_lengths(shape, sizes[fill.axis], generator)
                if fill.kind == "lengths_of"
                else draw_mask(fill.side, shape, generator) ^ (fill.kind == "padding")
            )
        case "zeros" | "ones":
            values = torch.full(tuple(shape), int(fill.kind == "ones"), dtype=dtype)
        case "arange":
            values = torch.arange(torch.Size(shape).numel()).reshape(tuple(shape))
        case "value":
            values = torch.tensor(fill.value, dtype=dtype)
            values = values.expand(tuple(shape)).clone() if values.ndim == 0 else values
    return values.to(dtype)
