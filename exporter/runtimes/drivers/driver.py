"""The interface of a driver, and the values that pass between it and a session."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import numpy as np

#: The dtypes of numpy that files contain. Others, such as bfloat16, are passed as `Bits`.
NUMPY_DTYPES = frozenset(
    ["bool", "float16", "float32", "float64", "complex64", "complex128"]
    + [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
)
Array = Any
#: An array, `Bits`, a list of both, or None for an optional value without content.
Value = Any


class Bits(NamedTuple):
    """An array of a dtype that numpy lacks."""

    dtype: str
    """`bfloat16`, `float8_e4m3fn`."""
    values: Array
    """The same memory as unsigned integers."""


class FileRequest(NamedTuple):
    """A file, and the settings of its session."""

    runtime: str
    path: str
    providers: tuple[str, ...] = ()
    provider_options: dict[str, dict[str, str]] | None = None
    session_options: dict[str, Any] | None = None
    provider_library: str = ""
    """The shared library of the first provider, if it is a plugin."""
    module: str = ""
    device: str = ""
    libraries: tuple[str, ...] = ()
    """Shared libraries with kernels for ONNX Runtime."""
    variables: tuple[tuple[str, str], ...] = ()
    """The environment variables of the process; only for another one."""
    external: tuple[str, ...] = ()
    """The files with external data, beside the file; only for a runtime without access to files."""
    operators: tuple[type, ...] = ()
    """Kernels for onnx.reference; only in this process."""


class Placement(NamedTuple):
    """The execution provider of each node of the loaded file."""

    requested: str
    """The first provider of the device."""
    nodes: Mapping[str, Mapping[str, int]]
    """By provider, the count of nodes by operator, in the runtime's own graph."""
    statement: str = ""
    """The statement of a runtime that cannot report single nodes."""
    operators: list[str] | None = None
    """`domain::operator` of each node; None if the runtime does not report it."""
    is_software: bool = False
    """Whether a processor emulates the hardware of the provider."""
    strict: bool = False
    """Whether the device allows no other provider; a driver does not know it."""
    others: Sequence[str] = ()
    """The names of the nodes that the CPU runs beside the requested provider."""
    shapes: Mapping[str, int] = {}
    """The count of those that compute shapes, by operator; a driver does not know it."""
    copies: int | None = None
    """The copies between devices in a run; None if they are unknown."""


class DriverFailure(Exception):
    """A failure of a runtime.

    `kind`: `missing`, `unavailable`, `load` or `run`; see the exceptions of `session.py`.
    `problem`: The description in this tool's words; `message`: that of the runtime, of any form.
    """

    def __init__(self, kind: str, problem: str = "", message: str = "") -> None:
        super().__init__(kind, problem, message)
        self.kind = kind
        self.problem = problem
        self.message = message


class Driver:
    """A loaded file."""

    output_names: tuple[str, ...] = ()
    """Empty if the runtime does not report them."""

    def find_placement(self) -> Placement | None:
        """Return the placement of the nodes, or None if the runtime does not report it."""
        raise NotImplementedError

    def run(self, inputs: dict[str, Value]) -> Sequence[Value]:
        """Return the outputs in the order of the file.

        Raises:
            DriverFailure: `run`, if the runtime fails on these inputs.
        """
        raise NotImplementedError


def require_inputs(names: Sequence[str], inputs: Mapping[str, Value]) -> None:
    """Raise DriverFailure if the inputs have other names than those of the file."""
    missing = [name for name in names if name not in inputs]
    unknown = sorted(set(inputs) - set(names))
    if missing or unknown:
        problem = f"no input {missing[0]}" if missing else f"the file has no input {unknown[0]}"
        raise DriverFailure("run", problem)


def describe(error: BaseException) -> str:
    """Return the text of an exception, or its class if it has none."""
    return str(error) if str(error).strip() else type(error).__name__


def to_bits(value: Value) -> Value:
    """Return the value with `Bits` instead of arrays of other packages' dtypes."""
    if isinstance(value, list):
        return [to_bits(item) for item in value]
    if not isinstance(value, np.ndarray) or value.dtype.kind != "V" or value.dtype.names:
        return value
    integer = f"uint{8 * value.dtype.itemsize}"
    return Bits(value.dtype.name, np.ascontiguousarray(value).view(integer).reshape(value.shape))


def from_bits(value: Value) -> Value:
    """Return the value with arrays of `ml_dtypes` instead of `Bits`."""
    if isinstance(value, list):
        return [from_bits(item) for item in value]
    if not isinstance(value, Bits):
        return value
    import ml_dtypes

    return value.values.view(np.dtype(getattr(ml_dtypes, value.dtype)))


_PACKAGE = "exporter.runtimes.drivers"


def name_module(runtime: str) -> str:
    """Return the module with the function `open_file` of a built-in runtime."""
    return f"{_PACKAGE}.{runtime}_driver"


def load_file(request: FileRequest) -> Driver:
    """Load the file in its runtime.

    Raises:
        DriverFailure: if the runtime is missing, or does not load the file.
    """
    try:
        module = import_module(name_module(request.runtime))
    except Exception as error:  # an incomplete installation raises any exception
        problem = f"{request.runtime} cannot be imported (`pip install {request.runtime}`)"
        raise DriverFailure("unavailable", problem, describe(error)) from error
    driver: Driver = module.open_file(request)
    return driver


#: The number of loads: between these limits the time decides.
_MIN_LOADS, _MAX_LOADS = 3, 30
_SECONDS = 0.5
_STATUS, _CLEAR_PEAK = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class LoadFigures(NamedTuple):
    """The measured load."""

    seconds: float
    """The shortest load: from the call until the session exists."""
    small_seconds: float
    """The shortest load of a file with one node."""
    bytes: int
    """The growth of memory by the session and its first run."""


def measure_load(
    load_small: Callable[[], Any], load: Callable[[], Any], run: Callable[[Any], Any]
) -> LoadFigures:
    """Load a small file and the file many times, and run the file once.

    The figures are valid if nothing else runs in the process.

    `load_small`: Creates the session of a file with one node.
    """
    small_seconds = _time_loads(load_small)  # also imports and starts the runtime
    with suppress(OSError):  # not Linux, or a container without this file
        _CLEAR_PEAK.write_text("5", encoding="ascii")  # the peak becomes the current memory
    before = _read_peak()
    session = load()
    run(session)
    growth = max(0, _read_peak() - before)
    del session
    return LoadFigures(_time_loads(load), small_seconds, growth)


def _time_loads(load: Callable[[], Any]) -> float:
    """Return the shortest time of many loads: other processes only make a load longer."""
    times: list[float] = []
    while len(times) < _MIN_LOADS or (len(times) < _MAX_LOADS and sum(times) < _SECONDS):
        start = time.perf_counter()
        load()
        times.append(time.perf_counter() - start)
    return min(times)


def _read_peak() -> int:
    """Return the largest resident memory of this process in bytes."""
    try:
        lines = _STATUS.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        import resource  # not on Windows

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak << 10
