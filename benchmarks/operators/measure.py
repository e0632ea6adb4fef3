"""The measurement of functions, each call in a forked process."""

from __future__ import annotations

import gc
import hashlib
import logging
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import torch

from benchmarks.forked_calls import CallLimits, Returned, call_each_in_forks, call_in_fork
from benchmarks.operators.call_export import export_call
from benchmarks.operators.call_samples import (
    SelectedCall,
    SelectedCalls,
    draw_samples,
    select_calls,
)
from benchmarks.operators.opinfo import (
    FunctionSample,
    SampledFunction,
    list_packets,
    list_sampled_functions,
)
from benchmarks.operators.results import CallOutcome, CallResult, MeasuredCall, TestedFunction
from exporter.cache.states import read_package_state
from exporter.core.errors import suggest_nearest
from exporter.core.files import write_text
from exporter.manifest.syntax.values import NATIVE_OPSETS
from exporter.worker.torch_private.export_speedups import speed_up_conversion

#: Increase it if calls are selected, exported or compared in another way.
_METHOD = 1
_PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime")
#: The first opset that both exporters write.
_COMMON_OPSET = 18
OPSETS = {name: (_COMMON_OPSET, last) for name, (_, last) in NATIVE_OPSETS.items()}
COLUMNS = [f"{name} {opset}" for name, opsets in OPSETS.items() for opset in opsets]
#: One call of one exporter at its opsets; most need less than a second.
_LIMITS = CallLimits(cpu_seconds=40, seconds=120, memory=8 << 30)


@dataclass(frozen=True, slots=True)
class _CallTask:
    """One call by one exporter."""

    call: SelectedCall
    exporter: str
    opsets: tuple[int, ...]


def measure_functions(
    names: Sequence[str], folder: Path, on_progress: Callable[[int, int], None]
) -> list[TestedFunction]:
    """Measure functions that the folder has no results of for the installed tools.

    Args:
        names: Functions of torch's tests, such as `nn.functional.conv2d`; empty: all.
        folder: The folder of the results.
        on_progress: Called with the number of finished functions, and of all that run.

    Raises:
        ImportError: If torch's tests cannot be imported.
        ValueError: If torch's tests have no function of a name.
    """
    functions = list_sampled_functions()
    for name in names:
        if name not in functions:
            hint = suggest_nearest(name, functions)
            raise ValueError(f"{name}: torch's tests have no such function{hint}")
    paths = {
        name: _prepare_folder(folder) / f"{quote(name, safe='')}.json"
        for name in names or functions
    }
    packets = list_packets()
    missing = [name for name, path in paths.items() if not path.is_file()]
    with _silence_torch(), speed_up_conversion():
        if missing:
            _warm_up()
        for done, name in enumerate(missing, start=1):
            tested = _measure_function(functions[name], packets)
            write_text(paths[name], tested.to_json(indent=None))
            on_progress(done, len(missing))
    return [TestedFunction.model_validate_json(path.read_bytes()) for path in paths.values()]


def _prepare_folder(folder: Path) -> Path:
    """Return the folder of the calls with the installed tools, and remove those of others."""
    state = [f"{_METHOD} {OPSETS}", *(read_package_state(name) for name in _PACKAGES)]
    digest = hashlib.sha256("\n".join(state).encode()).hexdigest()
    current = folder / f"calls-{digest[:16]}"
    for old in folder.glob("calls-*"):
        if old != current:
            shutil.rmtree(old, ignore_errors=True)
    current.mkdir(parents=True, exist_ok=True)
    return current


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


def _warm_up() -> None:
    """Export a call, so that forks have the modules and tables of both exporters."""
    sample = FunctionSample((torch.ones(2),), {})
    for exporter, opsets in OPSETS.items():
        export_call(exporter, torch.relu, sample, opsets)


def _measure_function(function: SampledFunction, packets: frozenset[str]) -> TestedFunction:
    selected = call_in_fork(lambda: select_calls(function, packets), _LIMITS)
    if not isinstance(selected, Returned):
        return TestedFunction(name=function.name, problem=f"{selected.kind}: {selected.message}")
    selection: SelectedCalls = selected.value
    tasks = [
        _CallTask(call, exporter, opsets)
        for call in selection.calls
        for exporter, opsets in OPSETS.items()
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
