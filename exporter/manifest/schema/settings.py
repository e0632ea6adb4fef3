"""The tables of `[tool.exporter]` in pyproject.toml, with the conventions of `entry.py`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, PlainValidator, Tag, WithJsonSchema

from exporter.core.errors import suggest_nearest
from exporter.core.frozen_model import Items
from exporter.core.text import DEFAULT_COMMAND, NAME_PLACEHOLDER
from exporter.manifest.resolved.model import Style
from exporter.manifest.resolved.project import (
    DEFAULT_STORE_TIMEOUT,
    REMOTE_SCHEMES,
    EngineKind,
    GatePolicy,
    Optimization,
    Proof,
    Sandbox,
    is_remote,
    split_url,
)
from exporter.manifest.schema.tables import ToleranceTable
from exporter.manifest.syntax import fields
from exporter.manifest.syntax.table import Table
from exporter.manifest.syntax.values import quote, unexpected_value

_DAYS = {"h": 1 / 24, "d": 1.0, "w": 7.0}
#: A hundred years, the upper limit of an age.
_MAX_DAYS = 36_500


def _parse_age(value: object) -> float:
    """Return seconds."""
    if isinstance(value, str):
        match = re.fullmatch(r"(\d{1,6}) ?([hdw])", value, re.ASCII)
        if match and 0 < (days := int(match[1]) * _DAYS[match[2]]) <= _MAX_DAYS:
            return days * 24 * 3600
    raise unexpected_value('an age such as "12h", "30d" or "8w"', value)


def check_store(value: str) -> str:
    """Return the value of `store` if it is a folder or a URL.

    Raises:
        ValueError: if it is neither.
    """
    return _check_url(value) if is_remote(value) else _check_store_folder(value)


def _check_url(value: str) -> str:
    scheme, rest = split_url(value)
    if scheme not in REMOTE_SCHEMES:
        schemes = ", ".join(f"{each}://" for each in REMOTE_SCHEMES)
        nearest = suggest_nearest(scheme, REMOTE_SCHEMES)
        message = f"{quote(value)} has the unknown scheme {quote(scheme)}; possible are {schemes}"
        raise ValueError(f"{message}{nearest}")
    host, *parts = rest.rstrip("/").split("/")
    if "@" in host:
        message = "the URL contains a user or a password; use the settings of the package"
        raise ValueError(f"{message}, such as environment variables")
    is_local = scheme == "file"
    if bool(host) == is_local or not all(parts) or ".." in parts or re.search(r"[?#\\]", rest):
        form = "file:///srv/store" if is_local else f"{scheme}://bucket/prefix"
        raise unexpected_value(f'a URL such as "{form}"', value)
    return value.rstrip("/")


def _check_store_folder(value: str) -> str:
    parts = value.removeprefix("/").removeprefix("~/").split("/")
    if not all(parts) or "." in parts or parts[0].startswith("~") or re.search(r"[\\:]", value):
        raise unexpected_value(
            'a folder such as "~/.cache/exporter" or "../store", a URL such as '
            '"s3://bucket/prefix", or "off"',
            value,
        )
    return value


Age = Annotated[
    float,
    PlainValidator(_parse_age),
    WithJsonSchema({"type": "string", "examples": ["12h", "30d", "8w"]}),
]
StorePlace = Annotated[fields.Line, AfterValidator(check_store)]


def _check_command(value: str) -> str:
    if value.count(NAME_PLACEHOLDER) != 1 or "`" in value:
        raise unexpected_value("one '{}' for the name of the command, and no backtick", value)
    return value


def _check_folder(value: str) -> str:
    parts = value.split("/")
    if not all(parts) or ".." in parts or "." in parts or re.search(r"[\\:]", value):
        raise unexpected_value('a folder inside the project, such as "out/build"', value)
    return value


def _check_cluster(value: str) -> str:
    file, _, name = value.rpartition(":")
    parts = file.split("/")
    if not file.endswith(".py") or not all(parts) or ".." in parts or not name.isidentifier():
        raise unexpected_value('a function of the project, such as "cluster.py:make"', value)
    return value


Command = Annotated[fields.Line, AfterValidator(_check_command)]
SchedulerAddress = Annotated[
    fields.Line,
    fields.require_match(
        r"(tcp|tls|ws|wss)://[^\s/@]+:\d{1,5}",
        'the address of a scheduler, such as "tcp://10.0.0.1:8786"',
    ),
]
ClusterFunction = Annotated[fields.Line, AfterValidator(_check_cluster)]
Folder = Annotated[fields.Line, AfterValidator(_check_folder)]


OptionValue = bool | int | float | fields.Line


class DeviceTable(Table):
    """A runtime with its device: `[tool.exporter.devices.NAME]`."""

    runtime: fields.RuntimeName
    """`"onnxruntime"`, `"openvino"`, `"reference"` (onnx.reference), `"tract"`, `"web"` (ONNX
    Runtime Web in Node), `"backend"` (any
    module that implements the ONNX backend API), or the name of an installed plugin. A plugin is an
    entry point of the group `exporter.runtimes`."""
    providers: Items[fields.Line] = ()
    """Execution providers of ONNX Runtime, first choice first."""
    strict: bool = False
    """Every node has to run on the first provider. Without it some may run on other providers:
    the report counts and lists them."""
    module: fields.Line | None = None
    """The ONNX backend, such as `"onnxruntime.backend"`: a module with `prepare`, or
    `"package.module:Class"`."""
    device: fields.Line | None = None
    """The device of the ONNX backend (`"CUDA:0"`) or OpenVINO (`"GPU"`); without it `"CPU"`."""
    environment: fields.Line | None = None
    """The environment with the runtime, from `[tool.exporter.environments.NAME]`. The file runs in
    a process of it, which needs only the runtime and numpy. Without it, the workers' environment.
    Plugins and `custom_ops` in Python need the workers' environment."""
    optimization: Optimization | None = None
    """The graph optimizations of ONNX Runtime; without it, its default (`"all"`)."""
    session_options: dict[fields.Line, OptionValue] = Field(default_factory=dict)
    """Options of ONNX Runtime's session: attributes of `SessionOptions` such as
    `enable_mem_pattern = false`, and config entries, which contain a dot:
    `"session.set_denormal_as_zero" = true`. With OpenVINO, properties of the compiled model."""
    provider_options: dict[fields.Line, dict[fields.Line, OptionValue]] = Field(
        default_factory=dict
    )
    """Options of the execution providers: `CUDAExecutionProvider = { device_id = 1 }`."""
    provider_library: fields.Line | None = None
    """The shared library of the first provider, if it is a plugin (ONNX Runtime 1.23 or later): a
    path from the project's folder, an absolute path, or a function of a package in the environment
    that returns the path, such as `"onnxruntime_ep_openvino:get_library_path"`."""
    variables: dict[fields.Variable, fields.Line] = Field(default_factory=dict)
    """Environment variables of the device's process, which needs `environment`, such as
    `VK_ICD_FILENAMES = "/usr/lib/chromium/vk_swiftshader_icd.json"`. Absolute paths must exist,
    otherwise the cells are `unavailable`."""
    proof: Proof = "short"
    """The proof after an earlier device of the entry proved the promises of the file. `"full"` runs
    all checks again. `"short"` compares the declared inputs, the cases, another size of each axis
    and one set of special values, and runs all checks if one differs."""


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


class ModelGateTable(GatePolicy, Table):
    """Other policies for some models: `[tool.exporter.gate.models.NAME]`."""


class GateTable(GatePolicy, Table):
    """The gate's policy: `"block"` fails, `"warn"` prints a warning, `"ignore"` hides it."""

    models: dict[str, ModelGateTable] = Field(default_factory=dict)
    """Other policies for some models, each with the keys above: `[tool.exporter.gate.models.NAME]`,
    with an ID or a pattern such as `"resnet*"` for NAME. Keys that are not set keep the value of
    the general policy. If two match a model, the later one wins."""


class EngineTable(Table):
    """The machines that run the jobs: `[tool.exporter.engine]`; see `clusters.md`."""

    kind: EngineKind = "local"
    """`"local"` uses worker processes of this machine, `"dask"` the hosts of a Dask cluster. The
    option `--engine` takes precedence."""
    scheduler: SchedulerAddress | None = None
    """The address of a Dask scheduler, such as `"tcp://10.0.0.1:8786"`. The option `--scheduler`
    takes precedence. Without `scheduler` and `cluster`, a cluster starts on this machine."""
    cluster: ClusterFunction | None = None
    """A function of the project that returns a cluster of Dask, such as `"cluster.py:make"`."""
    workers: Annotated[int, Field(ge=1, le=1024)] | None = None
    """The parallel jobs of the cluster on this machine; without it, `jobs`."""


class EvidenceTable(Table):
    """A device that this machine may lack: `[tool.exporter.evidence]`; see `publish.md`."""

    age: Age
    """The maximum age of its measurements, such as `"30d"`. If a cell of the device is unavailable
    and has no measurement of another machine with its current file, the gate has a finding."""
    elsewhere: bool = False
    """Measured on other machines only: an export leaves its cells `unavailable` on each machine."""


Names = Annotated[Items[fields.Line], Field(min_length=1)]
DevicesField = Annotated[
    Annotated[Names, Tag("<list>")] | Annotated[dict[str, DeviceTable], Tag("<table>")],
    fields.discriminate_form("expected a list of device names, or a table that defines devices"),
]


class ProjectTable(Table):
    """`[tool.exporter]`."""

    manifests: Folder = "manifests"
    """The folder of the manifests; every `*.toml` in it and in its subfolders is read."""
    build: Folder = "build"
    """The build folder; keep it out of git."""
    reports: Folder = "reports"
    """The folder of the tables and the baseline; commit it."""
    templates: Folder = "templates"
    """Templates that replace the packaged ones: see `api.md`."""
    store: StorePlace = ""
    """The folder that stores finished cells, addressed by their inputs: another branch or an undone
    edit restores them without a new export. Without it, the store is in the build folder. All
    checkouts with the same `"~/.cache/exporter"` or `"../store"` share it; `"off"` disables it. A
    URL, such as `"s3://bucket/prefix"`, is a remote store beside the one in the build folder: see
    `store.md`. If the environment variable `EXPORTER_STORE` is set, it takes precedence."""
    store_size: fields.Memory | None = None
    """The limit of the store's disk space; the least recently used entries are evicted first.
    Without it: 10 GiB."""
    store_age: Age | None = None
    """The maximum age of unused entries in the store, such as `"30d"` or `"8w"`. Without it: 90
    days."""
    store_timeout: fields.Timeout = DEFAULT_STORE_TIMEOUT
    """The time that a run waits for a remote store, in total. After it, the missing cells run and
    the remaining uploads are dropped."""
    store_key: fields.Line | None = None
    """The file with the key that signs the entries of a remote store, relative to the project or
    to the home directory (`~`). Entries that are not signed with the key are ignored. If the
    environment variable `EXPORTER_STORE_KEY` is set, it contains the key."""
    style: Style = "emoji"
    """The form of a status: `"emoji"` uses a symbol. `"text"` uses its word, or a letter in narrow
    columns, for readers and programs without symbols."""
    timings: bool = False
    """Whether the pages of models show the seconds of stages and checks. They change
    with the run and the machine."""
    command: Command = DEFAULT_COMMAND
    """The form of commands in messages and pages, with `{}` for the name: `"uv run exporter {}"`,
    or `"nox -s {} --"` if sessions of nox have the names of the commands."""
    environment: Items[fields.Variable] = ()
    """Environment variables that workers receive, besides `PATH`, `HOME`, `CUDA_VISIBLE_DEVICES`
    and other names that drivers and PyTorch read: `["HF_ENDPOINT", "MY_*"]`. If a value changes,
    all cells are stale. The locale of workers is UTF-8 and their time zone is UTC, unless `LC_*` or
    `TZ` is listed. Workers receive secrets, and URLs with a user or a password, only if they are
    listed. The name of a secret (`*TOKEN*`, `*PASSWORD*`, `*_KEY` and so on) counts and its value
    does not; a URL counts without user and password."""
    sandbox: Sandbox = "none"
    """`"landlock"` restricts workers (Linux 6.12 or later, without privileges): a model can write
    only to the folder of its job, has no TCP, and can neither signal nor open other processes. It
    can read all files. SECURITY.md has a command that also hides networks and processes."""
    opsets: fields.Opsets = Field(default_factory=tuple)
    """Opsets of models without `opsets`."""
    devices: DevicesField = ()
    """A list: devices of models without `devices`. Tables `[tool.exporter.devices.NAME]`:
    additional devices. The built-in ones are cpu, cuda, tensorrt, coreml, directml (ONNX Runtime),
    openvino and reference."""
    environments: dict[str, EnvironmentTable] = Field(default_factory=dict)
    """Tables `[tool.exporter.environments.NAME]`: separate environments for runtimes, such as older
    releases of ONNX Runtime."""
    toolchains: dict[str, ToolchainTable] = Field(default_factory=dict)
    """Tables `[tool.exporter.toolchains.NAME]`: other packages, such as another onnxscript. The
    device `"cpu@NAME"` exports and checks the files with them."""
    default_devices: Names = ("cpu",)
    """Devices of models without `devices`, if `devices` of the project contains tables."""
    tolerance: ToleranceTable = Field(default_factory=ToleranceTable)
    """Tolerance of models without `tolerance`."""
    jobs: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Number of parallel workers; without it: as many as cores and memory allow."""
    timeout: fields.Timeout = 600.0
    """Timeout of models without `timeout`."""
    thorough: bool = False
    """`thorough` of models without it."""
    memory: fields.Memory | None = None
    """Memory limit of models without `memory`."""
    engine: EngineTable = Field(default_factory=EngineTable)
    """The machines that run the jobs."""
    evidence: dict[fields.Line, EvidenceTable] = Field(default_factory=dict)
    """The devices whose unavailable cells need measurements of other machines for the gate:
    `cuda = { age = "30d" }`."""
    gate: GateTable = Field(default_factory=GateTable)
    """The findings of `exporter gate` that stop a merge, and the thresholds of drift."""
