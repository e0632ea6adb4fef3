"""What was found: one `Record` per cell, one `RunRecord` per run, as versioned JSON.

In: nothing. Out: `CellId`, `Status`, `Stage`, `CheckResult`, `Blame`, `Record`, `RunRecord`.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.frozen_model import ChecksummedModel, FrozenModel, Items

#: How notes begin that are warnings of the TorchScript tracer.
TRACER_PREFIX = "tracer warning: "
#: The check that measures a file's time beside PyTorch's; see `worker/latency.py`.
LATENCY_CHECK = "latency"


class Status(StrEnum):
    """What became of a cell or of a check. Only `pass` and `xfail` are green."""

    PASS = "pass"
    XFAIL = "xfail"
    """Failed as the manifest foresees."""
    XPASS = "xpass"
    """Passed although the manifest foresees a failure."""
    FAIL = "fail"
    """A check says no."""
    ERROR = "error"
    """A stage raised: unsupported operator, capture failed."""
    CRASH = "crash"
    TIMEOUT = "timeout"
    KILLED = "killed"
    """Ended by the kernel or a person, most often for its memory; or the machine gave out: no
    memory or no disk is left."""
    INCONCLUSIVE = "inconclusive"
    """The model differs from itself, or the comparison could not have failed."""
    UNAVAILABLE = "unavailable"
    """No such device or runtime on this machine."""
    SKIP = "skip"
    """The manifest says so."""

    @property
    def is_green(self) -> bool:
        """Whether the promise was proved (or its failure foreseen)."""
        return self in (Status.PASS, Status.XFAIL)

    @property
    def is_red(self) -> bool:
        """Whether somebody must act; `skip` and `unavailable` are neither green nor red."""
        return not self.is_green and self not in (Status.SKIP, Status.UNAVAILABLE)


class Stage(StrEnum):
    """What happens to a cell, in this order."""

    SOURCE = "source"
    """The model is built, its inputs are drawn, PyTorch runs on them."""
    CAPTURE = "capture"
    CONVERT = "convert"
    STRUCTURE = "structure"
    LOAD = "load"
    PARITY = "parity"


class CellId(FrozenModel):
    """A model at an opset on a device; `str()` gives the key used everywhere."""

    model: str
    opset: int
    device: str

    def __str__(self) -> str:
        return f"{self.model}/{self.opset}/{self.device}"

    @property
    def sort_key(self) -> tuple[str, int, str]:
        """The order of tables and files."""
        return (self.model, self.opset, self.device)


class CheckResult(FrozenModel):
    """One promise held against the file."""

    check: str
    status: Status
    message: str = ""
    """Empty where there is nothing to say."""
    metrics: dict[str, int | float | str] = Field(default_factory=dict)
    seconds: float = 0.0
    """Wall time of the check."""


class Artifact(FrozenModel):
    """The file that ships, and what was read from it."""

    file: str
    """Relative to the build folder: `alexnet/18.onnx`."""
    sha256: str
    bytes: int
    """The model file and its external data together."""
    external_data: Items[str] = ()
    """File names beside the model."""
    ir_version: int
    opset_imports: dict[str, int]
    nodes: int
    parameters: int
    operators: dict[str, int]
    """Count of nodes by operator; other domains as `domain::Op`."""


class Route(FrozenModel):
    """The exporter that made the file, and why that one."""

    exporter: Literal["dynamo", "torchscript"]
    capture: Literal["export", "strict", "trace", "script"]
    why: str


class Source(FrozenModel):
    """A file that the model was made from, relative to the project's root."""

    file: str
    """`folder/*.py` stands for the names of the folder's modules."""
    sha256: str
    """Empty where the file changed while the model was at work."""


class MissingOperator(FrozenModel):
    """An operator of the model that the exporter cannot translate at this opset."""

    operator: str
    """`aten::special_bessel_j0`, or `aten.special_bessel_j0.default` under dynamo."""
    count: int
    sources: Items[str] = ()
    """The model's lines that use it: `models/vision.py:31`."""


class Divergence(FrozenModel):
    """The first node at which the file and what it is held against part ways."""

    node: str
    operator: str
    output: str
    """The value that differs while nothing that it is computed from does."""
    against: str
    """`PyTorch`, `onnx.reference` or `ONNX Runtime without optimisation`."""
    error_before: float
    """Largest error of what it is computed from, as a share of that value's scale."""
    error_after: float
    """Its own; infinite where shapes, NaN or Inf differ, or where the file does not run."""
    source: str = ""
    """The model's line, `models/vision.py:31`; empty where the exporter does not tell."""
    suspects: int = 1
    """How many nodes it may be, up to this one: not every value has a twin in PyTorch."""


class OutputLimit(FrozenModel):
    """How far an output may be off, in its own units; both None where it has to be equal."""

    atol: float | None = None
    rtol: float | None = None
    exact: bool = False
    """Whether the error is counted from float64's output and not from PyTorch's own."""
    scale: float | None = None
    """Elements beyond it may be off in proportion to their size; None: `atol` holds for all."""
    items: Items[OutputLimit] = ()
    """Of a sequence, what holds for each item, instead of the rest."""


class Culprit(StrEnum):
    """Whose fault a wrong output is."""

    EXPORTER = "exporter"
    OPTIMISER = "ONNX Runtime optimiser"
    KERNEL = "kernel"
    """The file is right and this runtime computes one of its operators wrong."""
    RUNTIME = "runtime"
    """The file is right and this runtime does not take it."""
    PRECISION = "precision"
    """PyTorch is as far from float64 as the file is: the tolerance asks for too much."""
    MODEL = "model"
    CONTRACT = "contract"
    """PyTorch itself does not do what the manifest promises."""
    FILE = "file"
    """The same export is right in memory: what was written is not what was exported."""
    UNKNOWN = "unknown"


class Blame(FrozenModel):
    """Why a check that runs the file says no, found by changing one thing at a time."""

    culprit: Culprit
    sample: str
    """The input set that shows it, by name."""
    evidence: Items[str]
    """What was tried and what came of it, with figures."""
    first: Divergence | None = None
    allowed: Items[OutputLimit] = ()
    """For each output."""


class Record(ChecksummedModel):
    """What is known of one cell."""

    cell: CellId
    status: Status
    stage: Stage | None = None
    """Where it went wrong; None where nothing did."""
    check: str | None = None
    """The check that said no."""
    message: str = ""
    """One line: what went wrong, or why it was not run."""
    detail: str = ""
    """More lines, such as the end of a traceback."""
    blame: Blame | None = None
    """Whose fault it is, where a check that runs the file says no."""
    missing: Items[MissingOperator] = ()
    """Every operator that the exporter lacks, where the conversion fails for one."""
    advice: Items[str] = ()
    """What to write in the manifest, where PyTorch says which sizes it can do."""
    foreseen: str = ""
    """The reason of the expectation that this failure met."""
    expectation: str = ""
    """What the manifest expected, where the outcome was something else."""
    flaky: str = ""
    """What an earlier run said of the very same inputs, where that was something else."""
    thorough: bool = False
    """Whether more sizes and values were tried than by default."""
    route: Route | None = None
    artifact: Artifact | None = None
    checks: Items[CheckResult] = ()
    notes: Items[str] = ()
    torch_operators: dict[str, int] = Field(default_factory=dict)
    """How often the model uses each operator of torch before it is converted: `aten::add` in the
    traced graph, `aten.add.Tensor` in the captured program."""
    log: str = ""
    """What the worker printed, relative to the build folder."""
    seconds: dict[str, float] = Field(default_factory=dict)
    """Wall time by stage, and of the `reference`; what is shared stands with every cell that it
    served."""
    fingerprint: dict[str, str] = Field(default_factory=dict)
    """By part (`entry`, `checks`, `device`, `tool.torch`): what the record is valid for."""
    sources: Items[Source] = ()
    """The project's files that were loaded to make it."""
    packages: dict[str, str] = Field(default_factory=dict)
    """Version and digest of the other distributions that were loaded to make it, and digests of
    libraries of kernels that lie elsewhere, by their path from the project's root."""


class RunRecord(ChecksummedModel):
    """All records of a project at one time: `build/results.json`."""

    format: Literal[1] = 1
    """Raised with every change that an older reader would misunderstand."""
    tools: dict[str, str]
    """Versions: python, platform, torch, onnx, onnxruntime, onnxscript, exporter."""
    records: Items[Record]

    def by_cell(self) -> dict[str, Record]:
        """Records by the text of their cell."""
        return {str(record.cell): record for record in self.records}


def read_run(path: Path) -> RunRecord:
    """Reads a `results.json`.

    Raises:
        ExporterError: UNREADABLE, where the file is missing, damaged or of another version.
    """
    try:
        return RunRecord.read(path.read_bytes())
    except FileNotFoundError:
        message = f"{path}: no results yet; run `exporter export` first"
    except OSError as error:
        message = f"{path}: cannot be read: {error.strerror}"
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"{part}." for part in first["loc"]).rstrip(".")
        message = _no_results(path, f"{where}: {first['msg']}" if where else first["msg"])
    except ValueError as error:
        message = _no_results(path, str(error))
    raise ExporterError(ExitCode.UNREADABLE, message)


def _no_results(path: Path, why: str) -> str:
    return f"{path}: is no results file of this version: {why}; `exporter export` writes it"
