"""Devices, the environments of their runtimes, and toolchains."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from exporter.core.frozen_model import FrozenModel, Items
from exporter.core.onnxruntime_releases import Release, find_limits
from exporter.environments.definition import EnvironmentDefinition
from exporter.manifest.syntax.versions import find_pinned_release, find_requirement_name

Optimization = Literal["none", "basic", "extended", "all"]
Proof = Literal["short", "full"]


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


class Device(FrozenModel):
    """A runtime with its device or execution providers."""

    name: str
    runtime: str
    """A built-in runtime, or the name of an installed plugin."""
    providers: Items[str] = ()
    """ONNX Runtime execution providers, first choice first."""
    strict: bool = False
    """Whether every node has to run on the first provider."""
    module: str = ""
    """`package.module`, or `package.module:Class`, of an ONNX backend."""
    device: str = ""
    """The name that the backend or OpenVINO uses; empty: `CPU`."""
    environment: RuntimeEnvironment | None = None
    """The environment of its process; None: the workers'."""
    session_options: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """Options of ONNX Runtime's session, or properties of OpenVINO."""
    provider_options: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Options of execution providers, by their names."""
    optimization: Optimization | Literal[""] = ""
    """The level of ONNX Runtime's graph optimizations; empty: its default."""
    provider_library: str = ""
    """The shared library of the first provider: an absolute path, or `module:function`."""

    proof: Proof = "short"
    """Whether all checks run, also after an earlier device proved the promises of the file."""

    toolchain: Toolchain | None = None
    """The toolchain of its cells; None: the project's own packages."""

    @property
    def pinned_release(self) -> Release | None:
        """The release of ONNX Runtime that its environment pins."""
        if self.runtime != "onnxruntime" or self.environment is None:
            return None
        return find_pinned_release(self.environment.requirements)

    @property
    def last_opset(self) -> int | None:
        """The last opset that its pinned release loads; None if no release is pinned."""
        limits = find_limits(self.pinned_release) if self.pinned_release else None
        return limits.opset if limits else None

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
