"""The tables of `[tool.exporter]` in pyproject.toml, with the conventions of `entry.py`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from exporter.core.errors import suggest_nearest
from exporter.core.frozen_model import Items
from exporter.manifest.resolved.keys import (
    Age,
    DeviceKeys,
    OptionValue,
    ProjectKeys,
)
from exporter.manifest.resolved.policy import FINDINGS, LIMITS
from exporter.manifest.schema.entry import Settings
from exporter.manifest.syntax import fields
from exporter.manifest.syntax.table import Table
from exporter.manifest.syntax.values import join_words, quote


class DeviceTable(DeviceKeys):
    """A runtime with its device: `[tool.exporter.devices.NAME]`."""

    environment: fields.Line | None = None
    """The environment with the runtime, from `[tool.exporter.environments.NAME]`. The file runs in
    a process of it, which needs only the runtime and numpy. Without it, the workers' environment.
    Plugins and `custom_ops` in Python need the workers' environment."""
    provider_options: dict[fields.Line, dict[fields.Line, OptionValue]] = Field(
        default_factory=dict
    )
    """Options of the execution providers: `CUDAExecutionProvider = { device_id = 1 }`."""


class EnvironmentTable(Table):
    """A separate environment for runtimes: `[tool.exporter.environments.NAME]`.

    It is created at its first use, with `venv` and your configuration of pip.
    """

    requirements: Annotated[Items[fields.Requirement], Field(min_length=1)]
    """The packages as pip reads them: `["onnxruntime==1.17.3", "numpy<2"]`; or packages of npm for
    the runtime `web`: `["npm:onnxruntime-web@1.30"]`."""
    python: fields.Line | None = None
    """The interpreter, a path or a name on `PATH` (`"python3.10"`), at least Python 3.8. Without
    it, the Python of `exporter`."""


class ToolchainTable(Table):
    """Other packages for the export and the checks: `[tool.exporter.toolchains.NAME]`.

    Its cells have devices such as `"cpu@NAME"`. Its environment is created at its first use, with
    your configuration of pip, and also has all packages of the current one.
    """

    requirements: Annotated[Items[fields.Requirement], Field(min_length=1)]
    """The packages that differ, as pip reads them: `["onnxscript==0.6.2"]`. They and their
    dependencies replace those of the current environment."""


_WITH_LIMITS = tuple(kind.key for kind in LIMITS)


def _require_name(noun: str, known: Collection[str], otherwise: str) -> AfterValidator:
    def check(name: str) -> str:
        if name not in known:
            hint = suggest_nearest(name, known) or f"; {otherwise}"
            raise ValueError(f"no {noun} has the name {quote(name)}{hint}")
        return name

    return AfterValidator(check)


_LimitName = Annotated[
    str,
    _require_name("limit", _WITH_LIMITS, f"these have one: {join_words(_WITH_LIMITS)}"),
    WithJsonSchema({"type": "string", "enum": [*_WITH_LIMITS]}),
]
_FindingName = Annotated[
    str,
    _require_name("finding", FINDINGS, "docs/manifest-keys.md lists them"),
    WithJsonSchema({"type": "string", "enum": [*FINDINGS]}),
]


class ModelGateTable(Table):
    """Other policies for some models: `[tool.exporter.gate.models.NAME]`."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(FINDINGS, "add the name to `block`, `warn` or `ignore`"),
        **dict.fromkeys(
            ("error_factor", "file_growth", "node_growth", "latency_factor", "load_factor"),
            "use `limits`, such as `limits = { error_grown = 10, file_grown = 1.1 }`",
        ),
    }

    block: Items[_FindingName] = ()
    """The findings that block a merge."""
    warn: Items[_FindingName] = ()
    """The findings that print a warning."""
    ignore: Items[_FindingName] = ()
    """The findings that are not reported."""
    limits: dict[_LimitName, Annotated[float, Field(ge=1, allow_inf_nan=False)]] = Field(
        default_factory=dict
    )
    """The factors by which a figure may grow, by the name of the finding: `{ error_grown = 10,
    file_grown = 1.01 }`. Errors up to a tenth of the allowed error are never drift."""


class GateTable(ModelGateTable):
    """The gate's policy. A finding that is in no list has its default."""

    models: dict[str, ModelGateTable] = Field(default_factory=dict)
    """Other policies for some models, with the keys above: `[tool.exporter.gate.models.NAME]`, with
    an ID or a pattern such as `"resnet*"`. What it does not name keeps the general policy. If two
    match a model, the later one wins."""


class EvidenceTable(Table):
    """A device that this machine may lack: `[tool.exporter.evidence]`; see `publish.md`."""

    age: Age
    """The maximum age of its measurements, such as `"30d"`. If a cell of the device is unavailable
    and has no measurement of another machine with its current file, the gate has a finding."""
    elsewhere: bool = False
    """Measured on other machines only: an export leaves its cells `unavailable` on each machine."""


def _reject_list(value: object) -> object:
    if isinstance(value, list | tuple):
        fix = "use `devices` of [tool.exporter.defaults] for a list"
        raise ValueError(f"expected tables that define devices; {fix}")
    return value


class ProjectTable(ProjectKeys):
    """`[tool.exporter]`."""

    defaults: Settings = Field(default_factory=Settings)
    """Settings for all models of the project, as `[defaults]` for those of a file."""
    devices: Annotated[dict[str, DeviceTable], BeforeValidator(_reject_list)] = Field(
        default_factory=dict
    )
    """Tables `[tool.exporter.devices.NAME]`: additional devices. The built-in ones are cpu, cuda,
    tensorrt, coreml, directml (ONNX Runtime), openvino and reference."""
    environments: dict[str, EnvironmentTable] = Field(default_factory=dict)
    """Tables `[tool.exporter.environments.NAME]`: separate environments for runtimes, such as older
    releases of ONNX Runtime."""
    toolchains: dict[str, ToolchainTable] = Field(default_factory=dict)
    """Tables `[tool.exporter.toolchains.NAME]`: other packages, such as another onnxscript. The
    device `"cpu@NAME"` exports and checks the files with them."""
    evidence: dict[fields.Line, EvidenceTable] = Field(default_factory=dict)
    """The devices whose unavailable cells need measurements of other machines for the gate:
    `cuda = { age = "30d" }`."""
    gate: GateTable = Field(default_factory=GateTable)
    """The findings of `exporter gate` that stop a merge, and the thresholds of drift."""
