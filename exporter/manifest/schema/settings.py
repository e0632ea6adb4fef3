"""What users write in `[tool.exporter]` of pyproject.toml; `project.py` completes it.

In: the table that tomli read. Out: a frozen, typed table. See `entry.py` for the conventions.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Tag

from exporter.core.command_names import DEFAULT_COMMAND
from exporter.core.frozen_model import Items
from exporter.manifest.schema.fields import (
    Command,
    Folder,
    Line,
    Memory,
    Opsets,
    RuntimeName,
    Timeout,
    discriminate_form,
)
from exporter.manifest.schema.store import Age, StoreFolder
from exporter.manifest.schema.tables import Table, ToleranceTable
from exporter.manifest.spec.gate import GatePolicy
from exporter.manifest.spec.model import Style


class DeviceTable(Table):
    """A runtime and where it runs: `[tool.exporter.devices.NAME]`."""

    runtime: RuntimeName
    """`"onnxruntime"`, `"openvino"`, `"reference"` (onnx.reference), or `"backend"`: any module
    that implements the ONNX backend API."""
    providers: Items[Line] = ()
    """Execution providers of ONNX Runtime, first choice first."""
    strict: bool = False
    """Every node has to run on the first provider. Without it some may run elsewhere: they are
    counted and named."""
    module: Line | None = None
    """The ONNX backend, such as `"onnxruntime.backend"`: a module with `prepare`, or
    `"package.module:Class"`."""
    device: Line | None = None
    """What the ONNX backend (`"CUDA:0"`) or OpenVINO (`"GPU"`) calls it; without it `"CPU"`."""


class ModelGateTable(GatePolicy, Table):
    """Other policies for some models: `[tool.exporter.gate.models.NAME]`."""


class GateTable(GatePolicy, Table):
    """The gate's policy: `"block"` fails, `"warn"` says it and passes, `"ignore"` says nothing."""

    models: dict[str, ModelGateTable] = Field(default_factory=dict)
    """Other policies for some models, each with the keys above: `[tool.exporter.gate.models.NAME]`,
    where NAME is an ID or a pattern such as `"resnet*"`. What it does not say stays as it is here;
    of two that mean a model, the later one wins."""


Names = Annotated[Items[Line], Field(min_length=1)]
DevicesField = Annotated[
    Annotated[Names, Tag("<list>")] | Annotated[dict[str, DeviceTable], Tag("<table>")],
    discriminate_form("expected a list of device names, or a table that defines devices"),
]


class ProjectTable(Table):
    """`[tool.exporter]`."""

    manifests: Folder = "manifests"
    """The folder of the manifests; every `*.toml` in it and below is read."""
    build: Folder = "build"
    """Where artifacts go; not for git."""
    reports: Folder = "reports"
    """Where tables and the baseline go; for git."""
    templates: Folder = "templates"
    """Searched for templates before the packaged ones: see `templates.md`."""
    store: StoreFolder = ""
    """Where finished cells are kept by what they were made from, so that another branch, or an edit
    that is undone, costs nothing. Without it in the build folder; `"~/.cache/exporter"` or
    `"../store"` is shared by all checkouts that name it; `"off"` keeps none. The environment
    variable `EXPORTER_STORE` goes first."""
    store_size: Memory | None = None
    """Disk space that the store may take; what was not used for longest goes first. Without it
    10 GiB."""
    store_age: Age | None = None
    """How long the store keeps what nobody uses, such as `"30d"` or `"8w"`. Without it 90 days."""
    style: Style = "emoji"
    """How a status is shown: `"emoji"`, by a symbol; `"text"`, by its word, and by a letter where
    there is no room, for readers and programs that show no symbols."""
    command: Command = DEFAULT_COMMAND
    """How messages and pages spell a command, `{}` being its name: `"uv run exporter {}"`, or
    `"nox -s {} --"` where sessions of nox are named like the commands."""
    opsets: Opsets = Field(default_factory=tuple)
    """Opsets of models that name none."""
    devices: DevicesField = ()
    """A list: devices of models that name none. Tables `[tool.exporter.devices.NAME]`: devices
    besides the built-in ones, which are cpu, cuda, tensorrt, coreml, directml (ONNX Runtime),
    openvino and reference."""
    default_devices: Names = ("cpu",)
    """Devices of models that name none, for projects where `devices` holds tables."""
    tolerance: ToleranceTable = Field(default_factory=ToleranceTable)
    """Tolerance of models that name none."""
    jobs: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Workers at once; without it: as many as cores and memory allow."""
    timeout: Timeout = 600.0
    """Timeout of models that name none."""
    thorough: bool = False
    """Whether models that say nothing of it are tried at more sizes and values."""
    memory: Memory | None = None
    """Memory of models that name none."""
    gate: GateTable = Field(default_factory=GateTable)
    """Which findings of `exporter gate` stop a merge, and what counts as drift."""
