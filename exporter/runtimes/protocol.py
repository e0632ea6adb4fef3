"""What every runtime offers: a `Session`, or one of three exceptions that say whose fault it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]


class Unavailable(Exception):
    """This machine lacks the runtime or the device."""


class LoadFailure(Exception):
    """The runtime refuses the file."""


class RunFailure(Exception):
    """The runtime accepted the file and failed on the inputs."""


class Session(Protocol):
    """A file loaded and ready to run."""

    @property
    def output_names(self) -> Sequence[str]:
        """Names of the outputs, in the order of the file."""

    def run(self, inputs: Mapping[str, Array]) -> Sequence[Array]:
        """Outputs in the order of the file.

        Raises:
            RunFailure: where the runtime fails on these inputs.
        """
