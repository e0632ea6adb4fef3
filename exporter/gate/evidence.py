"""Measurements of other machines: `reports/evidence.json`, its rows in pages, and the gate's rule.

The digest of the file detects damage and edits. The person who commits the file can compute it
again, so a row is a claim of that person and never a proof of this machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import ValidationError

from exporter.core.device_name import DeviceName
from exporter.core.errors import ExitCode, ExporterError, Location, suggest_nearest
from exporter.core.files import PROJECT_LIMIT, read_regular_file, write_text
from exporter.core.frozen_model import ChecksummedModel, FrozenModel, Items, Measured
from exporter.core.text import format_two_digits, join_lines, truncate
from exporter.core.toml_table import SETTINGS_FILE
from exporter.gate.finding import GateFinding, PolicySetting
from exporter.gate.verify_report import FolderVerdict, VerdictTime, VerifyReport, hash_settings
from exporter.manifest import FindingKind, Manifest, Project, find_renames
from exporter.planning.plan import list_all_cells
from exporter.records.baseline import CellText
from exporter.records.record import (
    ELSEWHERE_PREFIX,
    CellId,
    Record,
    RunRecord,
    Status,
    format_validation_error,
)

#: In the reports folder.
FILE = "evidence.json"
#: Characters.
_MESSAGE_LENGTH = 300
#: Clocks of two machines differ.
_CLOCK_SLACK = timedelta(minutes=10)
_DAY = 24 * 3600.0
#: Checks that each proof of `verify` has.
_PROOF = {"wellformed", "signature", "parity"}
T = TypeVar("T", bound=ChecksummedModel)
#: The SHA-256 of each file by its model, opset and suffix.
_Files = Mapping[tuple[str, int, str], str]


class Evidence(FrozenModel):
    """The verdict of one file on a device of another machine."""

    cell: CellText
    status: Status
    message: str = ""
    sha256: str
    """The SHA-256 of the file. The names of its external data contain their hashes."""
    settings: str
    """The digest of the device's settings."""
    machine: str
    runtime: str
    """`onnxruntime-gpu 1.31.1`."""
    time: VerdictTime
    error: Measured | None = None
    """The largest difference from PyTorch."""
    placement: str = ""
    """The nodes that ran on another provider."""

    @property
    def day(self) -> str:
        """The day in UTC: `2026-11-20`."""
        return self.time.astimezone(UTC).date().isoformat()

    def __str__(self) -> str:
        """Return `pass on Linux x86_64, NVIDIA H100 with onnxruntime-gpu 1.31.1 on 2026-11-20`."""
        text = f"{self.status} on {self.machine} with {self.runtime} on {self.day}"
        if self.status is not Status.PASS:
            return f"{text}: {truncate(join_lines(self.message), _MESSAGE_LENGTH)}"
        error = "" if self.error is None else f"largest error {format_two_digits(self.error)}"
        return ", ".join(filter(None, (text, error, self.placement)))


class EvidenceFile(ChecksummedModel):
    """The measurements of other machines, at most one for each cell, in their order."""

    format: Literal[1] = 1
    rows: Items[Evidence] = ()


def find_evidence_path(project: Project) -> Path:
    """Return the path of the committed file."""
    return Path(project.root) / project.reports / FILE


def read_evidence(manifest: Manifest) -> dict[CellId, Evidence]:
    """Return the measurements of other machines; none if the project has no such file.

    A renamed model has those of its former ID: they are about a file, not about its name.

    Raises:
        ExporterError: UNREADABLE if the file is damaged or of another version.
    """
    path = find_evidence_path(manifest.project)
    if not path.exists():
        return {}
    fix = "restore it from git, or remove it and merge the files of `exporter verify` again"
    rows = _read(EvidenceFile, path, fix).rows
    renames = find_renames(manifest, {row.cell.model for row in rows})
    evidence = dict[CellId, Evidence]()
    for row in rows:
        cell = row.cell.model_copy(update={"model": renames.get(row.cell.model, row.cell.model)})
        evidence[cell] = row.model_copy(update={"cell": cell})
    return evidence


def _read(kind: type[T], path: Path, fix: str) -> T:
    try:
        return kind.read(read_regular_file(path, PROJECT_LIMIT))
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
    except ValidationError as error:
        message = f"is not a file of this version: {format_validation_error(error)}; {fix}"
    except ValueError as error:
        message = f"{error}; {fix}"
    raise ExporterError(ExitCode.UNREADABLE, f"{path}: {message}")


def add_evidence(
    manifest: Manifest, run: RunRecord, path: Path, now: datetime
) -> tuple[tuple[Evidence, ...], tuple[str, ...]]:
    """Add the verdicts in a file of `verify --json` to the project's evidence.

    Returns:
        The new rows, and a message for each verdict that is not added.

    Raises:
        ExporterError: UNREADABLE if a file is damaged. ENVIRONMENT if it cannot be written.
    """
    report = _read(VerifyReport, path, "write it again with `exporter verify PATH --json`")
    planned = set(list_all_cells(manifest))
    rows = {cell: row for cell, row in read_evidence(manifest).items() if cell in planned}
    files = _list_files(run)
    added = dict[CellId, Evidence]()
    problems = list[str]()
    for verdict in report.verdicts:
        row = _make_row(verdict, report)
        problem = _find_problem(row, verdict, manifest, files, now) if row else "has no model"
        if row is None or problem:
            problems.append(f"{row.cell if row else verdict.path}: {problem}")
        elif row.cell in added:
            problems.append(f"{row.cell}: the file contains it twice; verify one folder of it")
        elif (old := rows.get(row.cell)) and old.time >= row.time:
            state = "is added already" if old == row else f"is older than that of {old.day}"
            problems.append(f"{row.cell}: the evidence {state}; verify again for a newer one")
        else:
            added[row.cell] = row
    if added:
        every = sorted((rows | added).values(), key=lambda row: row.cell.sort_key)
        write_text(find_evidence_path(manifest.project), EvidenceFile(rows=tuple(every)).to_json())
    return tuple(added.values()), tuple(problems)


def _make_row(item: FolderVerdict, verified: VerifyReport) -> Evidence | None:
    if not item.model or item.opset is None:
        return None
    verdict = item.verdict
    errors = [each.metrics["max_abs"] for each in verdict.checks if "max_abs" in each.metrics]
    texts = [each.message for each in verdict.checks if each.check == "placement"]
    return Evidence.from_fields(
        verdict,
        cell=CellId(model=item.model, opset=item.opset, device=DeviceName(verdict.device)),
        sha256=item.sha256,
        machine=verified.machine,
        time=verified.time,
        error=max(map(float, errors), default=None),
        placement=join_lines("".join(texts)),
    )


def _find_problem(
    row: Evidence, verdict: FolderVerdict, manifest: Manifest, files: _Files, now: datetime
) -> str:
    """Return why a verdict is no evidence for this project, or ""."""
    names = manifest.project.device_names
    failed = [each.check for each in verdict.verdict.checks if each.status.is_red]
    missing = _PROOF - {each.check for each in verdict.verdict.checks}
    if row.cell.device not in names:
        hint = suggest_nearest(row.cell.device, names) or "; add it to `devices`"
        return f"the project has no device {row.cell.device}{hint}"
    if row.cell not in list_all_cells(manifest):
        return "no manifest contains the cell; add the device or the opset to the entry"
    if row.status is Status.UNAVAILABLE:
        return f"proves nothing, the device is unavailable there: {join_lines(row.message)}"
    if row.status is Status.PASS and failed:
        return f"the status pass contradicts the check {failed[0]}"
    if row.status is Status.PASS and missing:
        return f"has no check {min(missing)}; write it with `exporter verify PATH --json`"
    if row.time > now + _CLOCK_SLACK:
        return f"is from the future, {row.day}; correct the clock of that machine and verify again"
    return _find_mismatch(row, files, manifest.project)


def _list_files(run: RunRecord) -> _Files:
    return {
        (record.cell.model, record.cell.opset, record.cell.device.suffix): (record.artifact.sha256)
        for record in run.records
        if record.artifact
    }


def _find_mismatch(row: Evidence, files: _Files, project: Project) -> str:
    """Return why a row is about another file or other settings, or ""."""
    cell = row.cell
    actual = files.get((cell.model, cell.opset, cell.device.suffix))
    if actual is None:
        return "has no file here to compare with; run `exporter export` first"
    if row.sha256 != actual:
        return "is about another file; publish the current one and verify it there"
    if row.settings != hash_settings(project.find_device(cell.device)):
        return (
            f"the settings of {cell.device} differ from those of the measurement; verify with "
            "`--root` and a copy of pyproject.toml"
        )
    environment = project.find_device(cell.device).environment
    if environment and not environment.allows(row.runtime):
        required = ", ".join(environment.requirements)
        return (
            f"ran with {row.runtime}, but {environment.location} requires {required}; install "
            "these packages there and verify again"
        )
    return ""


def attach_evidence(run: RunRecord, manifest: Manifest) -> RunRecord:
    """Return the run with the measurements in the messages of unavailable cells.

    Their status stays `unavailable`: they are neither green nor red on this machine.
    """
    evidence = read_evidence(manifest)
    if not evidence:
        return run
    files = _list_files(run)

    def attach(record: Record) -> Record:
        row = evidence.get(record.cell)
        if row is None or record.status is not Status.UNAVAILABLE:
            return record
        mismatch = _find_mismatch(row, files, manifest.project)
        prefix = ELSEWHERE_PREFIX if row.status is Status.PASS else ""
        text = f"the evidence of {row.day} {mismatch}" if mismatch else f"{prefix}{row}"
        return record.model_copy(update={"message": f"{text}; here: {record.message}"})

    return run.model_copy(update={"records": tuple(map(attach, run.records))})


def find_evidence_findings(
    manifest: Manifest, accepted: Manifest, run: RunRecord, now: datetime
) -> Iterator[GateFinding]:
    """Yield a finding for each cell whose evidence is red, missing, stale or too old.

    A cell needs evidence if `[tool.exporter.evidence]` names its device and it is unavailable here.

    `accepted`: The project whose policy applies: the current one, or that of the revision.
    """
    project, gate = manifest.project, accepted.project.gate
    ages = dict(project.evidence)
    for name, age in accepted.project.evidence.items():
        ages[name] = min(age, ages.get(name, age))
    evidence, files = read_evidence(manifest), _list_files(run)
    cells = list_all_cells(manifest)
    missing = {each.cell for each in run.records if each.status is Status.UNAVAILABLE}
    if missing:
        for cell in cells:
            row, last = evidence.get(cell), project.find_device(cell.device).last_opset
            if cell not in missing or (last is not None and cell.opset > last):
                continue
            limit = ages.get(cell.device.base)
            after = _judge(row, limit, files, project, now)
            action = gate.find_policy(cell.model).find_action(FindingKind.EVIDENCE)
            if after and action != "ignore":
                yield GateFinding(
                    kind=FindingKind.EVIDENCE,
                    cell=cell,
                    before=f"at most {limit / _DAY:g} days old" if limit else "pass",
                    after=after,
                    message="run `exporter publish`, `exporter verify --json` on a machine with "
                    f"{cell.device}, then `exporter merge FILE`",
                    action=action,
                )
    for name, age in accepted.project.evidence.items():
        affected = tuple(cell for cell in cells if cell.device.base == name)
        new = project.evidence.get(name)
        if affected and (new is None or new > age):
            yield GateFinding(
                kind=FindingKind.RELAXED,
                cell=affected[0],
                before=f"evidence.{name} = {age / _DAY:g} days",
                after=f"evidence.{name} = {f'{new / _DAY:g} days' if new else 'not required'}",
                action=gate.find_policy(affected[0].model).find_action(FindingKind.RELAXED),
                setting=PolicySetting(location=Location(file=SETTINGS_FILE), cells=affected),
            )


def _judge(
    row: Evidence | None, age: float | None, files: _Files, project: Project, now: datetime
) -> str:
    """Return the state of a row that the gate reports, or ""."""
    if row is None:
        return "none" if age else ""
    if mismatch := _find_mismatch(row, files, project):
        return f"stale: {mismatch}" if age else ""
    if row.status is not Status.PASS:
        return str(row)
    if age is None:
        return ""
    if row.time > now + _CLOCK_SLACK:
        return f"from the future, {row.day}"
    days = (now - row.time).total_seconds() / _DAY
    return f"{days:.0f} days old" if days > age / _DAY else ""
