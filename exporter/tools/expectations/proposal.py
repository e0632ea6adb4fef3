"""The expectations that a model's results would meet: kept, narrowed, left out, and new ones.

In: a `ModelSpec`, its records and a date. Out: `ModelEntry`s. Cells without a result keep whatever is
expected of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from exporter.manifest import Expectation, ModelSpec
from exporter.planning.expectations import is_foreseen
from exporter.planning.plan import condition_matches
from exporter.records.record import CellId, Record, Status

_NUMBER = re.compile(r"\d+(?:\.\d+)*(?:e[+-]?\d+)?")
#: A part of a message that is shorter says little; one that is longer says no more.
_TELLING, _LONG = 12, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectEntry:
    """One expectation of the new list."""

    expectation: Expectation
    index: int | None = None
    """Its place in the present list; None for a new one."""
    is_changed: bool = False
    """Whether it is for other cells than at present."""


def propose_entries(
    spec: ModelSpec, records: Iterable[Record], today: date, reason: str
) -> list[ExpectEntry]:
    """The whole list of expectations that the results would meet.

    Args:
        spec: The contract.
        records: Of any cells; those of other models are passed over.
        today: An expectation that ended before it counts no more.
        reason: Of every new expectation; a person has to give it.
    """
    of_model = [record for record in records if record.cell.model == spec.id]
    known = {
        record.cell: record
        for record in of_model
        if record.status not in (Status.SKIP, Status.UNAVAILABLE)
    }
    entries: list[ExpectEntry] = []
    for index, item in enumerate(spec.expect):
        cells = [cell for cell in _cells(spec) if condition_matches(item, cell)]
        kept = [
            cell for cell in cells if cell not in known or is_foreseen(item, known[cell], today)
        ]
        entries += _narrowed(index, item, cells, kept)
    unforeseen = [
        record
        for record in known.values()
        if record.status not in (Status.PASS, Status.XPASS)
        and not any(
            condition_matches(item, record.cell) and is_foreseen(item, record, today)
            for item in spec.expect
        )
    ]
    entries += [ExpectEntry(expectation=item) for item in _foreseen(unforeseen, spec, reason)]
    return entries


def _cells(spec: ModelSpec) -> Iterator[CellId]:
    for opset in spec.opsets:
        for device in spec.devices:
            yield CellId(model=spec.id, opset=opset, device=device)


def _narrowed(
    index: int, item: Expectation, cells: Sequence[CellId], kept: Sequence[CellId]
) -> Iterator[ExpectEntry]:
    if list(kept) == list(cells):
        yield ExpectEntry(expectation=item, index=index)
        return
    devices = tuple(dict.fromkeys(cell.device for cell in cells))
    for opsets, device in _conditions(kept, devices):
        meant = device if device != "*" else item.device
        narrower = item.model_copy(update={"opsets": opsets, "device": meant})
        yield ExpectEntry(expectation=narrower, index=index, is_changed=True)


def _conditions(
    cells: Iterable[CellId], devices: Sequence[str]
) -> Iterator[tuple[tuple[int, ...], str]]:
    """Opsets and a device, `*` where these opsets are meant on all `devices` alike."""
    opsets: dict[str, list[int]] = {}
    for cell in cells:
        opsets.setdefault(cell.device, []).append(cell.opset)
    alike = {tuple(sorted(of_device)) for of_device in opsets.values()}
    if len(alike) == 1 and set(opsets) == set(devices):
        yield alike.pop(), "*"
        return
    for device, of_device in opsets.items():
        yield tuple(sorted(of_device)), device


def _foreseen(records: Iterable[Record], spec: ModelSpec, reason: str) -> Iterator[Expectation]:
    """New expectations; failures that differ in their figures alone share one."""
    groups: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        key = (record.stage, record.check, _NUMBER.sub("#", record.message))
        groups.setdefault(key, []).append(record)
    for group in groups.values():
        first = group[0]
        for opsets, device in _conditions((record.cell for record in group), spec.devices):
            yield Expectation(
                opsets=opsets,
                device=device,
                stage=first.stage.value if first.stage else None,
                check=first.check,
                match=_telling_part(first.message),
                reason=reason,
            )


def _telling_part(message: str) -> str:
    """What tells the failure from others and holds none of its figures."""
    parts = [part.strip() for part in _NUMBER.split(message)]
    long_enough = [part for part in parts if len(part) >= _TELLING]
    part = long_enough[0] if long_enough else max(parts, key=len)
    return part if len(part) <= _LONG else part[:_LONG].rsplit(" ", 1)[0]


def opset_text(opsets: Sequence[int], promised: Sequence[int]) -> str | int | list[int | str]:
    """Opsets as a manifest says them: `13`, `"9..13"`, or a list of both.

    Args:
        opsets: Those that are meant.
        promised: Those of the model: a range may span what it does not have.
    """
    meant, runs = set(opsets), list[list[int]]()
    for opset in sorted(promised):
        if opset not in meant:
            runs.append([])
        else:
            runs = runs or [[]]
            runs[-1].append(opset)
    texts: list[int | str] = [
        run[0] if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs if run
    ]
    return texts[0] if len(texts) == 1 else texts
