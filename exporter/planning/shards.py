"""An export in parts: which models each part runs, and the note that it leaves in its build folder.

In: a `Plan` and a `Shard`. Out: the plan with the cells of that shard selected. Whole models, since
their opsets share a capture; the same plan is split the same way on every machine.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.frozen_model import FrozenModel, Items
from exporter.jobs.job_folder import write_json
from exporter.planning.plan import Plan

#: In the build folder.
SHARD_NOTE = "shard.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One part of an export: `index` counts from 1."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


class ShardNote(FrozenModel):
    """That a shard came to its end, and what was its part."""

    format: Literal[1] = 1
    index: int
    count: int
    models: Items[str]

    @property
    def shard(self) -> Shard:
        """Which part it is."""
        return Shard(index=self.index, count=self.count)


def assign_models(plan: Plan, shard: Shard) -> tuple[str, ...]:
    """The models of a shard, in the order of the plan.

    The one with the most cells to run goes first, each to the shard with the fewest so far.
    """
    cells = Counter(planned.cell.model for planned in plan.to_run)
    selected = dict.fromkeys(planned.cell.model for planned in plan.selected)
    load = dict.fromkeys(range(1, shard.count + 1), 0)
    mine = set()
    for model in sorted(selected, key=lambda model: (-cells[model], model)):
        least = min(load, key=lambda index: (load[index], index))
        load[least] += max(cells[model], 1)
        if least == shard.index:
            mine.add(model)
    return tuple(model for model in selected if model in mine)


def select_shard(plan: Plan, shard: Shard) -> Plan:
    """The plan with the cells of the shard selected; there may be none."""
    mine = set(assign_models(plan, shard))
    selected = tuple(planned for planned in plan.selected if planned.cell.model in mine)
    return replace(plan, selected=selected)


def remove_shard_note(build: Path) -> None:
    """What is built here is no longer what an earlier shard left.

    Raises:
        ExporterError: ENVIRONMENT, where the note cannot be removed.
    """
    try:
        (build / SHARD_NOTE).unlink(missing_ok=True)
    except NotADirectoryError:
        pass  # there is no build folder, which says so itself when it is locked
    except OSError as error:
        message = f"{build / SHARD_NOTE}: cannot be removed: {error.strerror}"
        raise ExporterError(ExitCode.ENVIRONMENT, message) from error


def write_shard_note(build: Path, shard: Shard, plan: Plan) -> None:
    """Notes that the shard of the whole plan is done."""
    models = assign_models(plan, shard)
    note = ShardNote(index=shard.index, count=shard.count, models=models)
    write_json(build / SHARD_NOTE, note)


def read_shard_note(build: Path) -> ShardNote:
    """What was noted in a build folder.

    Raises:
        ExporterError: UNREADABLE, where no shard came to its end there.
    """
    try:
        return ShardNote.model_validate_json((build / SHARD_NOTE).read_bytes())
    except FileNotFoundError:
        message = f"{build}: holds no finished shard; `exporter export --shard I/N` leaves one"
    except (OSError, ValidationError):
        message = f"{build / SHARD_NOTE}: cannot be read"
    raise ExporterError(ExitCode.UNREADABLE, message)
