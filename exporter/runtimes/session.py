"""The interface of a runtime, the values that it receives and returns, and custom kernels."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from onnx.reference.op_run import OpRun

from exporter.core.import_object import load_attribute, prepend_to_path
from exporter.manifest import ModelSpec
from exporter.runtimes.drivers.driver import Placement

Array = np.ndarray[Any, Any]
#: A sequence is a list, even with one item or none.
OnnxValue: TypeAlias = "Array | list[Array]"


def list_items(value: OnnxValue) -> list[Array]:
    """Return the items of a sequence, or a list with the tensor."""
    return value if isinstance(value, list) else [value]


class RuntimeUnavailable(Exception):
    """This machine does not have the runtime or the device."""


class LoadFailure(Exception):
    """The runtime does not load the file."""


class RunFailure(Exception):
    """The runtime loaded the file and failed on the inputs."""


class RuntimeProcessEnd(Exception):
    """The process of a device's environment ended while it loaded or ran the file.

    Args:
        message: The signal or the exit code.
        is_killed: Whether the kernel or a user killed it, usually because of its memory.
    """

    def __init__(self, message: str, *, is_killed: bool = False) -> None:
        super().__init__(message)
        self.is_killed = is_killed


class Session(Protocol):
    """A loaded file."""

    @property
    def placement(self) -> Placement | None:
        """The placement of its nodes; None if the runtime does not report it."""

    @property
    def output_names(self) -> Sequence[str]:
        """Names of the outputs, in the order of the file."""

    def run(self, inputs: Mapping[str, Array]) -> Sequence[OnnxValue]:
        """Return the outputs in the order of the file.

        Raises:
            RunFailure: if the runtime fails on these inputs.
        """


class InvalidKernel(Exception):
    """An object that the manifest declares as a kernel is not one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Kernels by runtime."""

    libraries: tuple[Path, ...] = ()
    """Shared libraries for ONNX Runtime."""
    operators: tuple[type[OpRun], ...] = ()
    """Operators for onnx.reference."""


NO_KERNELS = Kernels()


def load_kernels(spec: ModelSpec, root: Path) -> Kernels:
    """Import the kernels of a model, each once.

    Raises:
        InvalidKernel: if an object is not a kernel.
        Exception: any exception of the user's own code.
    """
    folder = (root / spec.manifest).parent
    if spec.custom_ops:
        prepend_to_path(root)
    libraries = [_find_library(op.ort_library, folder) for op in spec.custom_ops if op.ort_library]
    operators = [_load_operator(op.reference, folder) for op in spec.custom_ops if op.reference]
    return Kernels(
        libraries=tuple(dict.fromkeys(libraries)), operators=tuple(dict.fromkeys(operators))
    )


def _find_library(text: str, folder: Path) -> Path:
    if ":" not in text:
        path = folder / text
    else:
        function = load_attribute(text, folder)
        if not callable(function):
            raise InvalidKernel(f"{text} is a {type(function).__name__}, expected a function")
        result = function()
        if not isinstance(result, str | os.PathLike):
            kind = type(result).__name__
            raise InvalidKernel(f"{text} returned a {kind}, expected the path of a library")
        path = Path(result)
    if not path.is_file():
        raise InvalidKernel(f"{text}: the file {path.name} does not exist")
    return path.resolve()


def _load_operator(text: str, folder: Path) -> type[OpRun]:
    operator = load_attribute(text, folder)
    if not (isinstance(operator, type) and issubclass(operator, OpRun)):
        kind = "another class" if isinstance(operator, type) else f"a {type(operator).__name__}"
        raise InvalidKernel(f"{text} is {kind}, expected an onnx.reference.op_run.OpRun")
    # The reference runtime uses a class without a domain for ONNX's own operator of that name.
    if operator.op_domain in ("", "ai.onnx"):
        name = operator.__name__
        raise InvalidKernel(f"{text} has no op_domain: it would replace ONNX's own {name}")
    return operator
