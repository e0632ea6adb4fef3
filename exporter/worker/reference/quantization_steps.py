"""The steps of quantized outputs, for a tolerance in multiples of them."""

from __future__ import annotations

from typing import Any

import torch

from exporter.checks.comparison.tolerance import is_float
from exporter.manifest import ModelSpec
from exporter.manifest.resolved.model import has_steps
from exporter.records.record import Stage
from exporter.worker.inputs.call import Tensors
from exporter.worker.process.failure import Failure, wrap_errors
from exporter.worker.reference.eager_run import BufferSnapshot, call_model, list_leaves
from exporter.worker.reference.operator_calls import create_mode
from exporter.worker.torch_private.internals import read_schema

#: Operators whose second argument is the scale of a tensor.
_WITH_SCALE = (
    "quantized_decomposed::dequantize_per_tensor",
    "aten::fake_quantize_per_tensor_affine",
    "aten::_fake_quantize_per_tensor_affine",
)


def measure_steps(model: Any, spec: ModelSpec, inputs: Tensors) -> tuple[float | None, ...]:
    """Return the step of each output, None if it is not dequantized from one scale.

    Returns:
        An empty tuple if no tolerance is in steps.

    Raises:
        Failure: At stage `source`, if an output with such a tolerance has no step.
    """
    # Only floats have a tolerance.
    required = [
        is_float(output.dtype) and has_steps(spec, index)
        for index, output in enumerate(spec.outputs)
    ]
    if not any(required):
        return ()
    log = _StepLog()
    with wrap_errors(Stage.SOURCE), BufferSnapshot(model), create_mode(log.run):
        leaves = list_leaves(call_model(model, spec, inputs), spec)
    steps = tuple(log.find_step(leaf) for leaf in leaves)
    for output, step, is_required in zip(spec.outputs, steps, required, strict=True):
        if is_required and step is None:
            message = "tolerance: `steps` needs one scale, and PyTorch does not dequantize output "
            message += f"'{output.name}' from one; set another `tolerance` for this output"
            raise Failure(Stage.SOURCE, message)
    return steps


class _StepLog:
    """The steps of the tensors of one run, by the addresses of their storages."""

    def __init__(self) -> None:
        self._steps: dict[int, float] = {}
        self._tensors: list[torch.Tensor] = []  # keeps the addresses in use

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator; a view has the step of its tensor, and a changed tensor has none."""
        result = func(*args, **kwargs)
        schema = read_schema(func)
        for argument, value in zip(schema.arguments, args, strict=False):
            is_written = argument.alias_info is not None and argument.alias_info.is_write
            if is_written and isinstance(value, torch.Tensor):
                self._steps.pop(_find_address(value), None)
        output = result[0] if isinstance(result, tuple) else result
        if isinstance(output, torch.Tensor):
            step = _read_step(str(schema.name), args)
            if step is not None:
                self._steps[_find_address(output)] = step
                self._tensors.append(output)
        return result

    def find_step(self, leaf: object) -> float | None:
        """Return the step of an output, or None."""
        return self._steps.get(_find_address(leaf)) if isinstance(leaf, torch.Tensor) else None


def _read_step(name: str, args: tuple[Any, ...]) -> float | None:
    if name == "aten::dequantize" and isinstance(args[0], torch.Tensor):
        affine = (torch.per_tensor_affine, torch.per_tensor_symmetric)
        is_affine = args[0].is_quantized and args[0].qscheme() in affine
        return float(args[0].q_scale()) if is_affine else None
    if name.startswith(_WITH_SCALE):
        return float(args[1])
    return None


def _find_address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
