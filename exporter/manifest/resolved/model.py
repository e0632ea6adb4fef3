"""The resolved entry of a manifest: a `ModelSpec` for each model.

All defaults are set, every axis has its example size, and every name is checked. The tables that
users write are in `schema`; `loader.py` converts them.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from exporter.core.device_name import DeviceName
from exporter.core.errors import Location
from exporter.core.frozen_model import FrozenModel, Items, Plain
from exporter.manifest.resolved.call import (
    Axis,
    Case,
    Constant,
    Container,
    Input,
    InputsFrom,
    SizeRule,
    TensorSpec,
    complete_sizes,
)
from exporter.manifest.syntax.fields import Amount, Factor, Line, Variable
from exporter.manifest.syntax.values import split_data_file

Measure = Literal["latency", "load", "memory"]


class Condition(FrozenModel):
    """A selection of cells of the model."""

    opsets: Items[int] | None = None
    """None: every opset."""
    device: str = "*"
    """A glob over device names. Without `@`, it matches a device in all toolchains."""
    toolchain: str = "*"
    """A glob over toolchains; `current` is the name of the project's own packages."""


class Expectation(Condition):
    """A foreseen failure. Strict: if the cell passes or fails otherwise, it is red."""

    stage: str | None = None
    checks: tuple[str, ...] = ()
    """The checks that fail; empty for a stage that fails without a check."""
    match: str = ""
    reason: str
    issue: str = ""
    until: str = ""
    """The last day (ISO 8601) on which the failure is accepted; empty if it has no end."""
    torch: str = ""
    """The versions of torch with which it fails; empty: all."""


class Skip(Condition):
    """Cells that are not run. The report shows the reason."""

    reason: str


ExporterName = Literal["dynamo", "torchscript"]
CaptureName = Literal["export", "strict", "draft", "trace", "script"]
#: The state of PyTorch during an export; see `worker/model/torch_state.py`.
ExportState = Literal["inference", "plain"]
Mode = Literal["eval", "train", "keep"]
Precision = Literal["float32", "float16", "bfloat16", "float64"]
#: How reports show a status: a symbol or a word.
Style = Literal["emoji", "text"]
#: The place of the opset in the path of an artifact.
OPSET_PLACEHOLDER = "{opset}"
#: An output is one tensor or a list of tensors.
Kind = Literal["tensor", "sequence"]
NUMBER_PLACEHOLDER = "{}"  # for the number of a weight in its name


class Bound(FrozenModel):
    """The allowed error of a float output: `atol` and `rtol`, or a multiple of the noise."""

    atol: Amount | None = None
    """Absolute tolerance; 0 if only `rtol` is set."""
    rtol: Amount | None = None
    """Relative tolerance; 0 if only `atol` is set."""
    outside: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The share of elements that may exceed `atol + rtol * |expected|`."""
    noise: Factor | None = None
    """The allowed error as a multiple of PyTorch's own float32 error, instead of `atol`, `rtol`;
    8 by default. An explicit factor also declares that an error of PyTorch above 1e-3 of the scale
    is rounding. Without it, the result of a doubtful file is `inconclusive`."""

    steps: Factor | None = None
    """The allowed error of a quantized output, as a multiple of the scale from which PyTorch
    dequantizes it: `steps = 1` allows one unit of the integers. An output that PyTorch does not
    dequantize from one scale needs another tolerance."""

    @property
    def is_set(self) -> bool:
        values = (self.atol, self.rtol, self.noise, self.steps)
        return bool(self.outside) or any(value is not None for value in values)


class Tolerance(Bound):
    """A bound, and the bounds that replace it for a dtype (`float16`) or a device (`cuda`)."""

    by_dtype: dict[str, Bound] = Field(default_factory=dict)
    by_device: dict[str, Bound] = Field(default_factory=dict)


class Comparator(FrozenModel):
    """The comparison of an output in place of its tolerance; exactly one kind."""

    rows: Literal["unordered"] | None = None
    """Rows may have any order: each row of the file is compared with the nearest row of PyTorch,
    within the tolerance of the output. The counts must be equal. The rows are the last but one
    dimension of the output, or its only one."""
    along: Items[Line] = ()
    """With `rows`: outputs whose rows belong to those of this output, such as scores and labels."""
    cosine: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The smallest cosine of the angle to PyTorch's values, of the output and of each row along its
    first axis. The length may differ by the same error: 4.5 % for 0.999."""
    sqnr: Annotated[float, Field(gt=0, le=200)] | None = None
    """The smallest ratio of signal to noise in dB, of the output and of each row along its first
    axis."""
    top_k: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """The number of largest values in each row along the last axis that must be at the positions of
    PyTorch's, in any order. Positions of values that differ by rounding are equal."""
    call: str = ""
    """`"file.py:function"`, relative to the manifest: called with the array of the file and that of
    PyTorch, it returns an error and its bound. Sizes of axes that no input has may differ."""


class Output(TensorSpec):
    """One output of the graph, in order."""

    kind: Kind = "tensor"
    """If it is `sequence`, shape and dtype apply to each item."""
    tolerance: Tolerance | None = None
    compare: Comparator | None = None
    """None: the tolerance decides."""
    masked_by: str = ""
    """The input that is 1 at the positions to compare; empty if all are compared."""


class CustomOp(FrozenModel):
    """The export of an operator of PyTorch, and the kernels that run the result."""

    name: Line
    """PyTorch's operator: `"namespace::operator"` for TorchScript,
    `"namespace.operator.overload"` for dynamo. If the entry has only kernels: the operator of the
    file, `"domain::Operator"`."""
    symbolic: Line | None = None
    """TorchScript: `"file.py:function"`, called as `function(g, *arguments)`; it builds the nodes.
    As for `torch.onnx.register_custom_op_symbolic`."""
    onnxscript: Line | None = None
    """TorchScript: `"file.py:function"`, a function of onnxscript, which becomes a function in the
    file. Its inputs and attributes are the operator's arguments in order."""
    translation: Line | None = None
    """dynamo: `"file.py:function"`, written in onnxscript and called with the operator's arguments.
    As for `custom_translation_table` of `torch.onnx.export`."""
    opset: Annotated[int, Field(ge=1, le=99)] = 1
    """The first opset that this entry applies to. If an operator has
    several entries, the highest one that is not above the file's opset applies."""
    ort_library: Line | None = None
    """A library of kernels for ONNX Runtime: `"libfoo.so"`, relative to the manifest and inside
    the project, or `"package.module:function"` or `"file.py:function"`, which returns its path."""
    reference: Line | None = None
    """A kernel for onnx.reference: `"file.py:Class"`, an `onnx.reference.op_run.OpRun` with the
    operator's name and an `op_domain`."""

    @property
    def has_only_kernels(self) -> bool:
        """Whether the entry does not change the export."""
        return not (self.symbolic or self.onnxscript or self.translation)


class ParameterNames(FrozenModel):
    """The names of the weights in the file. One of the fields is set."""

    template: str = ""
    """For all parameters in their order; `{}` is the number from 0."""
    names: Items[str] = ()
    """One for each of the first parameters, in their order."""
    patterns: dict[str, str] = Field(default_factory=dict)
    """By a glob over the names in `state_dict`; `{}` is the number among the matching names."""


class Override(Condition):
    """Other settings for some cells of a model. None and empty tables change nothing."""

    exporter: Literal["auto", "dynamo", "torchscript", "transformers"] | None = None
    capture: CaptureName | None = None
    ir_version: int | None = None
    options: dict[str, Plain] = Field(default_factory=dict)
    """Merged over the options of the model, key by key."""
    tolerance: Tolerance | None = None
    outputs: dict[str, Tolerance] = Field(default_factory=dict)

    def apply_to(self, spec: ModelSpec) -> ModelSpec:
        update: dict[str, object] = {"options": {**spec.options, **self.options}}
        if self.exporter is not None:
            # A capture belongs to one exporter, so another exporter resets it.
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


class FilePass(FrozenModel):
    """A function of the project that writes another file from the exported one."""

    call: str
    """`file.py:function`, relative to the manifest, called with the paths `source` and `target`."""
    arguments: dict[str, Plain] = Field(default_factory=dict)


class Metric(FrozenModel):
    """A figure of the model and of the file; a larger one is better."""

    call: Line
    """`"file.py:function"`, relative to the manifest: called with a function that runs the model or
    the file, it returns a number. That function takes arrays by the names of the inputs, and
    returns arrays by the names of the outputs."""
    least: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """The smallest figure of the file."""
    drop: Amount | None = None
    """The largest difference by which the file's figure may be below PyTorch's."""


class StateNames(FrozenModel):
    """The place of a model's state in a file of weights, and its names there."""

    key: str = ""
    """The table with the weights, if the file has several: `"model"` of `{"model": ..., "epoch":
    3}`."""
    strip: str = ""
    """A prefix of the names in the file that the model does not have: `"module."`. Names without it
    are not loaded."""
    prefix: str = ""
    """A prefix of the names in the model that the file does not have: `"model."` of a wrapper."""

    def rename(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a file's table by their names in the model."""
        names = (name for name in table if name.startswith(self.strip))
        return {self.prefix + name.removeprefix(self.strip): table[name] for name in names}

    def format(self, file: str) -> str:
        """Return the keys of the table `weights`, as a manifest has them."""
        keys = {"file": file, **self.model_dump(exclude_defaults=True)}
        return ", ".join(f'{key} = "{value}"' for key, value in keys.items())


class Component(FrozenModel):
    """A component of a model of transformers, as its exporter splits the model."""

    name: Line
    """A name of the exporter: `"prefill"`, `"decode"`, an encoder such as `"image_encoder"`,
    `"language_model"`, or `"model"` for the complete model. A wrong name lists those of the
    model."""
    prompt: Line | None = None
    """`"file.py:function"`, relative to the manifest: returns the arguments of `generate`, by name;
    for the component `"model"`, those of `forward`. Without it: `dummy_inputs` of the model."""


class Rollout(FrozenModel):
    """A loop of a recurrent model, in PyTorch and with the file."""

    steps: Annotated[int, Field(ge=2, le=1000)]
    """The number of runs; the first one has the declared inputs."""
    feeds: Annotated[dict[Line, Line], Field(min_length=1)]
    """The input of the next step for each output that it gets: `{ "present.{layer}" =
    "past.{layer}" }` stands for all layers. If an integer input gets a float output, it receives
    the positions of its largest values, such as the next token from logits. Other inputs keep their
    values. If an axis of them grows, the last values are repeated; `arange` continues."""
    positions: Items[Line] = ()
    """Integer inputs with the positions of tokens, such as `["position_ids"]`: each step adds the
    number of its tokens, which is the size of their last axis."""


class Depends(FrozenModel):
    """Dependencies that the manifest lists, because no tracing can see them."""

    files: Items[Line] = ()
    """Globs, relative to the manifest: `["data/**", "../config/*.json"]`. If a matching file
    changes, appears or is removed, the cells are stale."""
    environment: Items[Variable] = ()
    """Environment variables that native code reads, of those that workers receive. If a value
    changes, the cells are stale. Variables that Python code of the project reads are tracked
    without this key."""


class ModelSpec(FrozenModel):
    """The complete, resolved contract of one model."""

    id: str
    manifest: str
    """The manifest file, relative to the project's root, with forward slashes."""
    line: int
    """The line of the entry's header in that file."""
    description: str = ""
    owner: str = ""
    license: str = ""
    version: str = ""
    homepage: str = ""
    tags: Items[str] = ()
    source: str
    """`file.py:attr` relative to the manifest, `package.module:attr`, or a saved model: `net.pt2`
    (dynamo's) or `net.pt` (TorchScript's), relative to the manifest."""
    artifact: str = ""
    weights: str = ""
    weights_names: StateNames = StateNames()
    weights_sha256: str = ""
    """In lower case; empty if any content is accepted."""
    init: dict[str, Plain] = Field(default_factory=dict)
    seed: int = 0
    mode: Mode = "eval"
    precision: Precision | None = None
    export_device: str = "cpu"
    export_state: ExportState | None = None
    exporter: Literal["auto", "dynamo", "torchscript", "transformers"] = "auto"
    capture: CaptureName | None = None
    opsets: Items[int]
    devices: Items[DeviceName]
    passes: Items[FilePass] = ()
    metric: Metric | None = None
    rollout: Rollout | None = None
    component: Component | None = None
    parent: str = ""
    """The entry that a variant with passes extends; empty for other entries."""
    ir_version: int | None = None
    consumers: Items[str] = ()
    inputs: Items[Input]
    outputs: Items[Output]
    axes: Items[Axis] = ()
    """Every axis name of the inputs and outputs, in order of first appearance."""
    parameters: ParameterNames | None = None
    """None if weights keep their names in the model."""
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
    """If two match a cell, the later one wins."""
    measure: Items[Measure] = ()
    thorough: bool = False
    depends: Depends = Depends()
    timeout: float
    """Time limit of the model's job in seconds."""
    memory: int | None = None
    """Limit of the job's address space in bytes, in addition to PyTorch itself."""
    problems: Items[str] = ()
    """The problems of an invalid entry, with file and line. If there is one, every cell is red."""

    @property
    def location(self) -> Location:
        """The place of the entry: `manifests/vision.toml:14`."""
        return Location(file=self.manifest, line=self.line)

    @property
    def weights_are_inputs(self) -> bool:
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
        """The data files of all opsets; see `list_data_files`."""
        return self.list_data_files(self.opsets)

    def list_data_files(self, opsets: Iterable[int]) -> tuple[str, ...]:
        """Return the data files of the model, its inputs and artifacts; no code.

        They are relative to the root.
        """
        source = (self.source,) if self.is_saved_program or self.is_saved_script else ()
        references = [item.fill.file for item in self.inputs if item.fill.file]
        fills = (fill for case in self.cases for fill in case.fills.values())
        references += [fill.file for fill in fills if fill.file]
        tensor_files = dict.fromkeys(split_data_file(text)[0] for text in references)
        names = [*source, *((self.weights,) if self.weights else ()), *tensor_files]
        folder = posixpath.dirname(self.manifest)
        paths = [posixpath.normpath(posixpath.join(folder, name)) for name in names]
        if self.artifact:
            paths += (self.find_artifact(opset) for opset in opsets)
        return tuple(paths)

    def find_artifact(self, opset: int) -> str:
        """Return the ONNX file of an opset, relative to the root."""
        name = self.artifact.replace(OPSET_PLACEHOLDER, str(opset))
        folder = posixpath.dirname(self.manifest)
        return posixpath.normpath(posixpath.join(folder, name))

    @property
    def free_axes(self) -> tuple[Axis, ...]:
        """The axes of the inputs that are not derived."""
        return tuple(axis for axis in self.axes if axis.is_free)

    @property
    def size_rules(self) -> dict[str, SizeRule]:
        """The rules of the derived axes, by name."""
        return {axis.name: axis.rule for axis in self.axes if axis.rule}

    def complete_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the sizes of axes with those of all derived axes."""
        return complete_sizes(sizes, self.size_rules)

    def allows_sizes(self, sizes: Mapping[str, int]) -> bool:
        """Return whether these sizes of the free axes give allowed sizes of all derived axes."""
        complete = self.complete_sizes(sizes)
        derived = (axis for axis in self.axes if axis.rule and axis.name in complete)
        return all(axis.allows(complete[axis.name]) for axis in derived)

    def find_axis(self, name: str) -> Axis:
        """Return the axis of that name.

        Raises:
            KeyError: If the model has no such axis.
        """
        return {axis.name: axis for axis in self.axes}[name]

    def resolve_cell(self, opset: int, device: str | None = None) -> ModelSpec:
        """Return the spec of one cell with its overrides applied.

        Without a device, overrides that depend on it are skipped.
        """
        spec = self
        for override in self.overrides:
            matches_opset = override.opsets is None or opset in override.opsets
            if matches_opset and (
                override.device == "*"
                or (device is not None and DeviceName(device).matches(override.device))
            ):
                spec = override.apply_to(spec)
        return spec


#: The factor of the measured noise if a manifest does not set `noise`.
DEFAULT_NOISE_FACTOR = 8.0


def select_bound(spec: ModelSpec, output: Output, device: str) -> Bound:
    """Return the first bound that is set: of the output, then of the model.

    In each of them, the bound for the device precedes the bound for the dtype, and that precedes
    the general one.

    Returns:
        An empty bound if the manifest sets none.
    """
    for bound in _list_candidates(spec, output, device):
        if bound.is_set:
            return bound
    return Bound()


def has_steps(spec: ModelSpec, index: int) -> bool:
    """Return whether a device of some opset compares an output in steps."""
    cells = ((spec.resolve_cell(o, device), device) for o in spec.opsets for device in spec.devices)
    return any(
        select_bound(cell, cell.outputs[index], device).steps is not None for cell, device in cells
    )


def _list_candidates(spec: ModelSpec, output: Output, device: str) -> Iterator[Bound]:
    for tolerance in (output.tolerance, spec.tolerance):
        if tolerance is not None:
            general = tolerance.by_device.get(DeviceName(device).base, Bound())
            yield tolerance.by_device.get(device, general)
            yield tolerance.by_dtype.get(output.dtype, Bound())
            yield tolerance
