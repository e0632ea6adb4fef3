"""What every runtime offers: a `Session`, or one of three exceptions that say whose fault it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from exporter.runtimes.values import Array, OnnxValue


class Unavailable(Exception):
    """This machine lacks the runtime or the device."""


class LoadFailure(Exception):
    """The runtime refuses the file."""


class RunFailure(Exception):
    """The runtime accepted the file and failed on the inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Which part of a runtime runs which nodes of the loaded file."""

    asked: str
    """The provider that the device asks for first."""
    nodes: Mapping[str, Mapping[str, int]]
    """By provider, the count of nodes by operator, as the runtime sees the graph."""
    strict: bool = False
    """Whether the device allows no other provider."""
    word: str = ""
    """What the runtime says instead, where it does not tell node by node."""


class Session(Protocol):
    """A file loaded and ready to run."""

    @property
    def placement(self) -> Placement | None:
        """Where its nodes run; None where the runtime does not tell."""

    @property
    def output_names(self) -> Sequence[str]:
        """Names of the outputs, in the order of the file."""

    def run(self, inputs: Mapping[str, Array]) -> Sequence[OnnxValue]:
        """Outputs in the order of the file.

        Raises:
            RunFailure: where the runtime fails on these inputs.
        """
