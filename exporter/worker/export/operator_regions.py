"""Operators whose files are wrong in a region of their inputs, and draws that reach it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import torch

from exporter.records.record import Route
from exporter.worker.export.attempts import OpsetExport
from exporter.worker.inputs.input_sets import InputSet, create_draw_set
from exporter.worker.inputs.input_tensors import draw_inputs
from exporter.worker.process.failure import Failure
from exporter.worker.reference.eager_run import BufferSnapshot, run_model
from exporter.worker.reference.operator_calls import create_mode
from exporter.worker.torch_private import internals
from exporter.worker.torch_private.internals import read_schema

#: Draws until one reveals the operator.
_DRAWS = 64
#: The relative difference of outputs that no rounding hides.
_DIFFERENCE = 1e-3


def _shift_right(number: Any, bits: Any) -> Any:
    return torch.div(number, 2**bits, rounding_mode="trunc")


def _round_correction(function: Any, *args: Any, correction: Any = None, **kwargs: Any) -> Any:
    if correction is None or correction == int(correction):
        return None
    return function(*args, correction=int(correction), **kwargs)


def _pool(function: Any, *args: Any, divisor_override: int | None = None) -> Any:
    has_divisor = divisor_override is not None or (len(args) > 6 and args[6] is not None)
    return function(*args[:6]) if has_divisor else None


_BOTH = ("torchscript", "dynamo")
#: The exporters with the fault, the region, and the operator as the file computes it, by the names
#: of PyTorch's operators: None if these arguments are right in each file, on any numbers.
#: `reports/OPERATORS.md` measures them.
_REGIONS: Mapping[str, tuple[tuple[str, ...], str, Callable[..., Any]]] = {
    "floor_divide": (_BOTH[:1], "negative numbers", partial(torch.div, rounding_mode="trunc")),
    "__rshift__": (_BOTH[:1], "negative numbers", _shift_right),
    "bitwise_right_shift": (_BOTH[:1], "negative numbers", _shift_right),
    "special_log_ndtr": (_BOTH[1:], "low numbers", lambda x: torch.special.ndtr(x).log()),
    "special_erfcx": (_BOTH[1:], "large numbers", lambda x: torch.exp(x * x) * torch.erfc(x)),
    **{
        name: (_BOTH[:1], "a fraction as correction", partial(_round_correction, function))
        for name in ("std", "var", "std_mean", "var_mean")
        if (function := getattr(torch, name))
    },
    **{
        f"avg_pool{rank}d": (_BOTH, "divisor_override", partial(_pool, function))
        for rank in (2, 3)
        if (function := getattr(torch.ops.aten, f"avg_pool{rank}d"))
    },
}


def choose_revealing_draws(
    opset_export: OpsetExport, route: Route, operators: Collection[str]
) -> tuple[list[InputSet], list[str]]:
    """Return a draw for each operator with a region that the declared inputs do not reveal.

    The file is compared with PyTorch on each draw. So a fixed exporter stays green, and a region
    that no input reaches is no failure.

    `operators`: The operators: `aten::std` in a traced graph, `aten.std.correction` captured.

    Returns:
        The draws, and the operators that no draw reveals.
    """
    names = {name.replace("::", ".").split(".")[1] for name in operators if "aten" in name}
    if not operators:  # an untested torch does not show those of a trace: a run shows them
        names = {*_REGIONS}
    draws: list[InputSet] = []
    hidden = []
    for name in sorted(names & _REGIONS.keys()):
        exporters, words, compute = _REGIONS[name]
        if route.exporter not in exporters:
            continue
        for chosen in (create_draw_set(opset_export.spec, seed) for seed in range(_DRAWS)):
            is_called, is_revealed = _compute_as_file(opset_export, chosen, name, compute)
            if is_revealed and chosen.seed and chosen not in draws:
                draws.append(chosen)
            if is_revealed or not is_called:  # a traced graph also computes sizes
                break
        else:
            hidden.append(f"{name} of {words}: no draw reaches it with another output")
    return draws, hidden


def _compute_as_file(
    opset_export: OpsetExport, chosen: InputSet, name: str, compute: Callable[..., Any]
) -> tuple[bool, bool]:
    """Return whether a run calls the operator, and whether the file would have other outputs."""
    inputs = draw_inputs(opset_export.spec, chosen, opset_export.root)
    is_called = is_reached = False

    def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        nonlocal is_called, is_reached
        returned = func(*args, **kwargs)
        if str(read_schema(func).name) != f"aten::{name}":
            return returned
        other = compute(*args, **kwargs)
        if other is None:
            return returned
        is_called = True
        is_reached = is_reached or _differ(returned, other)
        return other

    buffers = BufferSnapshot(opset_export.model)
    try:
        with buffers, create_mode(run):
            outputs = run_model(opset_export.model, opset_export.spec, inputs)
        if not is_reached:
            return is_called, False
        with buffers:
            return is_called, _differ(
                run_model(opset_export.model, opset_export.spec, inputs), outputs
            )
    except (Failure, RuntimeError, TypeError):  # an overload with other arguments
        return is_called, False


def _differ(first: Any, second: Any) -> bool:
    pairs = zip(internals.tree_leaves(first), internals.tree_leaves(second), strict=True)
    return any(
        a.shape != b.shape
        or not torch.allclose(a.double(), b.double(), rtol=_DIFFERENCE, atol=0, equal_nan=True)
        for a, b in pairs
        if isinstance(a, torch.Tensor) and not a.is_complex()
    )
