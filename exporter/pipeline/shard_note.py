"""The note of a finished shard in its build folder: `shard.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import PROJECT_LIMIT, read_regular_file
from exporter.core.frozen_model import FrozenModel, Items
from exporter.jobs import write_json
from exporter.pipeline.build_folder import BuildFolder
from exporter.planning.plan import Plan, Shard, assign_models


class ShardNote(FrozenModel):
    """A finished shard and its models."""

    format: Literal[1] = 1
    index: int
    count: int
    models: Items[str]

    @property
    def shard(self) -> Shard:
        return Shard(index=self.index, count=self.count)


def write_shard_note(build_path: Path, shard: Shard, plan: Plan) -> None:
    models = assign_models(plan, shard)
    note = ShardNote(index=shard.index, count=shard.count, models=models)
    write_json(BuildFolder(build_path).shard_note, note)


def read_shard_note(build_path: Path) -> ShardNote:
    """Read the note of a build folder.

    Raises:
        ExporterError: UNREADABLE if the folder contains no finished shard.
    """
    path = BuildFolder(build_path).shard_note
    try:
        return ShardNote.model_validate_json(read_regular_file(path, PROJECT_LIMIT))
    except FileNotFoundError:
        message = f"{build_path}: contains no finished shard; run `exporter export --shard I/N`"
    except (OSError, ValidationError):
        message = f"{path}: cannot be read; run `exporter export --shard I/N` again"
    raise ExporterError(ExitCode.UNREADABLE, message)
