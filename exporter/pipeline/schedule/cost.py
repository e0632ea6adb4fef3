"""Estimate the cost of a job from the times in earlier records.

Costs only order and divide jobs. A wrong estimate costs time and changes no result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exporter.jobs.job import OpsetJob
from exporter.records.record import CellId, Record, Stage

#: Stages that the worker runs once for all opsets of a job. `reference` is PyTorch's run.
_SHARED_STAGES = frozenset({Stage.SOURCE, "reference", Stage.CAPTURE})
#: Stages that the worker runs once for each file.
_EXPORT_STAGES = frozenset({Stage.CONVERT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The time of one worker for a model, in seconds."""

    shared: float
    """Once for all opsets."""
    export: float
    """For each file."""
    checks: float
    """For each file on all of its devices."""
    bytes: int
    """The size of the largest file with its external data."""

    def estimate_seconds(self, opsets: Sequence[OpsetJob]) -> float:
        """Return the time of a job with these opsets."""
        exported = sum(not opset.reuse_file for opset in opsets)
        shared = self.shared if exported else 0.0
        return shared + exported * self.export + len(opsets) * self.checks


def estimate_costs(models: Mapping[str, Mapping[CellId, Record]]) -> dict[str, Cost]:
    """Return the cost of each model with at least one record that contains times.

    Args:
        models: The records of each model, by cell.
    """
    timed = {
        model: [record for record in records.values() if record.seconds]
        for model, records in models.items()
    }
    return {model: _estimate_cost(records) for model, records in timed.items() if records}


def _estimate_cost(records: Sequence[Record]) -> Cost:
    opsets: dict[int, list[Record]] = {}
    for record in records:
        opsets.setdefault(record.cell.opset, []).append(record)
    export = [max(_sum_stages(each, _EXPORT_STAGES) for each in cells) for cells in opsets.values()]
    checks = [
        sum(
            sum(each.seconds.values()) - _sum_stages(each, _SHARED_STAGES | _EXPORT_STAGES)
            for each in cells
        )
        for cells in opsets.values()
    ]
    median = _median(export)
    # The first conversion includes the decomposition, which the others share.
    shared = max(_sum_stages(each, _SHARED_STAGES) for each in records) + max(export) - median
    return Cost(
        shared=shared,
        export=median,
        checks=_median(checks),
        bytes=max((record.artifact.bytes for record in records if record.artifact), default=0),
    )


def _median(seconds: Sequence[float]) -> float:
    return sorted(seconds)[len(seconds) // 2]


def _sum_stages(record: Record, stages: frozenset[str]) -> float:
    return sum(seconds for stage, seconds in record.seconds.items() if stage in stages)
