"""From an input set to the tensors of a call."""

from __future__ import annotations

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
from exporter.worker.inputs.mask_fills import draw_mask_fill, pad_rows
from exporter.worker.inputs.perturbation import mirror_values, perturb_values
from exporter.worker.inputs.special_values import set_special_values
from exporter.worker.process.failure import Failure, wrap_errors

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
