"""Which files are published, and why others are not.

In: the selected cells, the records that still hold, and why others do not. Out: `Candidate`s and
`LeftOut`s. Pure.

One file serves all devices of its opset: it is published where every selected one of them passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from exporter.core.sanitize import one_line
from exporter.planning.plan import PlannedCell
from exporter.records.baseline import outcome_of
from exporter.records.record import (
    Artifact,
    CellId,
    Record,
    Status,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A file that may be published."""

    model: str
    opset: int
    artifact: Artifact
    records: tuple[Record, ...]
    """Of the selected devices; all pass, unless the file is published although it is red."""

    @property
    def warning(self) -> str:
        """What is wrong with it, device by device; empty where nothing is."""
        wrong = [item for item in self.records if item.status is not Status.PASS]
        return "; ".join(_said(item) for item in wrong)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A file that is not published."""

    model: str
    opset: int
    why: str
    is_refused: bool = True
    """False where the manifest itself promises no file that is right."""

    @property
    def cell(self) -> CellId:
        """By which alike ones are told together; the file serves every device."""
        return CellId(model=self.model, opset=self.opset, device="")


def choose(
    selected: Iterable[PlannedCell],
    known: Mapping[str, Record],
    missing: Mapping[str, str],
    *,
    include_red: bool = False,
) -> tuple[tuple[Candidate, ...], tuple[LeftOut, ...]]:
    """Decides on each opset of each model.

    Args:
        selected: Cells in the order of the plan.
        known: Records that still hold, by the text of their cell.
        missing: Why there is none, by the text of the cell.
        include_red: Publish what is wrong too, as far as there is a file.
    """
    chosen, left_out = [], []
    for (model, opset), group in groupby(selected, key=lambda p: (p.cell.model, p.cell.opset)):
        cells = list(group)
        run = [planned for planned in cells if not planned.skip]
        if not run:
            why = f"the manifest skips it: {cells[0].skip}"
            left_out.append(LeftOut(model=model, opset=opset, why=why, is_refused=False))
            continue
        absent = [planned.cell for planned in run if str(planned.cell) not in known]
        if absent:
            reason = missing.get(str(absent[0]), "it has not been exported yet")
            why = f"no result on {absent[0].device}: {reason}; run `exporter export {model}`"
            left_out.append(LeftOut(model=model, opset=opset, why=why))
            continue
        records = tuple(known[str(planned.cell)] for planned in run)
        found = _judge(model, opset, records, include_red=include_red)
        if isinstance(found, Candidate):
            chosen.append(found)
        else:
            left_out.append(found)
    return tuple(chosen), tuple(left_out)


def _judge(
    model: str, opset: int, records: tuple[Record, ...], *, include_red: bool
) -> Candidate | LeftOut:
    wrong = [item for item in records if item.status is not Status.PASS]
    if wrong and not include_red:
        why = "; ".join(_said(item) for item in wrong)
        foreseen = all(item.status is Status.XFAIL for item in wrong)
        return LeftOut(model=model, opset=opset, why=why, is_refused=not foreseen)
    artifacts = {item.artifact.sha256: item.artifact for item in records if item.artifact}
    if not artifacts:
        why = "; ".join(["there is no file", *(_said(item) for item in wrong)])
        return LeftOut(model=model, opset=opset, why=why)
    if len(artifacts) > 1:
        why = f"its devices were proved on different files; run `exporter export {model}`"
        return LeftOut(model=model, opset=opset, why=why)
    (artifact,) = artifacts.values()
    return Candidate(model=model, opset=opset, artifact=artifact, records=records)


def _said(record: Record) -> str:
    message = one_line(record.message)
    outcome = f"{outcome_of(record)} on {record.cell.device}"
    return f"{outcome}: {message}" if message else outcome
