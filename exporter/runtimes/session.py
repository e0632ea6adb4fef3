"""The interface of a runtime, its failures, and custom kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from onnx.reference.op_run import OpRun

from exporter.runtimes.drivers.driver import Placement

Array = np.ndarray[Any, Any]
#: A sequence is a list, even with one item or none.
OnnxValue: TypeAlias = "Array | list[Array]"
_Item = TypeVar("_Item")


def list_items(value: _Item | list[_Item]) -> list[_Item]:
    """Return the items of a sequence, or a list with the tensor."""
    return value if isinstance(value, list) else [value]


class RuntimeUnavailable(Exception):
    """This machine does not have the runtime or the device."""


class ProviderMissing(RuntimeUnavailable):
    """The installed runtime lacks the execution provider, so a retry cannot find it."""


class LoadFailure(Exception):
    """The runtime does not load the file."""


class RunFailure(Exception):
    """The runtime loaded the file and failed on the inputs."""


class RuntimeProcessEnd(Exception):
    """The process of a device's environment ended while it loaded or ran the file.

    `is_killed`: Whether the kernel or a user killed it, usually because of its memory.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Kernels by runtime."""

    libraries: tuple[Path, ...] = ()
    """Shared libraries for ONNX Runtime."""
    operators: tuple[type[OpRun], ...] = ()
    """Operators for onnx.reference."""


NO_KERNELS = Kernels()
