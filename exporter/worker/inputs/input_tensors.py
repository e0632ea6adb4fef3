"""From an input set to the tensors of a call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch

from exporter.core.import_object import load_attribute
from exporter.manifest import Case, Fill, Input, ModelSpec
from exporter.records.record import Stage
from exporter.worker.inputs.call import Tensors
from exporter.worker.inputs.file_readers import fit_to_shape, read_fill
from exporter.worker.inputs.input_sets import InputSet
from exporter.worker.inputs.inputs_from import (
    draw_from_function,
    measure_axes,
    select_inputs_function,
)
from exporter.worker.inputs.perturbation import mirror_values, perturb_values
from exporter.worker.inputs.special_values import set_special_values
from exporter.worker.process.failure import Failure, wrap_errors


def draw_mask_fill(
    fill: Fill, shape: Sequence[int], sizes: Mapping[str, int], generator: torch.Generator
) -> torch.Tensor:
    """Return the values of one of the fills of this module.

    Args:
        fill: The fill.
        shape: The shape of the input.
        sizes: The size of each axis.
        generator: The source of random numbers.
    """
    if fill.kind == "lengths_of":
        return draw_lengths(shape, sizes[fill.axis], generator)
    mask = draw_mask(fill.side, shape, generator)
    return mask if fill.kind == "mask" else ~mask


def draw_lengths(shape: Sequence[int], size: int, generator: torch.Generator) -> torch.Tensor:
    """Return integers from 1 to `size`; of several, one is `size` and the others are smaller.

    Returns:
        Zeros if the size is 0.
    """
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

    Args:
        side: The side of the padding: `left`, `right` or `random`.
        shape: The shape of the mask.
        generator: The source of random numbers.
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
    returned = draw_from_function(spec, chosen, function, root) if function else {}
    case = chosen.case or Case(name="")
    if case.inputs_from:
        return returned
    sizes = measure_axes(spec, chosen, returned)
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
            is_resized = chosen.kind in ("axis", "case") and item.name not in case.fills
            if fill.kind == "file" and is_resized:
                tensor = fit_to_shape(tensor, item, shape)
            if chosen.kind == "masked" and item.name == chosen.changed_input:
                tensor = torch.full_like(tensor, fill.masked_value or 0)
            elif chosen.is_padded and item.name == chosen.changed_input:
                tensor = pad_rows(tensor)
            elif item.name == chosen.changed_input:
                generator.manual_seed(seed + 1)
                changed = mirror_values(fill, tensor, generator)
                if changed is None and fill.is_random:
                    changed = _draw_other_values(tensor, draw)
                tensor = perturb_values(tensor, changed, chosen)
            elif chosen.special:
                generator.manual_seed(seed + 1)
                tensor = set_special_values(item, fill, tensor, chosen.special, generator)
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


def _draw_other_values(declared: torch.Tensor, draw: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Return the first of a few draws that differs: a short mask has few values."""
    draws = (draw() for _ in range(_DRAWS))
    return next((tensor for tensor in draws if not torch.equal(tensor, declared)), declared)


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
    drawn = dtype if dtype in (torch.float64, torch.complex128) else torch.float32
    if dtype.is_complex and dtype is not torch.complex128:
        drawn = torch.complex64
    match fill.kind:
        case "python":
            custom: torch.Tensor = load_attribute(fill.python, folder)(
                tuple(shape), dtype, generator
            )
            return custom
        case "file" | "image":
            return read_fill(folder, fill, shape, dtype)
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
            values = draw_mask_fill(fill, shape, sizes, generator)
        case "zeros" | "ones":
            values = torch.full(tuple(shape), int(fill.kind == "ones"), dtype=dtype)
        case "arange":
            values = torch.arange(torch.Size(shape).numel()).reshape(tuple(shape))
        case "value":
            values = torch.tensor(fill.value, dtype=dtype)
            values = values.expand(tuple(shape)).clone() if values.ndim == 0 else values
    return values.to(dtype)
