"""The instruments from which a verdict learns, each tried on a known example in each worker.

A silent instrument looks like a model without faults, for example if a release of Python or torch
no longer reports an event. `docs/architecture.md` has the instruments that cannot be silent.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import torch

from exporter.records.record import KNOWN_EXAMPLE, TRACED_BRANCH
from exporter.worker.dependencies.known_example import list_unrecorded
from exporter.worker.dependencies.opened_files import OpenedFiles, VariableReads
from exporter.worker.export.convert import collect_tracer_warnings
from exporter.worker.model.source_loader import has_drawn
from exporter.worker.process.failure import format_error
from exporter.worker.process.followed_code import find_blindness
from exporter.worker.process.setup import use_seed
from exporter.worker.reference.operator_calls import FunctionMode, create_mode
from exporter.worker.torch_private.capture import defers_guards, patch_capture
from exporter.worker.torch_private.graph_operators import list_conditions
from exporter.worker.torch_private.internals import count_writes, read_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Instrument:
    """Something of Python or torch that reports what a model does."""

    silence: str
    """What is not done if it reports nothing."""
    reports: Callable[[], bool]
    """Whether it reports the known example."""
    is_for_captures: bool = False


def _reports_operators() -> bool:
    names = []

    def run(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        names.append(str(read_schema(operator).name))
        return operator(*args, **kwargs)

    with create_mode(run):
        torch.zeros(1) // 0.5
    return "aten::floor_divide" in names


def _reports_functions() -> bool:
    functions = []

    def run(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        functions.append(function)
        return function(*args, **kwargs)

    weight = torch.zeros(1, 1, 1)
    with FunctionMode(run):
        torch.conv1d(weight, weight)
    return torch.conv1d in functions


def _reports_traced_branches() -> bool:
    trace: Callable[..., Any] = torch.jit.trace  # torch has no types for it
    with redirect_stderr(StringIO()), collect_tracer_warnings(Path(__file__).parent) as notes:
        trace(lambda x: x + 1 if x.sum() > 0 else x, (torch.zeros(1),), check_trace=False)
    return any(TRACED_BRANCH in note for note in notes)


class _Divisible(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] % 3 == 0 else x


def _reports_conditions() -> bool:
    with patch_capture(dynamic=False):
        program = torch.export.export(
            _Divisible(),
            (torch.zeros(6),),
            dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
            strict=False,
            prefer_deferred_runtime_asserts_over_guards=defers_guards(),
        )
    return any("3" in text for text in list_conditions(program))


def _reports_writes() -> bool:
    tensor = torch.zeros(1)
    before = count_writes(tensor)
    tensor.add_(1)
    return count_writes(tensor) > before


def _reports_draws() -> bool:
    with use_seed(0):
        had_drawn = has_drawn(0)
        torch.rand(1)
        return has_drawn(0) and not had_drawn


INSTRUMENTS = (
    Instrument(
        silence="numbers and operators of the model were not searched",
        reports=_reports_operators,
    ),
    Instrument(
        silence="convolutions of large models were not computed in float64",
        reports=_reports_functions,
    ),
    Instrument(
        silence="branches that a trace keeps were not searched",
        reports=_reports_traced_branches,
    ),
    Instrument(
        silence="values that the model changes were not searched",
        reports=_reports_writes,
    ),
    Instrument(
        silence="weights without a file were not searched",
        reports=_reports_draws,
    ),
    Instrument(
        silence="sizes that break conditions of the capture were not searched",
        reports=_reports_conditions,
        is_for_captures=True,
    ),
)


def list_silent(*, has_captures: bool) -> tuple[str, ...]:
    """Return a text for each instrument that reports nothing here; usually none."""
    blindness = find_blindness()
    texts = [f"branches were not searched, because {blindness}"] if blindness else []
    for each in INSTRUMENTS:
        if each.is_for_captures and not has_captures:
            continue
        reason = f"this torch does not report those {KNOWN_EXAMPLE}"
        try:
            if each.reports():
                continue
        except Exception as error:  # a changed interface raises any exception
            reason = f"the run {KNOWN_EXAMPLE} fails: {format_error(error)}"
        texts.append(f"{each.silence}, because {reason}")
    return tuple(texts)


def list_silent_recorders(opened: OpenedFiles, read: VariableReads, root: Path) -> tuple[str, ...]:
    """Return a text for each kind of dependency that this worker would miss; usually none.

    The job then runs in each export, because nobody knows when its records are stale.
    """
    unrecorded = list_unrecorded(opened, read, root)
    for subject in unrecorded:
        opened.add_unrecorded(subject)
    return tuple(
        f"{each} were not recorded, because {reason}" for each, reason in unrecorded.items()
    )
