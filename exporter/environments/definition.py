"""The definition of a virtual environment, and the key of its folder."""

from __future__ import annotations

import hashlib
import platform
import re
import sys

from exporter.core.frozen_model import FrozenModel, Items

#: A requirement that only one version meets.
_PINNED = re.compile(r"[A-Za-z0-9._-]+(\[[^\]]*\])?\s*==\s*[^*,;\s]+")


class EnvironmentDefinition(FrozenModel):
    """The packages of a virtual environment."""

    requirements: Items[str]
    """Requirements as pip reads them: `onnxruntime==1.17.3`."""
    python: str = ""
    """The interpreter, a path or a name on `PATH`; empty: the running one."""
    adds_to_current: bool = False
    """Whether the environment also has all packages of the running one. Its own packages replace
    them."""

    @property
    def key(self) -> str:
        """The name of the folder: a hash of the definition, the Python and the machine."""
        parts = [
            f"adds to {sys.prefix}" if self.adds_to_current else "separate",
            self.python or platform.python_version(),
            platform.system(),
            platform.machine(),
            *sorted(self.requirements),
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    @property
    def is_pinned(self) -> bool:
        """Whether the requirements allow one version of each package only."""
        return all(_PINNED.fullmatch(each.strip()) for each in self.requirements)
