"""The process of a caller: it runs the program of the project on each sample, without PyTorch.

It records what a Python caller feeds to a session of ONNX Runtime and gets from it, so that a
difference can be explained.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from exporter.core.files import hash_file
from exporter.core.import_object import load_attribute
from exporter.manifest import Caller, ModelSpec
from exporter.processes.lifetime import adopt_orphans, list_descendants
from exporter.worker.callers.preprocessing import PREPARED, prepare_inputs
from exporter.worker.callers.results import Values, list_values, write_values
from exporter.worker.callers.samples import read_samples
from exporter.worker.process.failure import format_message
from exporter.worker.process.observed_call import CallReport, observe_call

#: PyTorch and the packages that import it.
_TRAINING = frozenset({"torch", "torchvision", "torchaudio", "lightning", "pytorch_lightning"})
_STDERR_BYTES = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRun:
    """The run of a caller on one sample."""

    name: str
    problem: str = ""
    """How the caller failed: `raises ValueError: ... at serve.py:7`; "" if it did not."""
    lines: tuple[str, ...] = ()
    """The line of each run of a session: `serve.py:7`."""
    is_other_file: bool = False
    """Whether the sessions that run have other files."""
    differs: str = ""
    """How a second run on the sample, after all others, differs; "" if it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerReport:
    """The runs of a caller, and all that they depend on."""

    call: CallReport
    runs: tuple[SampleRun, ...]
    unprepared: dict[str, str] = field(default_factory=dict)
    """The reasons why `preprocess` of an input gives no array, by input."""


@dataclass(slots=True)
class _Recorder:
    """The runs of sessions during one sample."""

    path: Path
    root: Path
    runs: list[tuple[str, Values, Values]] = field(default_factory=list)
    """The line, the arrays that were fed, and the outputs; no outputs if the runtime rejected
    them."""
    other_runs: int = 0
    """The runs of other files, such as one that resizes pictures."""


def run_caller(
    root: Path,
    spec: ModelSpec,
    number: int,
    file: Path,
    samples: Path,
    results: Path,
    is_short: bool,
) -> CallerReport:
    """Run a caller of an entry on all samples, and write its results.

    `samples`: The file with the samples.
    `results`: The folder of a file for each sample: the result, then fed arrays and outputs of each
    run of a session in turn; and of a file with the inputs that `preprocess` declares.
    `is_short`: Run only the first sample.
    """
    caller = spec.callers[number]
    folder = (root / spec.manifest).parent
    runs: list[SampleRun] = []
    unprepared: dict[str, str] = {}

    def call() -> None:
        _hide_training_packages()
        recorder = _Recorder(file, root)
        _record_sessions(recorder)
        items = read_samples(samples)[: 1 if is_short else None]
        predict = _load_program(caller, folder, file, results)
        first: list[Values | None] = []
        for index, (name, sample) in enumerate(items):
            values, run = _run_sample(predict, name, sample, recorder)
            tables = [values or {}, *(each for run in recorder.runs for each in run[1:])]
            write_values(results / f"{index}.npz", tables)
            first.append(values)
            runs.append(run)
        if is_short:
            return
        for index, (_, sample) in enumerate(items):
            prepared, reasons = prepare_inputs(spec, folder, sample)
            unprepared.update(reasons)
            write_values(results / PREPARED / f"{index}.npz", [prepared])
        if any(run.problem for run in runs):
            return
        # The samples in another order: the result for one must not depend on the others.
        for index, (name, sample) in reversed([*enumerate(items)]):
            values, run = _run_sample(predict, name, sample, recorder)
            problem = run.problem or _compare(first[index] or {}, values or {})
            runs[index] = SampleRun(
                name=name,
                lines=runs[index].lines,
                is_other_file=runs[index].is_other_file,
                differs=problem,
            )

    adopt_orphans()
    report = observe_call(root, call)
    # A service that still runs has the pipe of this process, whose end its parent waits for.
    for pid in list_descendants(os.getpid()):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return CallerReport(call=report, runs=tuple(runs), unprepared=unprepared)


def _run_sample(
    predict: Callable[[object], object], name: str, sample: object, recorder: _Recorder
) -> tuple[Values | None, SampleRun]:
    recorder.runs.clear()
    recorder.other_runs = 0
    values, problem = None, ""
    try:
        # A program may write into its sample, which it gets once.
        values = list_values(predict(copy.deepcopy(sample)))
        if not values:
            problem = "returns nothing"
    except Exception as error:
        line = _find_line(error, recorder.root)
        text = str(error).strip().partition("\n")[0]
        suffix = f" at {line}" if line else ""
        problem = format_message(f"raises {type(error).__name__}: {text}{suffix}")
    lines = tuple(line for line, _, _ in recorder.runs)
    is_other_file = bool(recorder.other_runs and not recorder.runs)
    return values, SampleRun(name=name, problem=problem, lines=lines, is_other_file=is_other_file)


def _compare(first: Values, second: Values) -> str:
    """Return how the results of two runs on one sample differ, or ""."""
    if first.keys() != second.keys():
        return "other values are returned"
    for name, array in first.items():
        other = second[name]
        if array.shape != other.shape or array.dtype.kind != other.dtype.kind:
            return f"result{name} has another shape or dtype"
        is_float = array.dtype.kind in "fc"
        is_same = np.allclose(array, other, 1e-5, 1e-6, equal_nan=True) if is_float else None
        if not (is_same if is_float else np.array_equal(array, other)):
            return f"result{name} is another one"
    return ""


def _load_program(
    caller: Caller, folder: Path, file: Path, results: Path
) -> Callable[[object], object]:
    """Return a function of a sample that runs the caller."""
    if caller.call:
        function = load_attribute(caller.call, folder)
        if not callable(function):
            kind = type(function).__name__
            raise TypeError(f"{caller.call} is a {kind}, expected a function")
        return lambda sample: function(str(file), sample)

    def run(sample: object) -> object:
        path = sample
        if not isinstance(sample, str | os.PathLike):
            path = results / "sample.npy"
            results.mkdir(parents=True, exist_ok=True)
            np.save(path, np.asarray(sample), allow_pickle=False)
        command = [
            each.replace("{model}", str(file)).replace("{sample}", str(path))
            for each in caller.command
        ]
        process = subprocess.run(command, cwd=folder, capture_output=True, check=False)
        if process.returncode:
            text = process.stderr[-_STDERR_BYTES:].decode(errors="replace").strip()
            raise RuntimeError(f"exited with code {process.returncode}: {text}")
        if process.stdout.startswith(b"PK"):
            with np.load(io.BytesIO(process.stdout), allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        try:
            return json.loads(process.stdout)
        except ValueError as error:
            raise ValueError(f"prints neither JSON nor an .npz: {error}") from error

    return run


class _WithoutTraining(PathFinder):
    """Python's finder of modules, for a process in which PyTorch is not installed."""

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find a module, or return None."""
        if fullname.partition(".")[0] in _TRAINING:
            return None
        return super().find_spec(fullname, path, target)


def _hide_training_packages() -> None:
    sys.meta_path[:] = [
        _WithoutTraining if finder is PathFinder else finder for finder in sys.meta_path
    ]


def _record_sessions(recorder: _Recorder) -> None:
    """Let each later session of ONNX Runtime record its runs."""
    import onnxruntime

    class RecordedSession(onnxruntime.InferenceSession):  # type: ignore[misc]
        def __init__(self, path_or_bytes: Any, *args: Any, **kwargs: Any) -> None:
            self._is_proved = _is_file(path_or_bytes, recorder.path)
            super().__init__(path_or_bytes, *args, **kwargs)

        def run(self, output_names: Any, input_feed: Any, run_options: Any = None) -> Any:
            if not self._is_proved:
                recorder.other_runs += 1
                return super().run(output_names, input_feed, run_options)
            frame = inspect.currentframe()
            line = _find_frame_line(frame and frame.f_back, recorder.root)
            given = {name: np.array(value) for name, value in dict(input_feed).items()}
            recorder.runs.append((line, given, {}))
            outputs = super().run(output_names, input_feed, run_options)
            names = output_names or [each.name for each in self.get_outputs()]
            pairs = zip(names, outputs, strict=True)
            arrays = {name: np.array(each) for name, each in pairs if isinstance(each, np.ndarray)}
            recorder.runs[-1] = (line, given, arrays)
            return outputs

    onnxruntime.InferenceSession = RecordedSession


def _is_file(source: object, path: Path) -> bool:
    """Return whether a session gets the file, a copy of it, or its content."""
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest() == hash_file(path)
    other = Path(os.fsdecode(source)) if isinstance(source, str | os.PathLike) else Path()
    if not other.is_file():
        return False
    return other.samefile(path) or hash_file(other) == hash_file(path)


def _find_line(error: BaseException, root: Path) -> str:
    """Return the innermost line of the project in a traceback."""
    line = ""
    trace = error.__traceback__
    while trace is not None:
        line = _format_line(trace.tb_frame.f_code.co_filename, trace.tb_lineno, root) or line
        trace = trace.tb_next
    return line


def _find_frame_line(frame: FrameType | None, root: Path) -> str:
    while frame is not None:
        if line := _format_line(frame.f_code.co_filename, frame.f_lineno, root):
            return line
        frame = frame.f_back
    return ""


def _format_line(file: str, number: int, root: Path) -> str:
    path = Path(file)
    is_own = path.is_relative_to(root) and "site-packages" not in path.parts
    return f"{path.relative_to(root).as_posix()}:{number}" if is_own else ""
