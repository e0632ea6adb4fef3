"""The resolved manifest: what every later module works with.

In: nothing. Out: `Manifest` with its `Project` and one `ModelSpec` per model, in which every
default is filled in, every axis has its example size, and every name has been checked.

The format that users write is `entry.py`; `resolve.py` turns the one into the other.
"""

from __future__ import annotations

import posixpath
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Literal

from pydantic import Field

from exporter.core.command_names import DEFAULT_COMMAND
from exporter.core.errors import Location
from exporter.core.frozen_model import FrozenModel, Items, Plain
from exporter.manifest.spec.call import (
    Axis,
    Case,
    Constant,
    Container,
    Input,
    InputsFrom,
    TensorSpec,
)
from exporter.manifest.spec.gate import DEFAULT_GATE, Gate
from exporter.manifest.spec.store import DEFAULT_STORE_AGE, DEFAULT_STORE_SIZE
from exporter.manifest.syntax.tensor_files import split_data_file

ExporterName = Literal["dynamo", "torchscript"]
CaptureName = Literal["export", "strict", "trace", "script"]
Mode = Literal["eval", "train", "keep"]
Precision = Literal["float32", "float16", "bfloat16", "float64"]
Runtime = Literal["onnxruntime", "openvino", "reference", "backend"]
#: How reports show a status: by a symbol, or by its word.
Style = Literal["emoji", "text"]
#: What an output is: one tensor, or a list of them.
Kind = Literal["tensor", "sequence"]


class Bound(FrozenModel):
    """How far a float output may be off: by hand (`atol`, `rtol`), or as a multiple of noise."""

    atol: float | None = None
    rtol: float | None = None
    outside: float = 0.0
    """The share of elements that may lie beyond `atol + rtol * |expected|`."""
    noise: float | None = None
    """Allowed error as a multiple of PyTorch's own float32 error against float64."""


class Tolerance(Bound):
    """A bound, and the bounds that replace it for a dtype (`float16`) or a device (`cuda`)."""

    by_dtype: dict[str, Bound] = Field(default_factory=dict)
    by_device: dict[str, Bound] = Field(default_factory=dict)


class Output(TensorSpec):
    """One output of the graph, in order."""

    kind: Kind = "tensor"
    """Of a `sequence`, shape and dtype are those of each item."""
    tolerance: Tolerance | None = None


class CustomOp(FrozenModel):
    """How an operator of PyTorch's is exported, and the kernels of what comes of it.

    The functions and classes are `file.py:attribute` relative to the manifest, or
    `package.module:attribute`; what is empty was not said.
    """

    name: str
    """`aten::stft` under TorchScript, `aten.stft.default` under dynamo; of kernels alone the
    file's operator, `domain::Operator`."""
    symbolic: str = ""
    onnxscript: str = ""
    translation: str = ""
    opset: int = 1
    """The first opset that this holds for."""
    ort_library: str = ""
    """A path relative to the manifest, or a function that returns one."""
    reference: str = ""

    @property
    def has_only_kernels(self) -> bool:
        """Whether it says nothing of the export."""
        return not (self.symbolic or self.onnxscript or self.translation)


class ParameterNames(FrozenModel):
    """What the file calls the weights: one of the three is set."""

    template: str = ""
    """For all parameters in their order, `{}` being the number from 0."""
    names: Items[str] = ()
    """One for each parameter, in their order."""
    patterns: dict[str, str] = Field(default_factory=dict)
    """By a glob over the names in `state_dict`; `{}` is the number among those that it means."""


class Condition(FrozenModel):
    """Which cells of the model are meant."""

    opsets: Items[int] | None = None
    """None: every opset."""
    device: str = "*"
    """A glob over device names."""


class Expectation(Condition):
    """A foreseen failure. Strict: a pass, another stage or another message is red."""

    stage: str | None = None
    check: str | None = None
    match: str = ""
    """A part of the message, compared without regard to case."""
    reason: str
    issue: str = ""
    until: str = ""
    """The last day (ISO 8601) on which the failure is accepted; empty: no end."""


class Skip(Condition):
    """Cells that are not run; the report shows the reason."""

    reason: str


class Override(Condition):
    """Other settings for some cells of a model; None and empty tables say nothing."""

    exporter: Literal["auto", "dynamo", "torchscript"] | None = None
    capture: CaptureName | None = None
    ir_version: int | None = None
    options: dict[str, Plain] = Field(default_factory=dict)
    """Laid over those of the model, key by key."""
    tolerance: Tolerance | None = None
    outputs: dict[str, Tolerance] = Field(default_factory=dict)
    """Tolerances of single outputs, by name."""

    def apply_to(self, spec: ModelSpec) -> ModelSpec:
        """The contract with what this says of it."""
        update: dict[str, object] = {"options": {**spec.options, **self.options}}
        if self.exporter is not None:
            # A capture belongs to one exporter: the other's own comes with it.
            update |= {"exporter": self.exporter, "capture": self.capture}
        if self.capture is not None:
            update["capture"] = self.capture
        if self.ir_version is not None:
            update["ir_version"] = self.ir_version
        if self.tolerance is not None:
            update["tolerance"] = self.tolerance
        if self.outputs:
            update["outputs"] = tuple(
                output.model_copy(update={"tolerance": self.outputs[output.name]})
                if output.name in self.outputs
                else output
                for output in spec.outputs
            )
        return spec.model_copy(update=update)


class ModelSpec(FrozenModel):
    """The whole contract of one model, with nothing left to look up."""

    id: str
    manifest: str
    """The manifest file, relative to the project's root, with forward slashes."""
    line: int
    """The line of the entry's header in that file."""
    description: str = ""
    owner: str = ""
    tags: Items[str] = ()
    source: str
    """`file.py:attr` relative to the manifest, `package.module:attr`, or a saved model: `net.pt2`
    (dynamo's) or `net.pt` (TorchScript's), relative to the manifest."""
    weights: str = ""
    """A file to load into the model, relative to the manifest; empty where there is none."""
    weights_sha256: str = ""
    """In lower case; empty where any content will do."""
    init: dict[str, Plain] = Field(default_factory=dict)
    seed: int = 0
    mode: Mode = "eval"
    precision: Precision | None = None
    """What the model is cast to; None: it stays as it is built."""
    export_device: str = "cpu"
    """Where the model is while it runs in PyTorch and is exported."""
    exporter: Literal["auto", "dynamo", "torchscript"] = "auto"
    capture: CaptureName | None = None
    """None: `export` under dynamo, `trace` under TorchScript."""
    opsets: Items[int]
    devices: Items[str]
    ir_version: int | None = None
    inputs: Items[Input]
    outputs: Items[Output]
    axes: Items[Axis] = ()
    """Every axis name of the inputs and outputs, in order of first appearance."""
    parameters: ParameterNames | None = None
    """None: weights keep the names that they have in the model."""
    constants: Items[Constant] = ()
    containers: Items[Container] = ()
    inputs_from: InputsFrom | None = None
    cases: Items[Case] = ()
    tolerance: Tolerance = Tolerance()
    options: dict[str, Plain] = Field(default_factory=dict)
    custom_ops: Items[CustomOp] = ()
    expect: Items[Expectation] = ()
    skip: Items[Skip] = ()
    overrides: Items[Override] = ()
    """In order: of two that mean a cell, the later one wins."""
    latency: bool = False
    """Whether the file's time is measured beside PyTorch's."""
    thorough: bool = False
    """Whether more sizes and values are tried than by default."""
    timeout: float
    """Seconds that the model's job may take."""
    memory: int | None = None
    """Bytes of address space that the model's job may take beyond PyTorch itself."""

    @property
    def location(self) -> Location:
        """Where it is promised: `manifests/vision.toml:14`."""
        return Location(file=self.manifest, line=self.line)

    @property
    def weights_are_inputs(self) -> bool:
        """Whether the file takes its weights as inputs."""
        return self.options.get("export_params") is False

    @property
    def is_saved_program(self) -> bool:
        """Whether the source is a saved `ExportedProgram`."""
        return self.source.endswith(".pt2")

    @property
    def is_saved_script(self) -> bool:
        """Whether the source is a saved TorchScript module."""
        return self.source.endswith(".pt")

    @property
    def data_files(self) -> tuple[str, ...]:
        """The files that the model and its inputs come from, relative to the root; no code."""
        source = (self.source,) if self.is_saved_program or self.is_saved_script else ()
        filled = [item.fill.file for item in self.inputs if item.fill.file]
        filled += [text for case in self.cases for text in case.files.values()]
        own = dict.fromkeys(split_data_file(text)[0] for text in filled)
        names = (*source, *((self.weights,) if self.weights else ()), *own)
        folder = posixpath.dirname(self.manifest)
        return tuple(posixpath.normpath(posixpath.join(folder, name)) for name in names)

    def find_axis(self, name: str) -> Axis:
        """The axis of that name. Raises KeyError where there is none."""
        for axis in self.axes:
            if axis.name == name:
                return axis
        raise KeyError(name)

    def resolve_cell(self, opset: int, device: str | None = None) -> ModelSpec:
        """The contract of one cell, its overrides applied; those for devices only with one."""
        spec = self
        for override in self.overrides:
            right_opset = override.opsets is None or opset in override.opsets
            if right_opset and (
                override.device == "*"
                or (device is not None and fnmatchcase(device, override.device))
            ):
                spec = override.apply_to(spec)
        return spec


class Device(FrozenModel):
    """A runtime and where it runs."""

    name: str
    runtime: Runtime
    providers: Items[str] = ()
    """ONNX Runtime execution providers, first choice first."""
    strict: bool = False
    """Whether every node has to run on the first provider."""
    module: str = ""
    """`package.module`, or `package.module:Class`, of an ONNX backend."""
    device: str = ""
    """What the backend or OpenVINO calls it; empty: `CPU`."""


class Project(FrozenModel):
    """`[tool.exporter]` of pyproject.toml, completed. Paths are relative to `root`."""

    root: str
    manifests: str = "manifests"
    build: str = "build"
    reports: str = "reports"
    templates: str = "templates"
    store: str = ""
    """From `root`, from the home directory (`~`) or absolute; `off`: none; empty: in the build
    folder."""
    store_size: int = DEFAULT_STORE_SIZE
    """Bytes."""
    store_age: float = DEFAULT_STORE_AGE
    """Seconds."""
    devices: Items[Device]
    jobs: int | None = None
    """Models at work at once; None: one per core."""
    gate: Gate = DEFAULT_GATE
    style: Style = "emoji"
    command: str = DEFAULT_COMMAND
    """What a person types; `{}` is the name of the command."""

    def find_device(self, name: str) -> Device:
        """The device of that name. Raises KeyError where there is none."""
        for device in self.devices:
            if device.name == name:
                return device
        raise KeyError(name)


class Manifest(FrozenModel):
    """Every model of the project, in order of file and place."""

    project: Project
    models: Items[ModelSpec]

    def find_model(self, id: str) -> ModelSpec:
        """The model of that ID. Raises KeyError where there is none."""
        return self._by_id[id]

    @cached_property
    def _by_id(self) -> dict[str, ModelSpec]:
        return {model.id: model for model in self.models}
