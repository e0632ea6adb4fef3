"""The values and files that the parent and the workers exchange.

A worker announces each step before it begins. If it dies, the cells of the last announcement were
in progress: their records are dropped, and all earlier records are valid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from exporter.core.device_name import DeviceName
from exporter.core.files import CELL_LIMIT, write_text
from exporter.core.frozen_model import ChecksummedModel, FrozenModel, Items, Measured
from exporter.manifest import Device, ModelSpec
from exporter.records.record import CellId, Record, Route, Stage

#: The first letters of the parts of a chain's fingerprint that are the states of its links.
_LINK_PREFIX = "link."


class LinkState(FrozenModel):
    """The result of a link of a chain on one device."""

    model: str
    device: DeviceName
    state: str
    """The hash of its file if it is green, else `red`, `unavailable` or `missing`."""
    problem: str = ""
    """Why it is not green."""


def get_link_parts(links: Iterable[LinkState]) -> dict[str, str]:
    """Return the parts of the fingerprint of a chain that are the states of its links."""
    return {f"{_LINK_PREFIX}{link.model}": link.state for link in links}


class OpsetJob(FrozenModel):
    """One file to create, and the devices to check it on."""

    opset: int
    route: Route
    devices: Items[Device]
    reuse_from: str = ""
    """The model whose file is up to date, so that only the checks run: this one under its current
    or former name. Empty if the file must be exported."""
    links: Items[LinkState] = ()
    """The links of a chain on each of the devices, in their order."""


class Job(FrozenModel):
    """One model with its opsets and devices."""

    spec: ModelSpec
    root: str
    """The project's root, absolute."""
    build: str
    """The build folder, absolute; paths in records are relative to it."""
    folder: str
    """The temporary folder of this job, absolute; at the end renamed to `build/<model>`."""
    opsets: Items[OpsetJob]
    part: int = 0
    """The number of this worker, if several workers share the opsets of a model."""
    sandbox: Literal["none", "landlock"] = "none"
    """The restriction of the worker; see `worker/process/landlock.py`."""
    fingerprint: dict[str, str] = Field(default_factory=dict)
    """The shared part of all records' fingerprints; see `cache/fingerprint.py`."""
    device_parts: dict[str, dict[str, str]] = Field(default_factory=dict)
    """The parts of the fingerprints for each device, by its name."""
    links: Items[ModelSpec] = ()
    """The entries of the links, if the model is a chain."""

    @property
    def kernels(self) -> Path:
        """The folder of the kernels that drivers and compilers keep for all jobs of the build."""
        return Path(self.build) / ".kernels"

    def make_fingerprint(self, cell: CellId) -> dict[str, str]:
        links = (
            link
            for opset in self.opsets
            for link in opset.links
            if (opset.opset, link.device) == (cell.opset, cell.device)
        )
        parts = {"device": "", **self.device_parts.get(cell.device, {})}
        return self.fingerprint | parts | get_link_parts(links)

    def cells(self) -> tuple[CellId, ...]:
        return tuple(cell for opset in self.opsets for cell in self.list_opset_cells(opset))

    def list_opset_cells(self, opset: OpsetJob) -> tuple[CellId, ...]:
        """Return the cells that share the file of `opset`."""
        return tuple(
            CellId(model=self.spec.id, opset=opset.opset, device=device.name)
            for device in opset.devices
        )


class Announcement(FrozenModel):
    """The next step of a worker, and the cells that fail if it dies."""

    stage: Stage
    cells: Items[CellId]
    log: str
    """The file of the worker's output during this step, relative to the build folder."""
    part: int = 0
    """See `Job.part`."""
    is_diagnosis: bool = False
    """Whether the records of the cells are written, and the worker searches the causes."""


#: Matches the names that `format_weights_name` and `format_link_name` return.
WEIGHTS_PATTERN = r"(?:weights-[0-9a-f]{16}\.(?:safetensors|data)|link-[0-9a-f]{16}\.onnx)"


def format_weights_name(sha256: str, *, is_safetensors: bool = True) -> str:
    """Return the name of external data with this hash; equal names mean equal content.

    Weights of other programs, and of older releases of this one, have another format.
    """
    return f"weights-{sha256[:16]}.{'safetensors' if is_safetensors else 'data'}"


def format_link_name(sha256: str) -> str:
    """Return the name of the file of a link beside the file of its chain."""
    return f"link-{sha256[:16]}.onnx"


def is_weights_name(name: str, sha256: str) -> bool:
    """Return whether a file beside an ONNX file has the name of its content."""
    weights = {format_weights_name(sha256, is_safetensors=each) for each in (True, False)}
    return name in {*weights, format_link_name(sha256)}


@dataclass(frozen=True, slots=True)
class JobFolder:
    """The folder of a job, or of a model in the build folder."""

    path: Path

    @property
    def job(self) -> Path:
        return self.path / "job.json"

    @property
    def temporary(self) -> Path:
        """The folder for temporary files of a worker, removed after the run."""
        return self.path.with_name(f"{self.path.name}.tmp")

    @property
    def announcement(self) -> Path:
        return self.path / "at_work.json"

    @property
    def contract(self) -> Path:
        """The contract with the call of `inputs_from`; only if that returns a call."""
        return self.path / "contract.json"

    @property
    def reference(self) -> Path:
        return self.path / "reference.json"

    @property
    def records(self) -> Path:
        """The folder with one file per finished cell."""
        return self.path / "records"

    def record(self, cell: CellId) -> Path:
        return self.records / f"{cell.opset}.{cell.device}.json"

    def model(self, opset: int) -> Path:
        return self.path / f"{opset}.onnx"

    def passes(self, opset: int) -> Path:
        """Return the folder of the files before and after each pass; removed if all is right."""
        return self.path / "passes" / str(opset)

    def sample(self, index: int) -> Path:
        """Return the folder of a sample in ONNX's test data layout."""
        return self.path / f"test_data_set_{index}"

    def weight(self, index: int) -> Path:
        """Return the path of the value of a weight that is an input of the file."""
        return self.path / "weights" / f"weight_{index}.pb"

    def log(self, opset: int | None) -> Path:
        """Return the path of the log of `opset`, or of all opsets if it is None."""
        return self.path / "logs" / ("model.log" if opset is None else f"{opset}.log")

    def artifacts(self, opset: int) -> Path:
        """Return the folder of the exporter's optional reports for `opset`."""
        return self.path / "logs" / str(opset)

    def locate(self, sample: Sample) -> Path:
        """Return the folder of a sample or of a step, in ONNX's test data layout."""
        if sample.kind == "rollout":
            return self.path / "rollout" / f"step_{sample.index}"
        return self.sample(sample.index)

    def read_records(self, skip: Collection[Path] = ()) -> dict[CellId, Record]:
        """Return every valid record by its cell.

        A file that changed since it was written is dropped, and so is the record of another cell.
        Files in `skip` are not read.
        """
        records = {}
        for path in sorted(self.records.glob("*.json")):
            record = None if path in skip else Record.find(path, CELL_LIMIT)
            if record and path == self.record(record.cell):
                records[record.cell] = record
        return records

    def find_route(self, opset: int) -> Route | None:
        """Return the route of the file of an opset, or None if it has no record."""
        records = self.read_records().values()
        return next((record.route for record in records if record.cell.opset == opset), None)


def write_json(path: Path, value: FrozenModel) -> None:
    """Write `value` as JSON atomically, and create its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, value.to_json())


#: The groups of the samples at many sizes: for each file, and for files with uneven operators.
SWEEP, LONG_SWEEP = "sweep", "long sweep"
#: Operators that round a position or choose a graph: a file can be wrong at a single size.
_UNEVEN = frozenset({"Resize", "Upsample", "Mod", "If", "Loop", "Scan", "Floor", "Ceil", "Round"})


def name_capture(route: Route | None) -> str:
    """Return the name of the capture or trace of a route, or "" if it has none."""
    if route is None or not route.is_export or route.capture == "script":
        return ""
    return f"{route.capture} {route.state}"


def list_groups(route: Route | None, operators: Iterable[str]) -> tuple[str, ...]:
    """Return the groups of samples that a file is compared with, besides those for all files.

    Operators contain their domain if it is not ONNX's own.
    """
    is_uneven = any(name in _UNEVEN or "::" in name for name in operators)
    groups = (name_capture(route), LONG_SWEEP if is_uneven else SWEEP)
    return tuple(filter(None, groups))


class Sample(FrozenModel):
    """One input set with PyTorch's outputs, stored in `test_data_set_<index>`."""

    index: int
    name: str
    """`declared`, `batch=7`, `batch=7 sequence=11`, `other mask`, or the name of a case."""
    kind: Literal["declared", "axis", "case", "values", "masked", "rollout"]
    """`masked`: an input without any allowed element. The manifest promises nothing about it, so it
    gives a note only."""
    axes: dict[str, int]
    """The size of every axis of the inputs."""
    changed_input: str = ""
    """The input with other values than in the declared sample; empty if there is none."""
    error: str = ""
    """PyTorch's error for this input set; there are no outputs then."""
    scales: Items[float] = ()
    """The largest finite magnitude of each output of PyTorch; 0 if the output is not a float."""
    sha256: str = ""
    """The digest of the files in its folder; see `hash_sample` in `checks`."""
    exact: bool = True
    """Whether it ran in float64 too, with or without success."""
    noise: Items[Measured | None] = ()
    """The noise of each output in this sample; the reference's if it is empty."""
    large_noise: Items[Measured | None] = ()
    """The same errors if they are too large to be taken for rounding; else None."""
    factor: float = 1.0
    """The factor of inputs with another magnitude."""
    special: str | None = None
    """The kind of special values that all inputs have: `ends`, `constant` and so on."""
    undefined: Items[int] = ()
    """Positions of outputs with elements without a defined value, which are not compared."""
    begins: bool = False
    """Whether a step begins a loop, with inputs of its own."""
    is_prompt: bool = False
    """Whether the next token is one of the prompt, of which each step takes one."""
    captures: Items[str] = ()
    """The groups of files that are compared with it; if empty, every file is. A group is a capture
    with a condition that its sizes break, a trace with another branch there, or a sweep."""

    @property
    def identity(self) -> tuple[object, ...]:
        """The properties by which two runs of PyTorch are compared."""
        return (self.kind, self.axes, self.error, self.scales)


class TableParts(FrozenModel):
    """The digests of the parts of a weight that the model may read row by row."""

    dtype: str
    """ONNX's name: `FLOAT`."""
    shape: Items[int]
    parts: Items[str]
    """In the order of the rows; empty for a part that contains only zeros."""


class NamedWeight(FrozenModel):
    """PyTorch's value of a weight that the manifest names."""

    name: str
    """The name in the file."""
    source: str
    """The name in the model: `features.0.weight`."""
    dtype: str
    """PyTorch's name: `float32`."""
    shape: Items[int]
    sha256: str
    """The digest of its values in the order of the rows."""
    is_read: bool = True
    """Whether a run of the model reads it; otherwise the file may lack it."""


class Weight(FrozenModel):
    """A weight that is an input of the exported file."""

    name: str
    """The name in the file."""
    dtype: str
    shape: Items[int]
    is_read: bool
    """Whether a run of the model reads it."""
    same_as: str = ""
    """The first name of the same tensor, if the tensor has several names."""


class Reference(ChecksummedModel):
    """PyTorch's results for all samples of a job, and their precision."""

    samples: Items[Sample]
    noise: Items[Measured | None]
    """For each output, the largest |float32 - float64| of the usual samples that ran in float64
    first, relative to the largest scale in them. None if the output is not a float, or did not run
    in float64."""
    noise_scales: Items[Measured] = ()
    """The scales that the noise is relative to."""
    large_noise: Items[Measured | None] = ()
    """The same error of each output if it is too large to be taken for rounding; else None."""
    float64: str = ""
    """The reason why the float64 reference is missing; empty if it exists."""
    float64_run: str = ""
    """How a large model runs in float64; empty for other models."""
    unstable: str = ""
    """How two runs of PyTorch on the declared inputs differ; empty if they are equal."""
    output_spread: Items[Measured | None]
    """For each output, its change when inputs get other values: relative to the scale for floats,
    the share of changed elements for others. None if PyTorch accepted no other values."""
    overflow: Items[str] = ()
    """For each output, how PyTorch's dtype overflows although float64 does not; else empty."""
    is_reviewed: bool = False
    """Whether a file differed, so that rounding and ties were examined; see `review.py`."""
    unmeasured: str = ""
    """The runs that a review left out; empty if it has all."""
    has_plain_noise: bool = False
    """Whether the noise includes errors of plain float32, which follow the terms of a sum."""
    thorough: bool = False
    """Whether more sizes and values were tried than by default."""
    returns_objects: bool = False
    """Whether the model returns more than tuples, lists and dicts of tensors."""
    steps: Items[Measured | None] = ()
    """For each output, the scale from which PyTorch dequantizes it, or None; empty if no tolerance
    is in steps."""
    tables: Items[TableParts] = ()
    """Every weight with two dimensions: a sample reads only a few rows of a table."""
    weights: Items[NamedWeight] = ()
    """The weights that the manifest names."""
    weight_inputs: Items[Weight] = ()
    """Every weight in the order of the `state_dict`, if weights are inputs of the file; see
    `JobFolder.weight`."""
    constant_weights: Items[str] = ()
    """The weights that have one initial value each, which hides a part of the model: each file gets
    other ones for one comparison, which needs the model."""

    rollout: Items[Sample] = ()
    """The steps of all loops; see `JobFolder.locate`."""
    callers: Items[str] = ()
    """For each caller, its reference and its first sample; the results are in a folder of the
    job."""
    metric: Items[Measured] = ()
    """The metric of the entry: PyTorch's, and that of a model that returns zeros."""
    captures: Items[str] = ()
    """The groups that have their samples; see `list_groups`."""
    unproved: dict[str, Items[str]] = Field(default_factory=dict)
    """For a group, the branches and operators for which no sample exists, with the reason; for "",
    the promises about inputs and sizes that no sample of any file proves."""

    def select(self, route: Route | None, operators: Iterable[str] = ()) -> Reference:
        """Return the reference with the samples that a file is compared with.

        So the verdict on a file does not depend on the other files of the job.
        """
        groups = {"", *list_groups(route, operators)}
        samples = tuple(
            sample for sample in self.samples if not groups.isdisjoint(sample.captures or ("",))
        )
        return self.model_copy(update={"samples": samples})

    def is_compatible_with(self, other: Reference) -> bool:
        """Return True if both can describe one model: their common samples are equal.

        The number of samples and of float64 runs may differ, because it depends on `thorough`.
        """
        others = {sample.name: sample for sample in other.samples}
        pairs = [(sample, others[sample.name]) for sample in self.samples if sample.name in others]
        return (
            bool(pairs)
            and all(sample.identity == match.identity for sample, match in pairs)
            and (self.tables, self.unstable) == (other.tables, other.unstable)
        )

    def shorten(self) -> Reference:
        """Return the reference with the samples of a further device.

        These are the declared sample, the cases, another size of each axis, the smallest sizes, the
        largest size of each axis, and one set of special values, or of other values if no input has
        special ones.
        """
        declared = [sample for sample in self.samples if sample.kind == "declared"]
        chosen = declared + [sample for sample in self.samples if sample.kind == "case"]
        unchanged = set(declared[0].axes.items()) if declared else set()
        sized = [sample for sample in self.samples if sample.kind == "axis" and not sample.captures]
        missing = {axis for sample in sized for axis, _ in sample.axes.items() - unchanged}
        # The joint sizes first, because they change all axes at once.
        for sample in sorted(sized, key=lambda each: -len(each.axes.items() - unchanged)):
            changed = {axis for axis, _ in sample.axes.items() - unchanged}
            if changed & missing:
                chosen.append(sample)
                missing -= changed
        if sized:  # young runtimes fail at the ends of a range
            ends = [min(sized, key=lambda each: sum(each.axes.values()))]
            ends += [max(sized, key=lambda each: each.axes[axis]) for axis in declared[0].axes]
            chosen += [end for n, end in enumerate(ends) if end not in (*chosen, *ends[:n])]
        values = [sample for sample in self.samples if sample.kind == "values"]
        chosen += sorted(values, key=lambda sample: bool(sample.changed_input))[:1]
        return self.model_copy(update={"samples": tuple(chosen)})

    @property
    def all_samples(self) -> tuple[Sample, ...]:
        """The samples, and the steps of all loops."""
        return (*self.samples, *self.rollout)

    @property
    def promised_samples(self) -> tuple[Sample, ...]:
        """The samples that are inside the promises of the manifest."""
        return tuple(sample for sample in self.samples if sample.kind != "masked")

    @property
    def is_measured_everywhere(self) -> bool:
        """Whether float64 can add nothing: all samples ran in it, or no output has a noise."""
        all_exact = all(sample.exact or sample.error for sample in self.promised_samples)
        return all_exact or all(share is None for share in (*self.noise, *self.large_noise))
