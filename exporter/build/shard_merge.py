"""The build folders of all shards as one, as if a single export had run.

In: a manifest and folders that `exporter export --shard` filled. Out: this project's build folder
with every model that a shard was to run, `results.json`, and why a cell has no result.

A shard speaks for its own models alone, whatever else lies in its folder. What did not come is
never taken from what was here before: a lost shard must show.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from exporter.build.decisions.build_results import Results, filter_valid_results
from exporter.build.folder.build_folder import BuildFolder
from exporter.cache.artifact_integrity import ArtifactVerifier
from exporter.core.errors import ExitCode, ExporterError, Problem
from exporter.jobs.job_folder import write_json
from exporter.manifest import Manifest
from exporter.planning.plan import Plan
from exporter.planning.shards import ShardNote, read_shard_note, remove_shard_note
from exporter.records.record import Record, RunRecord, read_run


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPart:
    """What one shard left."""

    folder: Path
    note: ShardNote
    run: RunRecord

    @property
    def records(self) -> tuple[Record, ...]:
        """Those that it speaks for."""
        mine = set(self.note.models)
        return tuple(record for record in self.run.records if record.cell.model in mine)


def read_shard_parts(folders: Iterable[Path], build: Path) -> tuple[ShardPart, ...]:
    """Reads every shard, and holds them against each other.

    Raises:
        ExporterError: UNREADABLE, where a folder holds no finished shard; RED, where one is
            missing or came twice, or where they do not belong together. All problems at once.
    """
    parts: list[ShardPart] = []
    problems: list[Problem] = []
    for folder in folders:
        try:
            if folder.resolve() == build.resolve():
                message = f"{folder}: is this project's own build folder, where the parts go"
                raise ExporterError(ExitCode.UNREADABLE, message)
            note, run = read_shard_note(folder), read_run(folder / "results.json")
            parts.append(ShardPart(folder=folder, note=note, run=run))
        except ExporterError as error:
            problems += error.problems
    if problems:
        raise ExporterError(ExitCode.UNREADABLE, problems)
    said = [Problem(message=message) for message in _misfits(parts)]
    if said:
        raise ExporterError(ExitCode.RED, said)
    return tuple(parts)


def merge_shards(manifest: Manifest, plan: Plan, parts: Iterable[ShardPart]) -> Results:
    """Puts the shards' models into the build folder and collects the records.

    Raises:
        ExporterError: UNREADABLE, where a folder holds links; ENVIRONMENT, where another run is at
            work here.
    """
    build = BuildFolder.from_project(manifest.project)
    parts = tuple(parts)
    known = {spec.id for spec in manifest.models}
    records: list[Record] = []
    with build.lock():
        remove_shard_note(build.path)
        build.results.unlink(missing_ok=True)  # until all is in place there is no result
        for part in parts:
            records += part.records
            for model in part.note.models:
                if model in known and (part.folder / model).exists():
                    _bring(part.folder / model, model, build)
        records.sort(key=lambda record: record.cell.sort_key)
        run = RunRecord(tools=parts[0].run.tools, records=tuple(records))
        results = _with_files(filter_valid_results(run, manifest, plan), build)
        write_json(build.results, results.run)
    return Results(run=results.run, missing=_with_reasons(results.missing, parts))


def _with_files(results: Results, build: BuildFolder) -> Results:
    """Without the results whose files did not come, or are not those that were proved."""
    intact = ArtifactVerifier(build.path)
    missing = {
        str(record.cell): problem
        for record in results.run.records
        if record.artifact and (problem := intact.find_problem(record.artifact))
    }
    records = tuple(each for each in results.run.records if str(each.cell) not in missing)
    return Results(
        run=results.run.model_copy(update={"records": records}),
        missing=results.missing | missing,
    )


def _misfits(parts: list[ShardPart]) -> Iterable[str]:
    counts = sorted({part.note.count for part in parts})
    if len(counts) > 1:
        yield f"the shards are of exports in {' and '.join(map(str, counts))} parts"
        return
    indices = [part.note.index for part in parts]
    for index in range(1, counts[0] + 1):
        if index not in indices:
            yield f"shard {index}/{counts[0]} is missing"
        elif indices.count(index) > 1:
            twice = [str(part.folder) for part in parts if part.note.index == index]
            yield f"shard {index}/{counts[0]} came {len(twice)} times: {', '.join(twice)}"
    first = parts[0]
    for part in parts[1:]:
        if part.run.tools != first.run.tools:
            yield f"{part.folder} was made with other tools than {first.folder}: " + ", ".join(
                f"{name} {part.run.tools.get(name)} and {first.run.tools.get(name)}"
                for name in sorted({*part.run.tools, *first.run.tools})
                if part.run.tools.get(name) != first.run.tools.get(name)
            )
    owners: dict[str, ShardPart] = {}
    for part in parts:
        for model in part.note.models:
            other = owners.setdefault(model, part)
            if other is not part:
                yield f"{model} is in shard {other.note.shard} and in {part.note.shard}"


def _bring(source: Path, model: str, build: BuildFolder) -> None:
    if source.is_symlink() or any(_links(source)):
        raise ExporterError(ExitCode.UNREADABLE, f"{source}: holds links; none is followed")
    fresh = build.create_folder(model)
    shutil.copytree(source, fresh.path, dirs_exist_ok=True)
    build.replace_model(model, fresh)


def _links(folder: Path) -> Iterable[Path]:
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if (path := Path(parent) / name).is_symlink():
                yield path


def _with_reasons(missing: Mapping[str, str], parts: Iterable[ShardPart]) -> dict[str, str]:
    owners = {model: part.note.shard for part in parts for model in part.note.models}
    reasons = {}
    for cell, why in missing.items():
        shard = owners.get(cell.partition("/")[0])
        reasons[cell] = f"shard {shard}: {why}" if shard else "no shard was to run it"
    return reasons
