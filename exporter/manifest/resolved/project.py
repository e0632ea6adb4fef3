"""The resolved project: its settings, and every model of its manifests."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from exporter.core import known_names
from exporter.core.device_name import CURRENT_TOOLCHAIN, DeviceName
from exporter.core.errors import Problem
from exporter.core.frozen_model import FrozenModel, Items
from exporter.core.known_names import Release, find_limits
from exporter.environments import EnvironmentDefinition
from exporter.manifest.resolved.keys import (
    DEFAULT_STORE_AGE,
    DEFAULT_STORE_SIZE,
    NO_STORE,
    DeviceKeys,
    EngineKeys,
    ProjectKeys,
    is_remote,
)
from exporter.manifest.resolved.model import ModelSpec
from exporter.manifest.syntax.table import without_notation
from exporter.manifest.syntax.values import (
    find_pinned_release,
    find_requirement_name,
    is_in_range,
)


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


class Toolchain(FrozenModel):
    """Other packages for the export and the checks: `[tool.exporter.toolchains.NAME]`."""

    name: str
    requirements: Items[str]
    location: str = ""
    """Its table, for messages: `pyproject.toml:12`."""

    @property
    def definition(self) -> EnvironmentDefinition:
        """The definition of its environment, which also has all packages of the current one."""
        return EnvironmentDefinition(requirements=self.requirements, adds_to_current=True)


@without_notation
class Device(DeviceKeys):
    """A runtime with its device or execution providers."""

    name: DeviceName
    environment: RuntimeEnvironment | None = None
    """The environment of its process; None: the workers'."""
    provider_options: dict[str, dict[str, str]] = Field(default_factory=dict)
    toolchain: Toolchain | None = None
    """The toolchain of its cells; None: the project's own packages."""

    @property
    def row(self) -> known_names.RuntimeRow:
        """The properties of its runtime."""
        return known_names.RUNTIMES.get(self.runtime, known_names.PLUGIN)

    @property
    def pinned_release(self) -> Release | None:
        """The release of ONNX Runtime that its environment pins."""
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
        """The options of its providers: those of every proof, and then its own."""
        common = {name: known_names.PROVIDER_SETTINGS.get(name, {}) for name in self.providers}
        names = dict.fromkeys((*common, *self.provider_options))
        return {n: {**common.get(n, {}), **self.provider_options.get(n, {})} for n in names}

    @property
    def settings(self) -> str:
        """The settings that a plain session lacks: `INFERENCE_PRECISION_HINT=f32, 1 thread`."""
        tables = self.provider_settings.items()
        options = {f"{name}.{key}": table[key] for name, table in tables for key in table}
        names = (*self.providers, self.device)
        is_nvidia = any(name.startswith(known_names.NVIDIA) for name in names)
        variables = {**(known_names.NVIDIA_VARIABLES if is_nvidia else {}), **self.variables}
        values = {"optimization": self.optimization or "", **options, **variables}
        texts = (
            "1 thread" if key.lower().endswith("threads") and value == 1 else f"{key}={value}"
            for key, value in {**values, **self.session_settings}.items()
            if value != "" and "/" not in str(value)  # a path is of a machine
        )
        return ", ".join(dict.fromkeys(texts))

    @property
    def identity(self) -> Device:
        """The device without the state of this machine and lines of files."""
        environment, toolchain = self.environment, self.toolchain
        if environment is not None:
            state = {"interpreter": "", "packages": {}, "problem": "", "location": ""}
            environment = environment.model_copy(update=state)
        if toolchain is not None:
            toolchain = toolchain.model_copy(update={"location": ""})
        return self.model_copy(update={"environment": environment, "toolchain": toolchain})


#: The gate fails, prints a warning and passes, or ignores the finding.
Action = Literal["block", "warn", "ignore"]
_Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class GatePolicy(FrozenModel):
    """The action for each kind of finding, and the thresholds of drift."""

    newly_red: Action = "block"
    """The cell was not red and is red now."""
    expired: Action = "block"
    """The failure was expected, and the expectation has expired."""
    missing: Action = "block"
    """The cell is promised and has no result."""
    removed: Action = "block"
    """The cell is accepted and no longer promised."""
    relaxed: Action = "block"
    """With `--against`: a tolerance, an expectation, a skip or a policy lets more pass, or weights
    or their hash are no longer named. Always: weights were loaded and are initial values now."""
    redefined: Action = "warn"
    """With `--against`: the entry has another source, other weights, options or data. The cells are
    proved, but for another model than the accepted one."""
    contract: Action = "block"
    """The entry differs from the one with which the cells were accepted, or weights were initial
    values and are loaded now. Blocks until it is accepted."""
    worse: Action = "block"
    """The cell was red before, and fails now at an earlier stage or dies."""
    flaky: Action = "block"
    """Two runs with the same inputs had different verdicts."""
    xpass: Action = "block"
    """The cell passes although the manifest expects a failure."""
    newly_unavailable: Action = "block"
    """The machine can no longer run the cell."""
    evidence: Action = "block"
    """A measurement of another machine is red; or `[tool.exporter.evidence]` requires one, and it
    is missing, stale or too old."""
    newly_skipped: Action = "block"
    """The manifest skips the cell now."""
    newly_expected: Action = "block"
    """The cell fails as the manifest now expects."""
    new_red: Action = "block"
    """The cell is red and not in the baseline."""
    changed: Action = "block"
    """Another check or kind of failure, neither better nor worse."""
    better: Action = "block"
    """The cell was red before and fails now at a later stage. Blocks until it is accepted."""
    rerouted: Action = "block"
    """Another exporter or another capture created the file."""
    error_grown: Action = "warn"
    """The error, as a multiple of the allowed error, grew by `error_factor`."""
    file_grown: Action = "warn"
    """The file with its external data grew by the share `file_growth`, and by 4 kB."""
    nodes_grown: Action = "warn"
    """The number of nodes grew by the share `node_growth`."""
    latency_grown: Action = "warn"
    """With `measure = ["latency"]`: the file's time, as a multiple of PyTorch's in the same run,
    grew by `latency_factor`."""
    load_grown: Action = "warn"
    """With `measure = ["load"]`: the load time, as a multiple of that of a file with one node,
    grew by `load_factor`."""
    memory_grown: Action = "warn"
    """With `measure = ["memory"]`: the peak memory, as a multiple of the size of the file, grew by
    `memory_factor`."""
    new_domain: Action = "warn"
    """The file has an operator of a domain that it did not have."""
    floor_raised: Action = "warn"
    """The oldest ONNX Runtime that loads the file is a newer release."""
    lowest_raised: Action = "warn"
    """The lowest opset from which all cells of the model pass is higher."""
    fixed: Action = "block"
    """The cell passes now. Blocks until it is accepted, because only then can the gate notice a
    later loss."""
    new_green: Action = "block"
    """The cell is green and not in the baseline. Blocks until it is accepted."""
    accepted_here: Action = "block"
    """With `--against`: the branch's own baseline accepts a loss with a reason. `warn` lets a loss
    with a reviewed reason pass; `block` lets none pass."""
    error_factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 4.0
    """The factor by which the error has to grow."""
    error_floor: _Share = 0.1
    """Errors up to this share of the allowed error are never drift."""
    latency_factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.0
    """The factor by which that multiple has to grow. Other load on the machine changes it by up to
    a half."""
    load_factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.0
    """The factor by which that multiple has to grow."""
    memory_factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.5
    """The factor by which that multiple has to grow."""
    file_growth: _Share = 0.05
    """0.05 is 5 %."""
    node_growth: _Share = 0.05
    """0.05 is 5 %."""


class ModelPolicy(FrozenModel):
    """The settings of `[tool.exporter.gate.models.NAME]`."""

    models: str
    """A glob over IDs."""
    values: dict[str, Action | float]
    """The keys of `GatePolicy` that are set."""


class Gate(FrozenModel):
    """The policy of every model."""

    policy: GatePolicy = GatePolicy()
    models: Items[ModelPolicy] = ()
    """In the order of the settings: if two match a model, the later one wins."""
    lines: dict[str, int] = Field(default_factory=dict)
    """The lines of the keys in pyproject.toml: `fixed`, `models.NAME.fixed`; the table is ``."""

    def find_policy(self, model: str) -> GatePolicy:
        values: dict[str, object] = {}
        for policy in self.models:
            if fnmatchcase(model, policy.models):
                values |= policy.values
        return self.policy.model_copy(update=values) if values else self.policy

    def find_line(self, model: str, key: str) -> int | None:
        """Return the line that sets a key for a model; that of the table if no line sets it."""
        names = [each.models for each in self.models if fnmatchcase(model, each.models)]
        keys = [f"models.{name}.{key}" for name in reversed(names)]
        return next((self.lines[each] for each in (*keys, key, "") if each in self.lines), None)


#: The policy of a project without settings of the gate.
DEFAULT_GATE = Gate()


@without_notation
class EngineSettings(EngineKeys):
    """`[tool.exporter.engine]`."""

    lines: dict[str, int] = Field(default_factory=dict)
    """The lines of the keys in pyproject.toml."""


@without_notation
class Project(ProjectKeys):
    """`[tool.exporter]` of pyproject.toml with all defaults. Paths are relative to `root`."""

    root: str
    name: str = ""
    """`name` of `[project]` in pyproject.toml."""
    environments_path: str = ""
    """The folder of environments if `build` is not the folder of the settings."""
    store_size: int = DEFAULT_STORE_SIZE
    """Bytes."""
    store_age: float = DEFAULT_STORE_AGE
    """Seconds."""
    store_lines: dict[str, int] = Field(default_factory=dict)
    """The lines of `store` and `store_key` in pyproject.toml."""
    devices: Items[Device]
    environments: Items[RuntimeEnvironment] = ()
    toolchains: Items[Toolchain] = ()
    active_toolchain: str = ""
    """The toolchain whose packages this process has; empty: none of them."""
    engine: EngineSettings = EngineSettings()
    evidence: dict[str, float] = Field(default_factory=dict)
    """The maximum age in seconds of measurements of other machines, by device."""
    elsewhere: Items[str] = ()
    """The devices that other machines measure only."""
    gate: Gate = DEFAULT_GATE

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
        full = DeviceName(name)
        device = next((each for each in self.devices if each.name == full.base), None)
        if device is None:
            raise KeyError(name)
        toolchain = self.find_toolchain(full.toolchain) if full.toolchain else None
        update = {"name": full, "toolchain": toolchain}
        return device.model_copy(update=update) if toolchain else device

    def find_toolchain(self, name: str) -> Toolchain:
        """Return the toolchain of that name.

        Raises:
            KeyError: If the project has no such toolchain.
        """
        return {toolchain.name: toolchain for toolchain in self.toolchains}[name]

    @property
    def device_names(self) -> frozenset[str]:
        names = [device.name for device in self.devices]
        pairs = (DeviceName.build(name, each.name) for name in names for each in self.toolchains)
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
                        device for device in model.devices if device.toolchain == active
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
