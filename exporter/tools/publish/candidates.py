"""The choice of the files to publish, and the reasons against the others.

One file serves all devices of its opset. It is published if every selected device passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from exporter.core.device_name import DeviceName
from exporter.core.text import join_lines
from exporter.planning.plan import PlannedCell
from exporter.records.baseline import extract_outcome
from exporter.records.record import Artifact, CellId, Record, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A file that may be published."""

    model: str
    opset: int
    artifact: Artifact
    records: tuple[Record, ...]
    """Of the selected devices; all pass, unless failing files are included."""

    @property
    def warning(self) -> str:
        """The failures of its devices, "" if all pass."""
        return _format_failures(self.records)


@dataclass(frozen=True, slots=True, kw_only=True)
class Omission:
    """A file that is not published."""

    model: str
    opset: int
    reason: str
    is_refused: bool = True
    """False if the manifest does not promise a correct file."""

    @property
    def cell(self) -> CellId:
        """The cell without a device, because the file serves all devices."""
        return CellId(model=self.model, opset=self.opset, device=DeviceName())


def choose_files(
    selected: Iterable[PlannedCell],
    records: Mapping[CellId, Record],
    missing: Mapping[CellId, str],
    *,
    include_red: bool = False,
) -> tuple[tuple[Candidate, ...], tuple[Omission, ...]]:
    """Decide about each opset of each model."""
    candidates: list[Candidate] = []
    omissions: list[Omission] = []
    for (model, opset), group in groupby(selected, key=lambda p: (p.cell.model, p.cell.opset)):
        planned = list(group)
        cells = [item.cell for item in planned if not item.skip]
        absent = [cell for cell in cells if cell not in records]
        if not cells:
            reason = f"the manifest skips it: {planned[0].skip}"
            choice: Candidate | Omission = Omission(
                model=model, opset=opset, reason=reason, is_refused=False
            )
        elif absent:
            reason = missing.get(absent[0], "it has not been exported yet")
            reason = f"no result on {absent[0].device}: {reason}; run `exporter export {model}`"
            choice = Omission(model=model, opset=opset, reason=reason)
        else:
            proofs = tuple(records[cell] for cell in cells)
            choice = _choose_file(model, opset, proofs, include_red=include_red)
        if isinstance(choice, Candidate):
            candidates.append(choice)
        else:
            omissions.append(choice)
    return tuple(candidates), tuple(omissions)


def _choose_file(
    model: str, opset: int, records: tuple[Record, ...], *, include_red: bool
) -> Candidate | Omission:
    failures = _format_failures(records)
    if failures and not include_red:
        is_expected = all(item.status in (Status.PASS, Status.XFAIL) for item in records)
        return Omission(model=model, opset=opset, reason=failures, is_refused=not is_expected)
    artifacts = {item.artifact.sha256: item.artifact for item in records if item.artifact}
    if len(artifacts) == 1:
        (artifact,) = artifacts.values()
        return Candidate(model=model, opset=opset, artifact=artifact, records=records)
    if artifacts:
        reason = f"its devices were proved on different files; run `exporter export {model}`"
    else:
        reason = "; ".join(text for text in ("there is no file", failures) if text)
    return Omission(model=model, opset=opset, reason=reason)


def _format_failures(records: Iterable[Record]) -> str:
    failures = []
    for record in records:
        if record.status is not Status.PASS:
            outcome = f"{extract_outcome(record)} on {record.cell.device}"
            message = join_lines(record.message)
            failures.append(f"{outcome}: {message}" if message else outcome)
    return "; ".join(failures)
