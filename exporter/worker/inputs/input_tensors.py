"""From an input set to the tensors of a call.

In: a `ModelSpec` and an `InputSet`. Out: tensors by name; optional inputs that a case leaves out
have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from exporter.core.import_object import load_attribute
from exporter.manifest import (
    Case,
    Fill,
    Input,
    ModelSpec,
)
from exporter.records.record import Stage
from exporter.worker.inputs.call import Tensors
from exporter.worker.inputs.input_sets import InputSet
from exporter.worker.inputs.inputs_from import draw_from_function, select_inputs_function
from exporter.worker.inputs.perturbation import mirror_values, perturb_values
from exporter.worker.inputs.tensor_reader import fit_to_shape, read_tensor
from exporter.worker.process.failure import Failure, wrap_errors


def get_torch_dtype(name: str) -> torch.dtype:
    """The dtype of a manifest's name."""
    found: torch.dtype = getattr(torch, name)
    return found


def draw_inputs(spec: ModelSpec, chosen: InputSet, root: Path) -> Tensors:
    """The inputs of one set, by name; the same seed gives the same values.

    Each input is drawn by itself, so that one more changes none of the others.

    Raises:
        Failure: of stage `source`, where a fill or a case does not fit its input.
    """
    function = select_inputs_function(spec, chosen)
    if function is not None:
        return draw_from_function(spec, chosen, function, root)
    case = chosen.case or Case(name="")
    python = _python_fills(spec, root)
    tensors: Tensors = {}
    with wrap_errors(Stage.SOURCE):
        for index, item in enumerate(spec.inputs):
            shape = tuple(chosen.sizes[dim] if isinstance(dim, str) else dim for dim in item.shape)
            if item.name in case.absent:
                continue
            fill = item.fill
            if item.name in case.values:
                fill = Fill(kind="value", value=case.values[item.name])
            elif item.name in case.files:
                fill = Fill(kind="file", file=case.files[item.name])
            seed = spec.seed + chosen.seed
            generator = torch.Generator().manual_seed(_seed(seed, index, is_other=False))
            if fill.kind == "file":
                is_own = chosen.kind in ("axis", "case") and item.name not in case.files
                stored = read_tensor((root / spec.manifest).parent, fill.file)
                tensor = fit_to_shape(stored, item, shape) if is_own else stored
            else:
                tensor = _filled(item, fill, shape, generator, python)
            if item.name == chosen.changed_input:
                generator.manual_seed(_seed(seed, index, is_other=True))
                redrawn = mirror_values(fill, tensor, generator)
                if redrawn is None and fill.is_random:
                    redrawn = _filled(item, fill, shape, generator, python)
                tensor = perturb_values(tensor, redrawn, chosen)
            if tuple(tensor.shape) != shape or tensor.dtype != get_torch_dtype(item.dtype):
                raise Failure(
                    Stage.SOURCE,
                    f"input '{item.name}' of set '{chosen.name}' came out as "
                    f"{tensor.dtype} {list(tensor.shape)}, declared {item.dtype} {list(shape)}"
                    f"{f' (from {fill.file})' if fill.kind == 'file' else ''}",
                )
            # Drawn on the CPU, so that the values are the same wherever the model is.
            tensors[item.name] = tensor.to(spec.export_device)
    return tensors


def _python_fills(spec: ModelSpec, root: Path) -> dict[str, Callable[..., torch.Tensor]]:
    folder = (root / spec.manifest).parent
    return {
        item.fill.python: load_attribute(item.fill.python, folder)
        for item in spec.inputs
        if item.fill.kind == "python"
    }


def _filled(
    item: Input,
    fill: Fill,
    shape: Sequence[int],
    generator: torch.Generator,
    python: Mapping[str, Callable[..., torch.Tensor]],
) -> torch.Tensor:
    dtype = get_torch_dtype(item.dtype)
    # Half precision has no generator of its own on every device: draw in float32 and round.
    drawn = dtype if dtype in (torch.float64, torch.complex128) else torch.float32
    if dtype.is_complex and dtype is not torch.complex128:
        drawn = torch.complex64
    if fill.kind == "python":
        return python[fill.python](tuple(shape), dtype, generator)
    if fill.is_random:
        return _random(fill, shape, generator, drawn).to(dtype)
    return _fixed(fill, shape, dtype)


def _seed(seed: int, index: int, *, is_other: bool) -> int:
    return (seed * 1009 + index) * 2 + is_other


def _random(
    fill: Fill, shape: Sequence[int], generator: torch.Generator, drawn: torch.dtype
) -> torch.Tensor:
    match fill.kind:
        case "normal":
            return torch.randn(shape, generator=generator, dtype=drawn)
        case "uniform":
            unit = torch.rand(shape, generator=generator, dtype=drawn)
            return unit * (fill.high - fill.low) + fill.low
        case "randint":
            low, high = int(fill.low), int(fill.high)
            return torch.randint(low, high, shape, generator=generator)
        case "bernoulli":
            chance = torch.rand(shape, generator=generator)
            return chance < fill.probability
        case _:
            raise ValueError(f"the fill '{fill.kind}' draws nothing")


def _fixed(fill: Fill, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    match fill.kind:
        case "zeros":
            return torch.zeros(shape, dtype=dtype)
        case "ones":
            return torch.ones(shape, dtype=dtype)
        case "arange":
            size = int(torch.Size(shape).numel())
            return torch.arange(size).reshape(tuple(shape)).to(dtype)
        case "value":
            value = torch.tensor(fill.value, dtype=dtype)
            return value.expand(tuple(shape)).clone() if value.ndim == 0 else value
        case _:
            raise ValueError(f"the fill '{fill.kind}' has no fixed values")
