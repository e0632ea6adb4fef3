"""What a model's cells took the last time, to foresee what a job will take.

In: records of earlier runs. Out: a `Cost` for each model. They order jobs and divide them, and
decide nothing else: a wrong one costs time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exporter.jobs.job import OpsetJob
from exporter.records.record import Record, Stage

#: What the worker does once for all opsets of its job; `reference` is what PyTorch puts out.
_SHARED = frozenset({Stage.SOURCE, "reference", Stage.CAPTURE})
#: What it does once for each file, on however many devices that is checked.
_MAKING = frozenset({Stage.CONVERT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one worker takes for a model, in seconds."""

    shared: float
    """Once for all opsets that it makes."""
    making: float
    """For each file."""
    checking: float
    """For each file, on all of its devices."""
    bytes: int
    """Size of the largest file with its weights."""

    def seconds(self, opsets: Sequence[OpsetJob]) -> float:
        """What a job with these opsets takes."""
        made = sum(not opset.reuse_file for opset in opsets)
        shared = self.shared if made else 0.0
        return shared + made * self.making + len(opsets) * self.checking


def estimate_costs(models: Mapping[str, Mapping[str, Record]]) -> dict[str, Cost]:
    """The cost of each model of which a cell came so far that its worker said what it took.

    Args:
        models: The records of each model, by cell.
    """
    told = {
        model: [record for record in records.values() if record.seconds]
        for model, records in models.items()
    }
    return {model: _cost(records) for model, records in told.items() if records}


def _cost(records: Sequence[Record]) -> Cost:
    opsets: dict[int, list[Record]] = {}
    for record in records:
        opsets.setdefault(record.cell.opset, []).append(record)
    making = [max(_seconds(record, _MAKING) for record in cells) for cells in opsets.values()]
    checking = [sum(_checks(record) for record in cells) for cells in opsets.values()]
    usual = _median(making)
    # The first file that is made decomposes for all others: that is shared too, in each worker.
    shared = max(_seconds(record, _SHARED) for record in records) + max(making) - usual
    return Cost(
        shared=shared,
        making=usual,
        checking=_median(checking),
        bytes=max((record.artifact.bytes for record in records if record.artifact), default=0),
    )


def _median(seconds: Sequence[float]) -> float:
    return sorted(seconds)[len(seconds) // 2]


def _seconds(record: Record, stages: frozenset[str]) -> float:
    return sum(seconds for stage, seconds in record.seconds.items() if stage in stages)


def _checks(record: Record) -> float:
    return sum(record.seconds.values()) - _seconds(record, _SHARED | _MAKING)
