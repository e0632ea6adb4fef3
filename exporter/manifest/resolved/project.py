"""The resolved project: its settings, and every model of its manifests."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from pathlib import Path

from pydantic import Field

from exporter.core.device_name import DeviceName
from exporter.core.errors import Location, Problem
from exporter.core.frozen_model import FrozenModel, Items
from exporter.core.system import NVIDIA_VARIABLES
from exporter.core.toml_table import SETTINGS_FILE
from exporter.manifest.resolved.keys import (
    DEFAULT_STORE_SIZE,
    NO_STORE,
    DeviceKeys,
    ProjectKeys,
    is_remote,
)
from exporter.manifest.resolved.model import ModelSpec
from exporter.manifest.resolved.policy import DEFAULT_GATE, Gate
from exporter.manifest.syntax.releases import Release, find_limits
from exporter.manifest.syntax.runtimes import (
    NVIDIA,
    PLUGIN,
    PROVIDER_SETTINGS,
    RUNTIMES,
    RuntimeRow,
)
from exporter.manifest.syntax.table import without_notation
from exporter.manifest.syntax.values import (
    find_pinned_release,
    find_requirement_name,
    is_in_range,
)
from exporter.virtual_environments import EnvironmentDefinition


class RuntimeEnvironment(FrozenModel):
    """The separate environment of a runtime: `[tool.exporter.environments.NAME]`."""

    name: str
    requirements: Items[str]
    python: str = ""
    """The interpreter; empty: the running one."""
    location: str = ""
    """Its table, for messages: `pyproject.toml:12`."""
    interpreter: str = ""
    """The path of its Python; empty until it is created."""
    packages: dict[str, str] = Field(default_factory=dict)
    """The installed version of each package; empty until it is created."""
    problem: str = ""
    """The reason why it cannot be created on this machine."""

    @property
    def definition(self) -> EnvironmentDefinition:
        """The definition that decides about its content."""
        return EnvironmentDefinition(requirements=self.requirements, python=self.python)

    @property
    def runtime_versions(self) -> str:
        """The installed versions of the required packages: `onnxruntime 1.17.3, numpy 1.26.4`."""
        names = (find_requirement_name(requirement) for requirement in self.requirements)
        known = {name: self.packages[name] for name in names if name in self.packages}
        return ", ".join(f"{name} {version}" for name, version in known.items())

    def allows(self, runtime: str) -> bool:
        """Return whether the requirements select these packages: `onnxruntime 1.17.3`.

        Returns:
            False if `runtime` has none of the required packages.
        """
        packages = dict(text.rpartition(" ")[::2] for text in runtime.split(", "))
        named = ((find_requirement_name(text), text) for text in self.requirements)
        known = [(packages[name], text) for name, text in named if name in packages]
        return bool(known) and all(is_in_range(version, text) for version, text in known)


@without_notation
class Device(DeviceKeys):
    """A runtime with its device or execution providers."""

    name: DeviceName
    environment: RuntimeEnvironment | None = None
    """The environment of its process; None: the workers'."""
    provider_options: dict[str, dict[str, str]] = Field(default_factory=dict)
    job_environment: EnvironmentDefinition | None = None
    """The environment that delivers its results, the suffix of the name; None: the current one."""

    @property
    def row(self) -> RuntimeRow:
        return RUNTIMES.get(self.runtime, PLUGIN)

    @property
    def pinned_release(self) -> Release | None:
        if not self.row.has_releases or self.environment is None:
            return None
        return find_pinned_release(self.environment.requirements)

    @property
    def last_opset(self) -> int | None:
        """The last opset that its pinned release loads; None if no release is pinned."""
        limits = find_limits(self.pinned_release) if self.pinned_release else None
        return limits.opset if limits else None

    @property
    def session_settings(self) -> dict[str, bool | int | float | str]:
        """The options of its sessions: those of every proof, and then its own.

        `"default"` leaves an option to the runtime, as in a plain session.
        """
        common = dict(self.row.settings)
        if self.device not in ("", "CPU"):  # another device has no number of threads
            common = {key: value for key, value in common.items() if value != 1}
        options = {**common, **self.session_options}
        return {name: value for name, value in options.items() if value != "default"}

    @property
    def provider_settings(self) -> dict[str, dict[str, str]]:
        """The options of its providers: those of every proof, and then its own.

        `"default"` leaves an option to the provider.
        """
        tables = {}
        for name in dict.fromkeys((*self.providers, *self.provider_options)):
            options = {**PROVIDER_SETTINGS.get(name, {}), **self.provider_options.get(name, {})}
            tables[name] = {key: value for key, value in options.items() if value != "default"}
        return tables

    @property
    def settings(self) -> str:
        """The settings that a plain session lacks: `INFERENCE_PRECISION_HINT=f32, 1 thread`."""
        tables = self.provider_settings.items()
        options = {f"{name}.{key}": table[key] for name, table in tables for key in table}
        names = (*self.providers, self.device)
        is_nvidia = any(name.startswith(NVIDIA) for name in names)
        variables = {**(NVIDIA_VARIABLES if is_nvidia else {}), **self.variables}
        values = {**options, **variables}
        texts = (
            "1 thread" if key.lower().endswith("threads") and value == 1 else f"{key}={value}"
            for key, value in {**values, **self.session_settings}.items()
            if value != "" and "/" not in str(value)  # a path is of a machine
        )
        return ", ".join(dict.fromkeys(texts))

    @property
    def identity(self) -> Device:
        """The device without the state of this machine and lines of files."""
        if self.environment is None:
            return self
        state = {"interpreter": "", "packages": {}, "problem": "", "location": ""}
        environment = self.environment.model_copy(update=state)
        return self.model_copy(update={"environment": environment})


@without_notation
class Project(ProjectKeys):
    """`[tool.exporter]` of pyproject.toml with all defaults. Paths are relative to `root`."""

    root: str
    manifests: Items[str] = ("manifests",)
    """The folders of the manifests; new entries are written into the first."""
    name: str = ""
    """`name` of `[project]` in pyproject.toml."""
    environments_path: str = ""
    """The folder of environments if `build` is not the folder of the settings."""
    store_size: int = DEFAULT_STORE_SIZE
    """Bytes."""
    lines: dict[str, int] = Field(default_factory=dict)
    """The lines of `store` and `engine` in pyproject.toml."""
    devices: Items[Device]
    environments: Items[RuntimeEnvironment] = ()
    job_environments: dict[str, EnvironmentDefinition] = Field(default_factory=dict)
    """The environments that deliver results, by the suffix of their devices."""
    active_suffix: str = ""
    """The suffix whose environment this process has; empty: none of them."""
    evidence: dict[str, float] = Field(default_factory=dict)
    """The maximum age in seconds of measurements of other machines, by device."""
    elsewhere: Items[str] = ()
    """The devices that other machines measure only."""
    gate: Gate = DEFAULT_GATE

    def locate(self, key: str) -> str:
        """Return the file, the line and the key of a setting, or the option that set it."""
        if key not in self.lines:
            return f"--{key}"
        return f"{Location(file=SETTINGS_FILE, line=self.lines[key])}: tool.exporter.{key}"

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
        """Return the device of that name, `cpu` or `cpu@SUFFIX`.

        Raises:
            KeyError: If the project has no such device.
        """
        full = DeviceName(name)
        device = next((each for each in self.devices if each.name == full.base), None)
        if device is None:
            raise KeyError(name)
        if not full.suffix:
            return device
        update = {"name": full, "job_environment": self.job_environments[full.suffix]}
        return device.model_copy(update=update)

    @property
    def device_names(self) -> frozenset[str]:
        names = [device.name for device in self.devices]
        pairs = (DeviceName.build(name, each) for name in names for each in self.job_environments)
        return frozenset((*names, *pairs))


class Manifest(FrozenModel):
    """Every model of the project, in the order of files and entries."""

    project: Project
    models: Items[ModelSpec]
    problems: Items[Problem] = ()
    """The problems of manifest files that belong to none of these models."""
    missing_files: dict[str, Items[str]] = Field(default_factory=dict)
    """The models of each data file that does not exist here and that git ignores."""

    def find_model(self, id: str) -> ModelSpec:
        """Return the model of that ID.

        Raises:
            KeyError: If the project has no such model.
        """
        return self.by_id[id]

    @cached_property
    def by_id(self) -> dict[str, ModelSpec]:
        return {model.id: model for model in self.models}


def find_renames(manifest: Manifest, known: Collection[str]) -> dict[str, str]:
    """Return the former ID -> the ID of each renamed model.

    `known`: The IDs of an accepted state. A model that it has is not renamed, and neither is
    one to which another entry gives a state: then the former model is a removed one.
    """
    renames: dict[str, str] = {}
    for spec in manifest.models:
        if spec.id not in known:
            former = (each for each in spec.was if each in known and each not in manifest.by_id)
            if old := next(former, ""):
                renames.setdefault(old, spec.id)
    return renames
