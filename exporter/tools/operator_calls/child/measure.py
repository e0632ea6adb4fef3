"""The measurement of functions, each call in a forked process."""

from __future__ import annotations

import gc
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.forked_calls import CallLimits, Returned, call_each_in_forks, call_in_fork
from exporter.core.errors import suggest_nearest
from exporter.core.files import write_text
from exporter.tools.operator_calls.child.call_export import export_call
from exporter.tools.operator_calls.child.call_samples import (
    SelectedCall,
    SelectedCalls,
    draw_samples,
    select_calls,
)
from exporter.tools.operator_calls.function_files import locate_function
from exporter.tools.operator_calls.protocol import (
    CallOutcome,
    CallResult,
    MeasuredCall,
    MeasureRequest,
    MeasureResponse,
    TestedFunction,
)
from exporter.worker.torch_private.export_speedups import speed_up_conversion
from exporter.worker.torch_private.opinfo import (
    FunctionSample,
    SampledFunction,
    list_sampled_functions,
)
from exporter.worker.torch_private.registries import list_aten_operators, split_operator_name

#: One call of one exporter at its opsets; most need less than a second.
_LIMITS = CallLimits(cpu_seconds=40, seconds=120, memory=8 << 30)


@dataclass(frozen=True, slots=True)
class _CallTask:
    """One call by one exporter."""

    call: SelectedCall
    exporter: str
    opsets: tuple[int, ...]


def measure_functions(
    request: MeasureRequest, on_progress: Callable[[int, int], None]
) -> MeasureResponse:
    """Measure all selected functions that have no file yet.

    Raises:
        ImportError: if torch's tests cannot be imported.
    """
    functions = list_sampled_functions()
    problems = tuple(
        f"{name}: torch's tests have no such function{suggest_nearest(name, functions)}"
        for name in request.functions
        if name not in functions
    )
    if problems:
        return MeasureResponse(functions=(), problems=problems)
    names = [name for name in functions if not request.functions or name in request.functions]
    packets = frozenset(split_operator_name(operator)[0] for operator in list_aten_operators())
    folder = Path(request.folder)
    missing = [name for name in names if not locate_function(folder, name).is_file()]
    with _silence_torch(), speed_up_conversion():
        if missing:
            _warm_up(request)
        for done, name in enumerate(missing, start=1):
            tested = _measure_function(functions[name], packets, request)
            write_text(locate_function(folder, name), tested.to_json(indent=None))
            on_progress(done, len(missing))
    return MeasureResponse(functions=tuple(names))


@contextmanager
def _silence_torch() -> Iterator[None]:
    """Disable warnings and logs: torch logs a traceback for each refused call."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    gc.freeze()  # collections in forks need not visit the objects of torch
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        gc.unfreeze()
        logging.disable(before)


def _warm_up(request: MeasureRequest) -> None:
    """Export a call, so that forks have the modules and tables of both exporters."""
    sample = FunctionSample((torch.ones(2),), {})
    export_call("torchscript", torch.relu, sample, request.torchscript)
    export_call("dynamo", torch.relu, sample, request.dynamo)


def _measure_function(
    function: SampledFunction, packets: frozenset[str], request: MeasureRequest
) -> TestedFunction:
    selected = call_in_fork(lambda: select_calls(function, packets), _LIMITS)
    if not isinstance(selected, Returned):
        return TestedFunction(name=function.name, problem=f"{selected.kind}: {selected.message}")
    selection: SelectedCalls = selected.value
    exporters = {"torchscript": request.torchscript, "dynamo": request.dynamo}
    tasks = [
        _CallTask(call, exporter, opsets)
        for call in selection.calls
        for exporter, opsets in exporters.items()
    ]
    samples: list[FunctionSample] = []

    def run(task: _CallTask) -> dict[int, CallOutcome]:
        if not samples:  # once in each fork
            samples.extend(draw_samples(function))
        return export_call(task.exporter, function.function, samples[task.call.index], task.opsets)

    outcomes: dict[int, dict[str, CallOutcome]] = {call.index: {} for call in selection.calls}
    for task, result in zip(tasks, call_each_in_forks(run, tasks, _LIMITS), strict=True):
        if isinstance(result, Returned):
            by_opset = result.value
        else:
            message = f"{result.kind}: {result.message}"
            crash = CallOutcome(result=CallResult.CRASH, message=message)
            by_opset = dict.fromkeys(task.opsets, crash)
        for opset, outcome in by_opset.items():
            outcomes[task.call.index][f"{task.exporter} {opset}"] = outcome
    return TestedFunction(
        name=function.name,
        calls=tuple(
            MeasuredCall(
                operator=call.operator,
                text=call.text,
                features=call.features,
                outcomes=outcomes[call.index],
            )
            for call in selection.calls
        ),
        random=selection.random,
        other=selection.other,
    )
