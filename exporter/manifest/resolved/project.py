"""The resolved project: its settings, and every model of its manifests."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field

from exporter.core.errors import Problem
from exporter.core.frozen_model import FrozenModel, Items
from exporter.core.text import DEFAULT_COMMAND
from exporter.manifest.resolved.device import Device, RuntimeEnvironment, Toolchain
from exporter.manifest.resolved.gate import DEFAULT_GATE, Gate
from exporter.manifest.resolved.model import ModelSpec, Style
from exporter.manifest.syntax.values import CURRENT_TOOLCHAIN, join_device, split_device

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


#: The value of `store` that switches the store off.
NO_STORE = "off"
#: Bytes: 10 GiB.
DEFAULT_STORE_SIZE = 10 << 30
#: Seconds: 90 days.
DEFAULT_STORE_AGE = 90 * 24 * 3600.0
#: Seconds that a run waits for a remote store: a few hundred cells at 10 MB/s.
DEFAULT_STORE_TIMEOUT = 120.0
#: The scheme of a URL -> the modules that read it. Python can read `http` itself.
REMOTE_SCHEMES = {
    "s3": ("fsspec", "s3fs"),
    "gs": ("fsspec", "gcsfs"),
    "az": ("fsspec", "adlfs"),
    "file": ("fsspec",),
    "https": (),
    "http": (),
}
_SEPARATOR = "://"


def is_remote(store: str) -> bool:
    """Return True if the value of `store` is a URL."""
    return _SEPARATOR in store


def split_url(store: str) -> tuple[str, str]:
    """Return the scheme and the rest of a URL."""
    scheme, _, rest = store.partition(_SEPARATOR)
    return scheme, rest


#: The restriction of workers.
Sandbox = Literal["none", "landlock"]


class Project(FrozenModel):
    """`[tool.exporter]` of pyproject.toml with all defaults. Paths are relative to `root`."""

    root: str
    manifests: str = "manifests"
    build: str = "build"
    environments_path: str = ""
    """The folder of environments if `build` is not the folder of the settings."""
    reports: str = "reports"
    templates: str = "templates"
    store: str = ""
    """A path from `root`, from the home directory (`~`) or absolute. `off` disables the store; if
    it is empty, the store is in the build folder. A URL is a remote store beside that one."""
    store_size: int = DEFAULT_STORE_SIZE
    """Bytes."""
    store_age: float = DEFAULT_STORE_AGE
    """Seconds."""
    store_timeout: float = DEFAULT_STORE_TIMEOUT
    """Seconds that a run waits for a remote store."""
    store_key: str = ""
    """The file with the key of a remote store, or ""."""
    store_lines: dict[str, int] = Field(default_factory=dict)
    """The lines of `store` and `store_key` in pyproject.toml."""
    devices: Items[Device]
    environments: Items[RuntimeEnvironment] = ()
    toolchains: Items[Toolchain] = ()
    active_toolchain: str = ""
    """The toolchain whose packages this process has; empty: none of them."""
    jobs: int | None = None
    """Number of parallel workers; None: one for each core."""
    engine: EngineSettings = EngineSettings()
    sandbox: Sandbox = "none"
    evidence: dict[str, float] = Field(default_factory=dict)
    """The maximum age in seconds of measurements of other machines, by device."""
    gate: Gate = DEFAULT_GATE
    style: Style = "emoji"
    timings: bool = False
    environment: Items[str] = ()
    """Names of environment variables for workers, with wildcards."""
    command: str = DEFAULT_COMMAND
    """The command line that users type; `{}` is the name of the command."""

    @property
    def environments_folder(self) -> Path:
        """The folder of the created environments, beside a shared store or in the build folder.

        Names of models do not begin with a dot.
        """
        if self.environments_path:
            return Path(self.environments_path)
        if self.store in ("", NO_STORE) or is_remote(self.store):
            return Path(self.root) / self.build / ".environments"
        store = Path(self.root) / Path(self.store).expanduser()
        return store.with_name(f"{store.name}-environments")

    def find_device(self, name: str) -> Device:
        """Return the device of that name, `cpu` or `cpu@TOOLCHAIN`.

        Raises:
            KeyError: If the project has no such device.
        """
        base, toolchain_name = split_device(name)
        device = next((each for each in self.devices if each.name == base), None)
        if device is None:
            raise KeyError(name)
        if not toolchain_name:
            return device
        toolchain = self.find_toolchain(toolchain_name)
        return device.model_copy(update={"name": name, "toolchain": toolchain})

    def find_toolchain(self, name: str) -> Toolchain:
        """Return the toolchain of that name.

        Raises:
            KeyError: If the project has no such toolchain.
        """
        for toolchain in self.toolchains:
            if toolchain.name == name:
                return toolchain
        raise KeyError(name)

    @property
    def device_names(self) -> frozenset[str]:
        """The names of all devices, alone and in each toolchain."""
        names = [device.name for device in self.devices]
        pairs = (join_device(name, each.name) for name in names for each in self.toolchains)
        return frozenset((*names, *pairs))


class Manifest(FrozenModel):
    """Every model of the project, in the order of files and entries."""

    project: Project
    models: Items[ModelSpec]
    problems: Items[Problem] = ()
    """The problems of manifest files that belong to none of these models."""

    def select_toolchain(self, name: str) -> Manifest:
        """Return the manifest with the cells of one toolchain, or of `current`, only."""
        active = "" if name == CURRENT_TOOLCHAIN else name
        selected = (
            model.model_copy(
                update={
                    "devices": tuple(
                        device for device in model.devices if split_device(device)[1] == active
                    )
                }
            )
            for model in self.models
        )
        return Manifest(
            project=self.project.model_copy(update={"active_toolchain": active}),
            models=tuple(model for model in selected if model.devices),
            problems=self.problems,
        )

    def find_model(self, id: str) -> ModelSpec:
        """Return the model of that ID.

        Raises:
            KeyError: If the project has no such model.
        """
        return self._by_id[id]

    @cached_property
    def _by_id(self) -> dict[str, ModelSpec]:
        return {model.id: model for model in self.models}
