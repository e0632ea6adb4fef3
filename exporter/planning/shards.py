"""Split an export into shards, and store which shard a build folder contains."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import PROJECT_LIMIT, read_regular_file
from exporter.core.frozen_model import FrozenModel, Items
from exporter.jobs import write_json
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
    """A finished shard and its models."""

    format: Literal[1] = 1
    index: int
    count: int
    models: Items[str]

    @property
    def shard(self) -> Shard:
        """The number of the shard."""
        return Shard(index=self.index, count=self.count)


def assign_models(plan: Plan, shard: Shard) -> tuple[str, ...]:
    """Return the models of a shard, in the order of the plan.

    The models with most cells are assigned first, each to the shard with the fewest cells.
    """
    cells = Counter(planned.cell.model for planned in plan.to_run)
    selected = dict.fromkeys(planned.cell.model for planned in plan.selected)
    load = dict.fromkeys(range(1, shard.count + 1), 0)
    assigned = set()
    for model in sorted(selected, key=lambda model: (-cells[model], model)):
        least = min(load, key=lambda index: (load[index], index))
        load[least] += max(cells[model], 1)
        if least == shard.index:
            assigned.add(model)
    return tuple(model for model in selected if model in assigned)


def select_shard(plan: Plan, shard: Shard) -> Plan:
    """Return the plan with only the cells of the shard selected, possibly none."""
    models = set(assign_models(plan, shard))
    selected = tuple(planned for planned in plan.selected if planned.cell.model in models)
    return replace(plan, selected=selected)


def remove_shard_note(build: Path) -> None:
    """Remove the note of an earlier shard before another build changes the folder.

    Raises:
        ExporterError: ENVIRONMENT if the note cannot be removed.
    """
    try:
        (build / SHARD_NOTE).unlink(missing_ok=True)
    except NotADirectoryError:
        pass  # locking the build folder reports this problem
    except OSError as error:
        message = f"{build / SHARD_NOTE}: cannot be removed: {error.strerror}"
        raise ExporterError(ExitCode.ENVIRONMENT, message) from error


def write_shard_note(build: Path, shard: Shard, plan: Plan) -> None:
    """Write the note that the shard of the full plan is finished."""
    models = assign_models(plan, shard)
    note = ShardNote(index=shard.index, count=shard.count, models=models)
    write_json(build / SHARD_NOTE, note)


def read_shard_note(build: Path) -> ShardNote:
    """Read the note of a build folder.

    Raises:
        ExporterError: UNREADABLE if the folder contains no finished shard.
    """
    try:
        return ShardNote.model_validate_json(read_regular_file(build / SHARD_NOTE, PROJECT_LIMIT))
    except FileNotFoundError:
        message = f"{build}: contains no finished shard; run `exporter export --shard I/N`"
    except (OSError, ValidationError):
        message = f"{build / SHARD_NOTE}: cannot be read; run `exporter export --shard I/N` again"
    raise ExporterError(ExitCode.UNREADABLE, message)
