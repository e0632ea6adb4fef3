"""The stored results: one `Record` per cell, and one `RunRecord` per run, as versioned JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from operator import itemgetter
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError
from typing_extensions import override

from exporter.core.check_table import (
    COMPARISON_CHECKS,
    DETERMINISM_CHECK,
    FAILURE_CODES,
    STATE_PREFIXES,
    UNSTABLE,
)
from exporter.core.device_name import DeviceName
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import PROJECT_LIMIT, read_regular_file
from exporter.core.frozen_model import ChecksummedModel, FrozenModel, Items, Measured


class Latency(FrozenModel):
    """The time of one run on the declared inputs, or of a loop of tokens, with one thread."""

    median: float
    """Seconds."""
    p95: float
    """Seconds: 95 % of the runs were at least as fast."""
    ratio: float
    """The median divided by PyTorch's median in the same run."""
    turns: int
    """The number of runs."""
    tokens: int = 0
    """The tokens that a run selects; 0 if it is one call."""


class LoadTime(FrozenModel):
    """The time until a session exists, in a process of its own."""

    seconds: float
    """The shortest of several loads."""
    ratio: float
    """Divided by the load time of a file with one node, in the same process."""


class PeakMemory(FrozenModel):
    """The growth of memory by a session and its first run, in a process of its own."""

    bytes: int
    """The largest resident memory, minus the memory before the session."""
    ratio: float
    """Divided by the size of the file and its external data."""


class Measurements(FrozenModel):
    """The requested measurements of a cell; None if one was not requested."""

    latency: Latency | None = None
    load: LoadTime | None = None
    memory: PeakMemory | None = None


#: The ends of advice that a diagnosis has tried, and the begin of the list of what does not help.
PROVED = "its file passes all checks"
AGREES = "PyTorch then agrees with itself"
NO_SETTING = "no setting helps"
#: The prefix of notes that are warnings of the TorchScript tracer.
TRACER_PREFIX = "tracer warning: "
#: In the warning of a branch on a value.
TRACED_BRANCH = "Python boolean"
#: In the warnings of numbers that are no sizes: an integer is a size in most models.
TRACED_NUMBERS = ("Python float", "Python number")
#: The beginning of a text about settings of `generate` that the published loop does not have.
UNPROVED_SETTINGS = "the tokens of `generate` with "
#: The beginning of a text about a line whose value was the same in all draws.
EQUAL_VALUES = "other values at "
#: The beginning of the note of a model with weights that were drawn and not loaded.
INITIAL_WEIGHTS = "weights: initial values"
#: In that note, before a file of weights that is missing here: `--weights initial`.
IN_PLACE_OF = " in place of "
#: What a result with such a note proves.
INITIAL_PROOF = "proves the export, not the numbers of your trained weights"
#: The first words of a note about variables of the shell that workers do not receive.
WITHHELD_NOTE = "the model reads "
#: The first words of a note about a diagnosis that ended early.
DIAGNOSIS_NOTE = "the diagnosis "
#: The first words of a note about runs that would have shown whether a red file may be right.
UNMEASURED_NOTE = "not measured: "
#: The first words of a note about sizes or values that no sample proves.
UNPROVED_PREFIX = "not proved: "
#: Before the name of an input in the figures of the check `caller`: whether its key `preprocess` is
#: what PyTorch's program does.
PREPROCESS = "preprocess of "
#: In the reason of such a note: an instrument of the worker sees nothing there.
KNOWN_EXAMPLE = "of a known example"
#: The first words of the message of an unavailable cell that passes on another machine.
ELSEWHERE_PREFIX = "measured elsewhere: "
_get_key = itemgetter("model", "opset", "device")
_Capture = Literal["export", "strict", "draft", "trace", "script", "none"]
_ExportState = Literal["inference", "plain"]
_REWRITE = "is not a results file of this version: {}; run `exporter export` to write it again"


class Status(StrEnum):
    """The verdict of a cell or of a check. Only `pass` and `xfail` are green."""

    PASS = "pass"
    XFAIL = "xfail"
    """Failed as the manifest expects."""
    XPASS = "xpass"
    """Passed although the manifest expects a failure."""
    FAIL = "fail"
    """A check failed."""
    ERROR = "error"
    """A stage raised an exception: unsupported operator, capture failed."""
    CRASH = "crash"
    TIMEOUT = "timeout"
    KILLED = "killed"
    """The kernel or a user ended the worker, usually because of its memory; or the machine ran out
    of memory or disk."""
    INCONCLUSIVE = "inconclusive"
    """The model differs from itself, or the comparison could not have failed."""
    UNAVAILABLE = "unavailable"
    """The machine lacks the device or runtime."""
    SKIP = "skip"
    """The manifest skips the cell."""

    @property
    def is_green(self) -> bool:
        """Whether the promise was proved, or its failure is expected."""
        return self in (Status.PASS, Status.XFAIL)

    @property
    def is_red(self) -> bool:
        """Whether the user must act; `skip` and `unavailable` are neither green nor red."""
        return not self.is_green and self not in (Status.SKIP, Status.UNAVAILABLE)


class Stage(StrEnum):
    """The steps of a job, in this order."""

    SOURCE = "source"
    """Create the model, draw its inputs and run PyTorch on them."""
    CAPTURE = "capture"
    CONVERT = "convert"
    STRUCTURE = "structure"
    LOAD = "load"
    PARITY = "parity"


class CellId(FrozenModel):
    """A model at an opset on a device; `str()` returns the key of tables and files."""

    model: str
    opset: int
    device: DeviceName

    def __str__(self) -> str:
        return f"{self.model}/{self.opset}/{self.device}"

    # Every step looks up each cell, and pydantic's comparison is slower.
    def __hash__(self) -> int:
        return hash(_get_key(self.__dict__))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CellId) and self.__dict__ == other.__dict__

    @property
    def sort_key(self) -> tuple[str, int, str]:
        """The order of tables and files."""
        return (self.model, self.opset, self.device)


class CheckResult(FrozenModel):
    """The result of one check of an artifact."""

    check: str
    status: Status
    message: str = ""
    metrics: dict[str, int | Measured | str] = Field(default_factory=dict)
    seconds: float = 0.0
    """Wall time of the check."""


class Artifact(FrozenModel):
    """An ONNX file with its external data, and facts about its content."""

    file: str
    """Relative to the build folder: `alexnet/18.onnx`."""
    sha256: str
    bytes: int
    """The size of the model file and its external data."""
    external_data: Items[str] = ()
    """File names in the folder of the model."""
    ir_version: int
    opset_imports: dict[str, int]
    nodes: int
    parameters: int
    operators: dict[str, int]
    """Number of nodes per operator; other domains as `domain::Op`."""


class Route(FrozenModel):
    """The exporter and the capture of a cell, with the reason for the choice."""

    exporter: Literal["dynamo", "torchscript", "transformers", "file", "chain"]
    """In place of an export, `file`: a finished file, the `artifact` of the manifest; `chain`: the
    files of other entries."""
    capture: _Capture
    """`none` without an export."""
    reason: str
    state: _ExportState = "inference"
    """The state of PyTorch during the export."""
    optimize: bool = True
    """False if dynamo's graph optimizer fails and the file is written without it."""

    @property
    def is_export(self) -> bool:
        """Whether PyTorch's own exporter creates the file, and can create it in another way."""
        return self.exporter in ("dynamo", "torchscript")

    @property
    def torch_exporter(self) -> Literal["dynamo", "torchscript"]:
        """The exporter for a new export; dynamo if the file is a finished one."""
        return "torchscript" if self.exporter == "torchscript" else "dynamo"

    @property
    def title(self) -> str:
        """The text for tables: `dynamo (export)`, or `finished file`."""
        if self.exporter in ("file", "chain"):
            return "finished file" if self.exporter == "file" else "chain"
        return f"{self.exporter} ({self.capture})"


class Attempt(FrozenModel):
    """An export that failed, after which another capture, state or option was tried."""

    capture: _Capture
    state: _ExportState
    optimize: bool = True
    """Whether dynamo's graph optimizer ran."""
    stage: Stage
    """`capture` or `convert`."""
    message: str


class Source(FrozenModel):
    """A path of the project that a record depends on, relative to the project's root."""

    file: str
    """`folder/*.py` means the list of the modules in the folder, `folder/*` all its names.
    `folder/*.py?a,b` means the modules that an import of `a` or `b` finds there."""
    state: str
    """The SHA-256 of the content or list, `modules NAMES`, `link TEXT`, `folder` or `missing`;
    `blocks NAME=HASH,...` for a module of which only these functions ran, and `*` for its text.
    Empty if the file changed while the job ran."""

    @property
    def is_file(self) -> bool:
        """Whether the state is the hash of a file, and none of code, a folder or a link."""
        return "*" not in self.file and re.fullmatch("[0-9a-f]{64}", self.state) is not None


class MissingOperator(FrozenModel):
    """An operator of the model that the exporter cannot convert at this opset."""

    operator: str
    """`aten::special_bessel_j0`, or `aten.special_bessel_j0.default` with dynamo."""
    count: int
    sources: Items[str] = ()
    """The model's lines that use it: `models/vision.py:31`."""


class Divergence(FrozenModel):
    """The first node with another value than the reference of the comparison."""

    node: str
    operator: str
    output: str
    """The value that differs although all its inputs are equal."""
    against: str
    """`PyTorch`, `onnx.reference` or `ONNX Runtime without optimization`."""
    error_before: Measured
    """The largest error of the node's inputs, relative to their scale."""
    error_after: Measured
    """The error of this value; inf if shapes, NaN or Inf differ, or if the file does not run."""
    source: str = ""
    """The model's line, `models/vision.py:31`; empty if the exporter does not store it."""
    suspects: int = 1
    """The number of possible nodes up to this one: not every value has a counterpart in PyTorch."""


class OutputLimit(FrozenModel):
    """The allowed error of an output in absolute units; both None if it must be equal."""

    atol: Measured | None = None
    rtol: Measured | None = None
    exact: bool = False
    """Whether the error is relative to the float64 output instead of PyTorch's."""
    scale: Measured | None = None
    """Larger elements may differ in proportion to their size. None: `atol` applies to all."""
    items: Items[OutputLimit] = ()
    """The limits of the items of a sequence, instead of the other fields."""


class Culprit(StrEnum):
    """The cause of a wrong output."""

    EXPORTER = "exporter"
    TRACE = "trace"
    """The exporter kept what Python code of the model did for the example."""
    EXPORTER_OPTIMIZER = "exporter's optimizer"
    """The same export is right without dynamo's graph optimizer."""
    OPTIMIZER = "ONNX Runtime optimizer"
    KERNEL = "kernel"
    """The file is correct and the runtime computes one of its operators wrong."""
    RUNTIME = "runtime"
    """The file is correct and the runtime rejects it."""
    PRECISION = "precision"
    """PyTorch differs from float64 as much as the file does: the tolerance is too strict."""
    MODEL = "model"
    CONTRACT = "contract"
    """PyTorch itself breaks the promise of the manifest."""
    FILE = "file"
    """The export is correct in memory and the written file differs from it, or the finished file
    that the manifest names is wrong."""
    PASS = "pass after the export"
    """The file is right before a pass of the manifest and wrong after it."""
    UNKNOWN = "unknown"


class Blame(FrozenModel):
    """The cause of a failed numerical check, determined by changing one thing at a time."""

    culprit: Culprit
    sample: str
    """The name of the input set that shows it."""
    evidence: Items[str]
    """The experiments and their results, with figures."""
    first: Divergence | None = None
    allowed: Items[OutputLimit] = ()
    """For each output."""


def format_outcome(status: Status, stage: Stage | None, checks: Sequence[str]) -> str:
    """Return `pass`, `error at convert`, `fail at parity (axes)` or `... (axes, values)`."""
    at_stage = f" at {stage}" if stage else ""
    # The main check of a stage has the stage's name; print it once.
    by_check = f" ({', '.join(checks)})" if checks and (*checks,) != (stage,) else ""
    return f"{status}{at_stage}{by_check}"


class Record(ChecksummedModel):
    """The stored result of one cell."""

    cell: CellId
    status: Status
    stage: Stage | None = None
    """The stage that failed, or None."""
    check: str | None = None
    """The check that failed."""
    message: str = ""
    """One line: the problem, or the reason why the cell did not run."""
    detail: str = ""
    """More lines, such as the end of a traceback."""
    lines: Items[str] = ()
    """The model's lines at which a stage failed: `models/vision.py:31`."""
    blame: Blame | None = None
    """The cause, if a numerical check failed."""
    missing: Items[MissingOperator] = ()
    """Every operator that the exporter lacks, if the conversion failed because of one."""
    obstacles: Items[str] = ()
    """Every place at which the model cannot be captured, with file and line, if that failed."""
    broken_pass: int = 0
    """The pass that failed or broke the file, counted from 1; 0 if none did."""
    advice: Items[str] = ()
    """Changes of the manifest, if PyTorch reports the sizes that it supports."""
    undiagnosed: bool = False
    """Whether the cause was not searched, because the manifest expected the failure."""
    foreseen: str = ""
    """The reason of the expectation that matches this failure."""
    expectation: str = ""
    """The manifest's expectation, if the outcome differs from it."""
    flaky: str = ""
    """The different outcome of an earlier run with equal inputs."""
    thorough: bool = False
    """Whether more sizes and values were tried than by default."""
    is_final: bool = False
    """Whether an unavailable cell stays so until another runtime is installed."""
    absent: Items[str] = ()
    """The files of the system without which its device is unavailable, as long as none exists."""
    proved_on: str = ""
    """The device that proved the promises of the file, if this one had the short proof only."""
    route: Route | None = None
    """The route that created the file; if all attempts failed, the first one."""
    attempts: Items[Attempt] = ()
    """The failed attempts, in their order, if there was more than one attempt."""
    artifact: Artifact | None = None
    measurements: Measurements | None = None
    """The measurements that the entry requests, if the cell passed."""
    checks: Items[CheckResult] = ()
    notes: Items[str] = ()
    torch_operators: dict[str, int] = Field(default_factory=dict)
    """The number of uses of each torch operator before the conversion: `aten::add` in the traced
    graph, `aten.add.Tensor` in the captured program."""
    runtime: str = ""
    """The versions in the device's environment, `onnxruntime 1.17.3`; empty if it has none."""
    log: str = ""
    """The worker's output, relative to the build folder."""
    seconds: dict[str, float] = Field(default_factory=dict)
    """Wall time of each stage and of the `reference`, including shared work."""
    fingerprint: dict[str, str] = Field(default_factory=dict)
    """The parts (`entry`, `checks`, `device`, `tool.torch`) that the record is valid for."""
    sources: Items[Source] = ()
    """The project's paths that the job read, tested or listed."""
    packages: dict[str, str] = Field(default_factory=dict)
    """Version and digest of the other distributions that the job loaded, and states of other files
    of the user. Their paths are absolute outside of the repository."""
    variables: dict[str, str] = Field(default_factory=dict)
    """Environment variables that the model's code read, with a hash of the value or `missing`."""
    untracked: Items[str] = ()
    """Dependencies whose change cannot be detected, in words. Every export runs the cell again."""

    @property
    def initial_weights(self) -> str:
        """`initial values of seed 0` if the weights were drawn and not loaded, else "".

        If some were loaded, it has the names of the others: `initial values: head.weight`.
        """
        notes = (note for note in self.notes if note.startswith(INITIAL_WEIGHTS))
        return next(notes, "").removeprefix("weights: ")

    @property
    def unproved_settings(self) -> str:
        """The settings of `generate` that no loop over the file has, as a sentence; else ""."""
        start = f"{UNPROVED_PREFIX}{UNPROVED_SETTINGS}"
        notes = (note for note in self.notes if note.startswith(start))
        return next(notes, "").removeprefix(UNPROVED_PREFIX)

    @property
    def failure_code(self) -> str:
        """The code of `FAILURE_CODES`, "" if the cell is not red."""
        if not self.status.is_red:
            return ""
        culprit = self.blame.culprit if self.blame else ""
        keeps_state = culprit == Culprit.MODEL
        if self.check == DETERMINISM_CHECK:  # `blame` names a model that draws numbers, too
            keeps_state = self.message.partition(UNSTABLE)[2].startswith(STATE_PREFIXES)
        facts = {
            "status": self.status.value,
            "stage": self.stage or "",
            "check": self.check or "",
            "message": self.message,
            "place": f"{self.stage} {self.message}",
            "missing": "yes" if self.missing else "",
            "culprit": culprit,
            "state": "yes" if keeps_state else "",
        }
        return next(
            code
            for code, pattern in FAILURE_CODES.items()
            if all(re.match(regex, facts[name]) for name, regex in pattern.items())
        )

    @property
    def runtime_packages(self) -> dict[str, str]:
        return dict(package.split(" ", 1) for package in self.runtime.split(", ") if package)

    @property
    def failed_checks(self) -> tuple[str, ...]:
        """The checks that did not pass, the deciding one first.

        If PyTorch differs from itself, comparisons with it mean nothing and are not included.
        """
        names = [each.check for each in self.checks if each.status is not Status.PASS]
        if DETERMINISM_CHECK in names:
            names = [name for name in names if name not in COMPARISON_CHECKS]
        return tuple(dict.fromkeys([self.check, *names] if self.check else names))

    @property
    def outcome(self) -> str:
        """`pass`, `error at convert` or `fail at parity (axes, values)`."""
        return format_outcome(self.status, self.stage, self.failed_checks)


#: The parts of records in JSON as `to_json` writes it.
_RECORDS, _FIRST, _NEXT = b',\n  "records": [', b"\n    {\n", b",\n    {\n"
_CLOSE, _END = b"\n    }", b"\n  ]\n}\n"


class RunRecord(ChecksummedModel):
    """All records of a project: `build/results.json`."""

    format: Literal[3] = 3
    """Raised with every change that an older reader would misunderstand."""
    tools: dict[str, str]
    """Versions: python, platform, torch, onnx, onnxruntime, onnxscript, exporter."""
    records: Items[Record]

    @override
    @classmethod
    def parse(cls, content: bytearray) -> Self:
        """Read the records one by one: all of them as plain JSON need too much memory."""
        records: list[Record] = []
        start = content.find(_RECORDS)
        end = start + len(_RECORDS)
        try:
            while content.startswith(_NEXT if records else _FIRST, end):
                begin, end = end + bool(records), content.find(_CLOSE, end) + len(_CLOSE)
                records.append(Record.model_validate_json(content[begin:end]))
        except ValidationError:
            end = 0  # the usual way reports the record's number
        if content[end:] != _END:
            return super().parse(content)
        content[start:] = _RECORDS + b"]}"
        return super().parse(content).model_copy(update={"records": tuple(records)})

    def by_cell(self) -> dict[CellId, Record]:
        return {record.cell: record for record in self.records}


def read_run(path: Path) -> RunRecord:
    """Read a `results.json`.

    Raises:
        ExporterError: UNREADABLE if the file is missing, damaged or of another version.
    """
    try:
        run = RunRecord.read(bytearray(read_regular_file(path, PROJECT_LIMIT)))
        for record in run.records:
            _require_consistency(record)
    except FileNotFoundError:
        message = "no results yet; run `exporter export` first"
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
    except ValidationError as error:
        message = _REWRITE.format(format_validation_error(error))
    except ValueError as error:
        message = _REWRITE.format(error)
    else:
        return run
    raise ExporterError(ExitCode.UNREADABLE, f"{path}: {message}")


def _require_consistency(record: Record) -> None:
    """Raise if a status contradicts the checks: a program changed the file.

    The checksum detects damage, but every program can compute it again.

    Raises:
        ValueError: with the contradiction.
    """
    not_passed = [each for each in record.checks if each.status is not Status.PASS]
    problem = ""
    if record.status in (Status.PASS, Status.XPASS):
        if not_passed:
            problem = f"the check {not_passed[0].check} ({not_passed[0].status})"
        elif record.stage or record.check:
            problem = f"the failed stage {record.stage}"
    elif record.status is Status.XFAIL and not record.foreseen:
        problem = "the lack of an expectation"
    if problem:
        raise ValueError(f"{record.cell}: the status {record.status} contradicts {problem}")


def format_validation_error(error: ValidationError) -> str:
    """Return the first problem of a file with its key: `cells.0.status: ...`."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    return f"{key}: {first['msg']}" if key else first["msg"]
