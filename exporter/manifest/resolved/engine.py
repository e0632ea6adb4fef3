"""The settings of the engine: on which machines jobs run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from exporter.core.frozen_model import FrozenModel

#: The engines: worker processes of this machine, or the hosts of a Dask cluster.
EngineKind = Literal["local", "dask"]


class EngineSettings(FrozenModel):
    """`[tool.exporter.engine]`."""

    kind: EngineKind = "local"
    scheduler: str = ""
    """The address of a Dask scheduler, or ""."""
    cluster: str = ""
    """`file.py:function` of the project, which returns a cluster of Dask, or ""."""
    workers: int | None = None
    """The parallel jobs of a cluster that the program starts."""
    lines: dict[str, int] = Field(default_factory=dict)
    """The lines of the keys in pyproject.toml."""
