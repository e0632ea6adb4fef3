"""The resolved entry of a manifest: a `ModelSpec` for each model.

All defaults are set, every axis has its example size, and every name is checked. The tables that
users write are in `schema`; `loader.py` converts them.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator
from typing_extensions import override

from exporter.core.device_name import DeviceName
from exporter.core.errors import Location
from exporter.core.frozen_model import FrozenModel, Items, Plain
from exporter.manifest.resolved.call import (
    MEANING,
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
from exporter.manifest.resolved.keys import LIMIT, Keys
from exporter.manifest.syntax.fields import MAX_SECONDS, Amount, Factor, Line
from exporter.manifest.syntax.table import (
    DEFINITION,
    DESCRIPTION,
    FUNCTION,
    Key,
    Table,
    is_implied,
    without_notation,
)
from exporter.manifest.syntax.values import CaptureName, split_data_file

#: The meaning of keys that a table of a model's page shows, and whose effect the gate compares.
IN_TABLE = Key(gate="cell", shown=False)
_CONDITION = Key(affects="nothing", gate="nothing", shown=False)


class Condition(FrozenModel):
    """A selection of cells of the model."""

    opsets: Annotated[Items[int] | None, _CONDITION] = None
    """None: every opset."""
    device: Annotated[str, _CONDITION] = "*"
    """A glob over device names. Without `@`, it matches the device with each suffix."""

    def matches(self, opset: int, device_name: str | None) -> bool:
        """Return whether a cell is selected; None as device only if all devices are."""
        if device_name is None:
            is_device = self.device == "*"
        else:
            is_device = DeviceName(device_name).matches(self.device)
        return is_device and (self.opsets is None or opset in self.opsets)


class Expectation(Condition):
    """A foreseen failure. Strict: if the cell passes or fails otherwise, it is red."""

    stage: str | None = None
    checks: tuple[str, ...] = ()
    """The checks that fail; empty for a stage that fails without a check."""
    match: str = ""
    reason: str
    torch: str = ""
    """The versions of torch with which it fails; empty: all."""

    def covers(self, other: Expectation) -> bool:
        """Return whether it foresees every failure that the other one foresees."""
        return (
            self.stage in (None, other.stage)
            and bool(self.checks) == bool(other.checks)
            and set(other.checks) <= set(self.checks)
            and self.match.casefold() in other.match.casefold()
            # Two ranges of versions are not compared.
            and self.torch in ("", other.torch)
        )


class Skip(Condition):
    """Cells that are not run. The report shows the reason."""

    reason: str


#: The state of PyTorch during an export.
ExportState = Literal["inference", "plain"]
#: The place of the opset in the path of an artifact.
OPSET_PLACEHOLDER = "{opset}"
#: An output is one tensor or a list of tensors.
Kind = Literal["tensor", "sequence"]
NUMBER_PLACEHOLDER = "{}"  # for the number of a weight in its name
#: The factor of the measured noise if a manifest does not set `noise`.
DEFAULT_NOISE_FACTOR = 8.0
#: The text for the default tolerance.
MEASURED = "measured: a multiple of PyTorch's own float32 error"


class Bound(Table):
    """The allowed error of a float output: `atol` and `rtol`, or a multiple of the noise."""

    atol: Amount | None = None
    """Absolute tolerance; 0 if only `rtol` is set."""
    rtol: Amount | None = None
    """Relative tolerance; 0 if only `atol` is set."""
    outside: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The share of elements that may exceed `atol + rtol * |expected|`."""
    noise: Factor | None = None
    """The allowed error as a multiple of PyTorch's own float32 error, instead of `atol`, `rtol`; 8
    by default. An explicit factor also declares that an error of PyTorch above 1e-3 of the scale is
    rounding, and not `inconclusive`."""

    steps: Factor | None = None
    """The allowed error of a quantized output, as a multiple of the scale from which PyTorch
    dequantizes it: `steps = 1` allows one unit of the integers. An output that PyTorch does not
    dequantize from one scale needs another tolerance."""

    @property
    def is_set(self) -> bool:
        values = (self.atol, self.rtol, self.noise, self.steps)
        return bool(self.outside) or any(value is not None for value in values)

    @model_validator(mode="after")
    def _check_one_kind(self) -> Bound:
        kinds = (self.noise, self.steps, self.atol if self.rtol is None else self.rtol)
        if sum(kind is not None for kind in kinds) > 1:
            raise ValueError("takes only one of `noise`, `steps`, and `atol` with `rtol`")
        return self

    def implies(self, old: Bound) -> bool:
        """Return whether it allows no larger error than another bound."""
        if self.outside > old.outside:
            return False
        if old.steps is not None or self.steps is not None:
            # The other tolerances are not comparable with steps.
            return old.steps is not None and self.steps is not None and self.steps <= old.steps
        if old.atol is None and self.atol is None:
            if old.noise is None and self.noise is not None:
                return False  # an explicit factor accepts more noise than the default does
            return (self.noise or DEFAULT_NOISE_FACTOR) <= (old.noise or DEFAULT_NOISE_FACTOR)
        if old.atol is None or self.atol is None:
            return False  # a measured and a fixed tolerance are not comparable
        return self.atol <= old.atol and (self.rtol or 0.0) <= (old.rtol or 0.0)

    def describe(self) -> str:
        values = {
            "{:g} times PyTorch's own float32 error": self.noise,
            "{:g} steps of the output's scale in PyTorch": self.steps,
            "atol {:g}": self.atol,
            "rtol {:g}": self.rtol,
        }
        texts = [text.format(value) for text, value in values.items() if value is not None]
        texts = texts or [MEASURED]
        if self.outside:
            texts.append(f"up to {self.outside:.3g} of the elements outside")
        return ", ".join(texts)


class Tolerance(Bound):
    """A bound, and the bounds that replace it for a dtype (`float16`) or a device (`cuda`)."""

    by_dtype: dict[str, Bound] = Field(default_factory=dict)
    by_device: dict[str, Bound] = Field(default_factory=dict)

    @override
    def describe(self) -> str:
        special = {**self.by_dtype, **self.by_device}
        texts = [f"{name}: {bound.describe()}" for name, bound in special.items()]
        return "; ".join((super().describe(), *texts))


#: The meaning of the tolerance of all outputs.
CHECKED = Key(affects="check", gate="cell", shown=Tolerance.describe)


class ComparatorTable(Table):
    """The comparison of an output in place of its tolerance; exactly one kind."""

    misplaced_keys: ClassVar[Mapping[str, str]] = {
        "call": 'write the function without a table: `compare = "file.py:function"`'
    }

    rows: Literal["unordered"] | None = None
    """Rows may have any order: each row of the file is compared with the nearest one of PyTorch,
    within the tolerance; the counts must be equal. The rows are the last but one dimension, or the
    only one."""
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

    @model_validator(mode="after")
    def _check_one_kind(self) -> Self:
        kinds = (self.rows, self.cosine, self.sqnr, self.top_k, getattr(self, "call", None) or None)
        if sum(kind is not None for kind in kinds) != 1:
            raise ValueError("needs exactly one of rows, cosine, sqnr and top_k")
        if self.along and not self.rows:
            raise ValueError("`along` needs `rows`; remove `along`")
        return self


class Comparator(ComparatorTable):
    """A comparison by a table, or by a function of the project."""

    call: Annotated[str, FUNCTION] = ""
    """`file.py:function`; empty if a table is set."""

    def implies(self, old: Comparator) -> bool:
        """Return whether both are of a kind whose limit can be compared, and accepts no more."""
        if old.cosine is not None and self.cosine is not None:
            return self.cosine >= old.cosine
        return old.sqnr is not None and self.sqnr is not None and self.sqnr >= old.sqnr


class Output(TensorSpec):
    """One output of the graph, in order."""

    kind: Kind = "tensor"
    """If it is `sequence`, shape and dtype apply to each item."""
    tolerance: Annotated[Tolerance | None, Key(affects="check", is_as_strict=is_implied)] = None
    compare: Annotated[
        Comparator | None,
        # A comparator replaces the tolerance, which is another measure.
        Key(affects="check", is_as_strict=lambda old, new: old and new and new.implies(old)),
    ] = None
    """None: the tolerance decides."""
    masked_by: Annotated[str, Key(is_as_strict=lambda _, new: new == "")] = ""
    """The input that is 1 at the positions to compare; empty if all are compared."""
    meaning: Annotated[str, MEANING] = ""
    labels: Annotated[
        Items[str], Key(affects="check", is_as_strict=lambda a, b: not a or a == b)
    ] = ()
    """The names along the last axis of floats, or of the values of integers."""


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
    ir_version: Annotated[int | None, LIMIT] = None
    options: dict[str, Plain] = Field(default_factory=dict)
    """Merged over the options of the model, key by key."""
    tolerance: Annotated[Tolerance | None, CHECKED] = None

    def apply_to(self, spec: ModelSpec) -> ModelSpec:
        keys = Override.model_fields.keys() - Condition.model_fields.keys()
        # A capture belongs to one exporter, so another exporter resets it.
        update: dict[str, Any] = {"capture": None} if self.exporter else {}
        update |= {key: value for key in keys if (value := getattr(self, key)) is not None}
        update["options"] = {**spec.options, **self.options}
        return spec.model_copy(update=update)


class FilePass(FrozenModel):
    """A function of the project that writes another file from the exported one."""

    call: Annotated[str, FUNCTION]
    """`file.py:function`, relative to the manifest, called with the paths `source` and `target`."""
    arguments: dict[str, Plain] = Field(default_factory=dict)


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


class Link(FrozenModel):
    """An entry whose file a chain runs, and the values that it gets and gives.

    A value has the name of an input or output of the whole, or `link.output`.
    """

    id: str
    inputs: dict[str, str]
    """By the name in the link's file, in its order: the name of the value."""
    outputs: dict[str, str]


#: The meaning of foreseen failures.
FORESEEN = Key(
    affects="nothing",
    shown=False,
    is_as_strict=lambda old, new: all(any(each.covers(item) for each in old) for item in new),
)


@without_notation
class ModelSpec(Keys):
    """The complete, resolved contract of one model."""

    # Each result is stored by it. So a renamed entry finds the file that it had before.
    id: Annotated[str, DESCRIPTION]
    manifest: Annotated[str, DESCRIPTION]
    """The manifest file, relative to the project's root, with forward slashes."""
    line: Annotated[int, DESCRIPTION]
    """The line of the entry's header in that file."""
    was: Annotated[Items[str], DESCRIPTION] = ()
    """The former IDs, the last one first."""
    timeout: Annotated[float, DESCRIPTION, Field(gt=0, le=MAX_SECONDS)] = 600.0
    weights: Annotated[str, Key(gate="definition", shown=False)] = ""
    weights_names: Annotated[StateNames, Key(gate="definition", shown=False)] = StateNames()
    lacks_weights: Annotated[bool, Key(gate="nothing", shown=False)] = False
    """Whether the file `weights` is missing here and the model keeps its initial values, as
    `--weights initial` allows."""
    # A cell has one opset and one device. Other opsets and devices do not change it.
    devices: Annotated[Items[DeviceName], Key(affects="nothing", gate="cell", shown=", ".join)]
    passes: Annotated[Items[FilePass], DEFINITION] = ()
    export_state: Annotated[ExportState | None, Key(shown=False)] = None
    """The state of PyTorch in which an export worked; None: `inference`, and then `plain`."""
    parent: Annotated[str, DESCRIPTION] = ""
    """The entry that a variant with passes extends; empty for other entries."""
    inputs: Annotated[Items[Input], IN_TABLE]
    outputs: Annotated[Items[Output], IN_TABLE]
    axes: Annotated[Items[Axis], IN_TABLE] = ()
    """Every axis name of the inputs and outputs, in order of first appearance."""
    parameters: Annotated[ParameterNames | None, Key(is_as_strict=lambda old, _: old is None)] = (
        None
    )
    """None if weights keep their names in the model."""
    constants: Items[Constant] = ()
    containers: Annotated[Items[Container], DEFINITION] = ()
    inputs_from: Annotated[InputsFrom | None, Key(needs_model=True)] = None
    chain: Annotated[
        Items[Link],
        Key(
            is_as_strict=lambda old, new: not old or old == new,
            shown=lambda links: ", ".join(link.id for link in links),
            needs_model=True,
        ),
    ] = ()
    """The entries whose files run one after the other in place of one file; empty for others."""
    cases: Annotated[Items[Case], IN_TABLE] = ()
    tolerance: Annotated[Tolerance, CHECKED] = Tolerance()
    options: Annotated[dict[str, Plain], DEFINITION] = Field(default_factory=dict)
    expect: Annotated[Items[Expectation], FORESEEN] = ()
    skip: Annotated[Items[Skip], Key(affects="nothing", gate="cell", shown=False)] = ()
    overrides: Annotated[Items[Override], IN_TABLE] = ()
    """If two match a cell, the later one wins."""
    problems: Annotated[Items[str], Key(gate="nothing", shown=False)] = ()
    """The problems of an invalid entry, with file and line. If there is one, every cell is red."""

    @property
    def location(self) -> Location:
        """The place of the entry: `manifests/vision.toml:14`."""
        return Location(file=self.manifest, line=self.line)

    @property
    def weights_path(self) -> str:
        """The file `weights`, relative to the project's root."""
        return posixpath.normpath(posixpath.join(posixpath.dirname(self.manifest), self.weights))

    @property
    def weights_are_inputs(self) -> bool:
        return self.options.get("export_params") is False

    @property
    def step_files(self) -> tuple[str, ...]:
        """The files with the functions of that plugin, relative to the manifest."""
        return tuple(each.call.rpartition(":")[0] for each in self.passes)

    @property
    def is_saved_program(self) -> bool:
        """Whether the source is a saved `ExportedProgram`."""
        return self.source.endswith(".pt2")

    @property
    def is_saved_script(self) -> bool:
        """Whether the source is a saved TorchScript module."""
        return self.source.endswith((".pt", ".jit"))

    @property
    def is_onnx_file(self) -> bool:
        """Whether the source is an ONNX file, whose outputs others are compared with."""
        return self.source.endswith(".onnx")

    @property
    def oracle(self) -> str:
        """What computes the right outputs: PyTorch, or the file that is the source."""
        return posixpath.basename(self.source) if self.is_onnx_file else "PyTorch"

    @property
    def is_saved(self) -> bool:
        """Whether the source is a file without code of the project."""
        return self.is_saved_program or self.is_saved_script or self.is_onnx_file

    @property
    def data_files(self) -> tuple[str, ...]:
        """The data files of all opsets; see `list_data_files`."""
        return self.list_data_files(self.opsets)

    def list_data_files(self, opsets: Iterable[int]) -> tuple[str, ...]:
        """Return the data files of the model, its inputs and artifacts; no code.

        They are relative to the root.
        """
        source = (self.source,) if self.is_saved else ()
        references = [item.fill.file for item in self.inputs if item.fill.file]
        fills = (fill for case in self.cases for fill in case.fills.values())
        references += [fill.file for fill in fills if fill.file]
        tensor_files = dict.fromkeys(split_data_file(text)[0] for text in references)
        names = [*source, *((self.weights,) if self.weights else ()), *tensor_files]
        folder = posixpath.dirname(self.manifest)
        paths = [posixpath.normpath(posixpath.join(folder, name)) for name in names]
        if self.artifact:
            paths += (self.find_artifact(opset) for opset in opsets)
        return tuple(dict.fromkeys(paths))

    def find_artifact(self, opset: int) -> str:
        """Return the ONNX file of an opset, relative to the root."""
        name = self.artifact.replace(OPSET_PLACEHOLDER, str(opset))
        folder = posixpath.dirname(self.manifest)
        return posixpath.normpath(posixpath.join(folder, name))

    @property
    def free_axes(self) -> tuple[Axis, ...]:
        return tuple(axis for axis in self.axes if axis.is_free)

    @property
    def dynamic_axes(self) -> dict[str, dict[int, str]]:
        """The names of the dynamic dimensions by tensor and index, as for `torch.onnx.export`."""
        axes = {
            item.name: {index: dim for index, dim in enumerate(item.shape) if isinstance(dim, str)}
            for item in (*self.inputs, *self.outputs)
        }
        return {name: dims for name, dims in axes.items() if dims}

    @property
    def size_rules(self) -> dict[str, SizeRule]:
        return {axis.name: axis.rule for axis in self.axes if axis.rule}

    def complete_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
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

    def resolve_cell(self, opset: int, device_name: str | None = None) -> ModelSpec:
        """Return the spec of one cell with its overrides applied.

        Without a device, overrides that depend on it are skipped.
        """
        spec = self
        for each in self.overrides:
            if each.matches(opset, device_name):
                spec = each.apply_to(spec)
        return spec


def select_bound(spec: ModelSpec, output: Output, device_name: str) -> Bound:
    """Return the first bound that is set: of the output, then of the model.

    In each of them, the bound for the device precedes the bound for the dtype, and that precedes
    the general one.

    Returns:
        An empty bound if the manifest sets none.
    """
    for tolerance in filter(None, (output.tolerance, spec.tolerance)):
        general = tolerance.by_device.get(DeviceName(device_name).base)
        special = (
            tolerance.by_device.get(device_name, general),
            tolerance.by_dtype.get(output.dtype),
        )
        for bound in (*special, tolerance):
            if bound and bound.is_set:
                return bound
    return Bound()


def has_steps(spec: ModelSpec, index: int) -> bool:
    """Return whether a device of some opset compares an output in steps."""
    cells = (
        (spec.resolve_cell(o, device_name), device_name)
        for o in spec.opsets
        for device_name in spec.devices
    )
    return any(
        select_bound(cell, cell.outputs[index], device_name).steps is not None
        for cell, device_name in cells
    )
