"""The observed call of a model, and the facts that its runs show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import Field

from exporter.core.frozen_model import FrozenModel, Items, Plain
from exporter.manifest import StateNames
from exporter.manifest.resolved.call import Constant, Container, Dim


class DynamicDim(FrozenModel):
    """A dynamic dimension, as a script declares it."""

    name: str = ""
    """Empty if the script gives no name."""
    min: int | None = None
    max: int | None = None


class ObservedTensor(FrozenModel):
    """A tensor of the call."""

    at: str
    """The path in the call: `args[0]`, `kwargs.mask`."""
    name: str
    """By the script, or else the parameter of `forward`."""
    dtype: str
    shape: Items[int]
    low: float | None = None
    """The smallest finite value; None if there is none."""
    high: float | None = None
    dynamic: dict[int, DynamicDim] = Field(default_factory=dict)
    """The dimensions that the script declares as dynamic, or that calls had in several sizes."""

    def has_lengths_up_to(self, size: int) -> bool:
        """Return True if the values are lengths, by name, of rows with this size."""
        is_list = "int" in self.dtype and len(self.shape) < 2
        return is_list and "len" in self.name.casefold() and self.high == size


class ObservedOutput(FrozenModel):
    """An output that the script names."""

    name: str
    dynamic: dict[int, DynamicDim] = Field(default_factory=dict)


class Construction(FrozenModel):
    """The way to build the model again."""

    module: str = ""
    """The module of the class; `__main__` has the name of its file. Empty if it has no name."""
    file: str = ""
    """The absolute path of its source."""
    name: str = ""
    """The class or the function."""
    init: dict[str, Plain] | None = Field(default_factory=dict)
    """The keyword arguments, or None if only code can express them."""
    code: str = ""
    """A Python expression that builds the model; empty if there is none."""
    imports: Items[str] = ()
    """The modules of the expression."""
    folders: Items[str] = ()
    """The absolute folders in which these modules are."""
    reason: str = ""
    """Why the class and `init` are not enough, or why no expression exists."""


class ScriptRun(FrozenModel):
    """The process that made the call."""

    file: str = ""
    """The absolute path of the script; empty if the process has none, such as pytest's."""
    module: str = ""
    """The name of `python -m`, or ""."""
    arguments: Items[str] = ()
    folder: str = ""
    """The working directory at the start."""
    index: int = 0
    """The number of the export in its process, from 1."""
    line: int = 0
    """The line of the export in the script; 0 if another file calls it."""


class Observation(FrozenModel):
    """One call of `torch.onnx.export`, or of a model."""

    kind: Literal["export", "call", "source"] = "source"
    class_name: str = ""
    class_file: str = ""
    construction: Construction = Construction()
    script: ScriptRun = ScriptRun()
    state: str = ""
    """The file with the state of the model; its name has its hash."""
    sample: str = ""
    """The file with the inputs and outputs of the call; "" if there was no call."""
    is_loaded: bool = False
    """Whether the process loaded a state into a model of this class, or the whole model."""
    has_trained: bool = False
    """Whether an optimizer of the process changed weights."""
    is_trained: bool = False
    """Whether an optimizer or a loaded file set each weight of this model."""
    files: Items[str] = ()
    """The absolute paths of the files with tensors that the process loaded or saved."""
    tensors: Items[ObservedTensor] = ()
    outputs: Items[ObservedOutput] = ()
    constants: Items[Constant] = ()
    containers: Items[Container] = ()
    opset: int | None = None
    exporter: Literal["", "dynamo", "torchscript"] = ""
    options: dict[str, Plain] = Field(default_factory=dict)
    file_outputs: Items[str] = ()
    """The names of the outputs in the script's ONNX file, if it was read."""
    file_axes: dict[str, Items[str]] = Field(default_factory=dict)
    """The dimensions of the inputs and outputs in this file; a name is an identifier."""
    written: dict[str, Literal["dynamo", "torchscript"]] = Field(default_factory=dict)
    """The absolute paths of the script's ONNX files, each with the exporter that wrote it."""
    export_error: str = ""
    """Why the script's own export failed; "" if it did not."""
    title: str = ""
    """The name of the script's ONNX file without its suffix, or ""."""
    id: str = ""
    """The ID that the user chose, or ""."""
    weights: str = ""
    """The absolute path of the file of weights that the user named, or ""."""
    generates: bool = False
    """Whether the entry is the decoder of a model that generates."""
    notes: Items[str] = ()
    """Facts that an entry cannot express."""
    problem: str = ""
    """Why there can be no entry; "" if there can be one."""
    opsets: Items[int] = ()
    """All opsets of the same call, after a merge."""

    def name_output_axis(self, index: int, dim: int) -> str:
        """Return the name of an output's dimension in the script or in its file, or ""."""
        declared = self.outputs[index].dynamic.get(dim) if index < len(self.outputs) else None
        if declared and declared.name.isidentifier():
            return declared.name
        named = self.file_outputs[index] if index < len(self.file_outputs) else ""
        return self._read_file_axis(named, dim)

    def name_input_axis(self, index: int, dim: int) -> str:
        """Return the name of an input's declared dimension in the script or in its file, or ""."""
        tensor = self.tensors[index]
        declared = tensor.dynamic.get(dim)
        if declared is None:
            return ""
        if declared.name.isidentifier():
            return declared.name
        return self._read_file_axis(tensor.name, dim)

    def _read_file_axis(self, name: str, dim: int) -> str:
        axes = self.file_axes.get(name, ())
        return axes[dim] if dim < len(axes) and axes[dim].isidentifier() else ""

    @property
    def label(self) -> str:
        return self.class_name or self.construction.name or "a model"


class FileTensor(FrozenModel):
    """An input or an output of an ONNX file."""

    name: str
    dtype: str
    shape: Items[Dim]
    """A dimension without a size and a name is "?"."""


class FileInterface(FrozenModel):
    """What an ONNX file promises."""

    opset: int
    inputs: Items[FileTensor]
    outputs: Items[FileTensor]


class ProbedOutput(FrozenModel):
    """One output of the model."""

    name: str
    """The key of a dict, the field, or the returned variable; "" if it has none."""
    dtype: str
    shape: Items[Dim]


class ProbeResult(FrozenModel):
    """The facts."""

    problem: str = ""
    """Why the model does not run; "" if it runs."""
    difference: str = ""
    """The difference from the observed model; "" if it gives the observed outputs."""
    weights: str = ""
    """The absolute path of the file that has the observed weights, which may be the recording; ""
    if there is none."""
    weights_names: StateNames = StateNames()
    is_drawn: bool = False
    """Whether the observed weights are initial values, which only the script's process has."""
    inputs: Items[Items[Dim]] = ()
    """The shapes, with the names of axes."""
    outputs: Items[ProbedOutput] = ()
    axes: dict[str, dict[str, Plain]] = Field(default_factory=dict)
    """Limits and derivations, as in the manifest."""
    rows: dict[str, int] = Field(default_factory=dict)
    """For inputs of integers, the rows of the embedding that they select."""
    notes: Items[str] = ()


def merge_observations(observations: Iterable[Observation]) -> list[Observation]:
    """Return one observation for each model and form of its call.

    Calls at other sizes show dynamic dimensions; exports at other opsets add an opset.
    """
    groups: dict[str, list[Observation]] = {}
    for each in observations:
        tensors = [(tensor.at, tensor.dtype, len(tensor.shape)) for tensor in each.tensors]
        is_call = each.kind == "call"
        call = (each.kind, each.constants if is_call else (), each.options, each.exporter)
        names = () if is_call else [tensor.model_dump_json() for tensor in each.tensors]
        model = (each.class_name, each.class_file, each.construction, each.problem)
        # Calls have inputs of their own, and the weights of a test are new in each test.
        values = (each.sample, each.state) if not is_call or each.is_loaded else ()
        key = repr((model, call, tensors, names, each.outputs, values[is_call:]))
        groups.setdefault(key, []).append(each)
    return [_merge(group) for group in groups.values()]


def _merge(group: Sequence[Observation]) -> Observation:
    first = group[0]
    opsets = tuple(sorted({each.opset for each in group if each.opset}))
    tensors = []
    for index, tensor in enumerate(first.tensors):
        others = [each.tensors[index] for each in group]
        dynamic = dict(tensor.dynamic)
        for dim in range(len(tensor.shape)):
            if len({each.shape[dim] for each in others}) > 1:
                dynamic.setdefault(dim, DynamicDim())
        lows = [each.low for each in others if each.low is not None]
        highs = [each.high for each in others if each.high is not None]
        update = {
            "dynamic": dynamic,
            "low": min(lows, default=None),
            "high": max(highs, default=None),
        }
        tensors.append(tensor.model_copy(update=update))
    written = {path: exporter for each in group for path, exporter in each.written.items()}
    merged = {"tensors": tuple(tensors), "opsets": opsets, "written": written}
    return first.model_copy(update=merged)
