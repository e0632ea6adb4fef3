"""The interface of a runtime, and the values that it receives and returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The execution provider of each node of the loaded file."""

    requested: str
    """The first provider of the device."""
    nodes: Mapping[str, Mapping[str, int]]
    """By provider, the count of nodes by operator, in the runtime's own graph."""
    strict: bool = False
    """True if the device allows no other provider."""
    statement: str = ""
    """The statement of a runtime that cannot report single nodes, otherwise ""."""
    is_software: bool = False
    """Whether a processor emulates the hardware of the provider."""


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
