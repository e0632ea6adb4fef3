"""`exporter merge`: results of other machines, shards of an export or verdicts of `verify`.

A shard provides only its own models, even if its folder contains others. A missing result is never
replaced by an earlier one, because a lost shard must be visible. The other shards are merged
nevertheless, so that the gate can compare them and list the missing cells.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import click

from exporter.api.gate_run import read_results
from exporter.cli.options import root_option, weights_option
from exporter.cli.output.tables import make_summary, open_project
from exporter.cli.output.terminal import print_error, print_line, print_summary
from exporter.core.errors import ExitCode, ExporterError, Problem
from exporter.core.text import pluralize
from exporter.gate.evidence import add_evidence, find_evidence_path
from exporter.jobs import write_json
from exporter.manifest import Manifest
from exporter.pipeline.build_folder import BuildFolder
from exporter.pipeline.decisions import Results, drop_changed_files, filter_valid_results
from exporter.pipeline.shard_note import ShardNote, read_shard_note
from exporter.planning.plan import Plan, make_plan
from exporter.records.record import Record, RunRecord, read_run
from exporter.report.reports_folder import write_reports
from exporter.report.rows.cells import group_by_opset


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPart:
    """The results of one shard."""

    folder: Path
    note: ShardNote
    run: RunRecord

    @property
    def records(self) -> tuple[Record, ...]:
        models = set(self.note.models)
        return tuple(record for record in self.run.records if record.cell.model in models)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedShards:
    """The results of all readable shards."""

    results: Results
    count: int
    """The number of merged shards."""
    problems: tuple[Problem, ...]
    """The shards that are missing or unreadable."""


def merge_shards(manifest: Manifest, plan: Plan, folders: Iterable[Path]) -> MergedShards:
    """Copy the shards' models into the build folder and collect the records.

    Raises:
        ExporterError: with all problems. UNREADABLE, if a folder is the target, if no folder is a
            finished shard, or if one contains symlinks. RED, if a shard is given twice, or the
            shards are of different exports. ENVIRONMENT, if another run has locked the build
            folder. Only the first case keeps the earlier results.
    """
    build_folder = BuildFolder.from_project(manifest.project)
    folders = tuple(folders)
    for folder in folders:
        if folder.resolve() == build_folder.path.resolve():
            message = f"{folder}: is this project's own build folder, the target of the merge"
            raise ExporterError(ExitCode.UNREADABLE, message)
    models = {spec.id for spec in manifest.models}
    others = [build_folder.get_part(suffix) for suffix in manifest.project.job_environments]
    records: list[Record] = []
    with build_folder.lock(), contextlib.ExitStack() as stack:
        for other in others:
            stack.enter_context(other.lock())
        build_folder.shard_note.unlink(missing_ok=True)
        build_folder.results.unlink(missing_ok=True)  # no results before all shards are copied
        parts, problems = _read_parts(folders)
        for part in parts:
            records += part.records
            for model_id in part.note.models:
                if model_id not in models:
                    continue
                for target in (build_folder, *others):
                    source = part.folder / target.path.relative_to(build_folder.path) / model_id
                    if source.exists():
                        _copy_model(source, model_id, target)
        records.sort(key=lambda record: record.cell.sort_key)
        run = RunRecord(tools=parts[0].run.tools, records=tuple(records))
        results = filter_valid_results(run, manifest, plan)
        results = drop_changed_files(results, build_folder.path, is_complete=True)
        write_json(build_folder.results, results.run)
    shards = {model_id: part.note.shard for part in parts for model_id in part.note.models}
    missing = {}
    for cell, reason in results.missing.items():
        shard = shards.get(cell.model)
        missing[cell] = f"shard {shard}: {reason}" if shard else "no shard contains it"
    return MergedShards(
        results=replace(results, missing=missing), count=len(parts), problems=tuple(problems)
    )


def _read_parts(folders: Iterable[Path]) -> tuple[list[ShardPart], list[Problem]]:
    """Return the readable shards, and a problem for each missing or unreadable one.

    Raises:
        ExporterError: see `merge_shards`.
    """
    parts: list[ShardPart] = []
    problems: list[Problem] = []
    for folder in folders:
        try:
            note, run = read_shard_note(folder), read_run(folder / "results.json")
        except ExporterError as error:
            problems += error.problems
        else:
            parts.append(ShardPart(folder=folder, note=note, run=run))
    if not parts:
        raise ExporterError(ExitCode.UNREADABLE, problems)
    if mismatches := [Problem(message=message) for message in _find_mismatches(parts)]:
        raise ExporterError(ExitCode.RED, [*problems, *mismatches])
    count = parts[0].note.count
    indices = {part.note.index for part in parts}
    for index in range(1, count + 1):
        if index not in indices:
            message = f"shard {index}/{count} is missing; its cells have no result: see its job"
            problems.append(Problem(message=message))
    return parts, problems


def _find_mismatches(parts: Sequence[ShardPart]) -> Iterator[str]:
    """Yield why the shards do not belong together."""
    counts = sorted({part.note.count for part in parts})
    if len(counts) > 1:
        yield f"the shards are of exports in {' and '.join(map(str, counts))} parts"
        return
    for index in range(1, counts[0] + 1):
        folders = [str(part.folder) for part in parts if part.note.index == index]
        if len(folders) > 1:
            times = f"{len(folders)} times: {', '.join(folders)}"
            yield f"shard {index}/{counts[0]} was given {times}"
    first = parts[0]
    for part in parts[1:]:
        if part.run.tools != first.run.tools:
            yield f"{part.folder} was built with other tools than {first.folder}: " + ", ".join(
                f"{name} {part.run.tools.get(name)} and {first.run.tools.get(name)}"
                for name in sorted({*part.run.tools, *first.run.tools})
                if part.run.tools.get(name) != first.run.tools.get(name)
            )
    owners: dict[str, ShardPart] = {}
    for part in parts:
        for model_id in part.note.models:
            other = owners.setdefault(model_id, part)
            if other is not part:
                yield f"{model_id} is in shard {other.note.shard} and in {part.note.shard}"


def _copy_model(source: Path, model_id: str, build_folder: BuildFolder) -> None:
    paths = (Path(p) / name for p, folders, files in os.walk(source) for name in (*folders, *files))
    modes = (path.lstat().st_mode for path in (source, *paths))
    if not all(stat.S_ISREG(mode) or stat.S_ISDIR(mode) for mode in modes):
        message = (
            f"{source}: contains symlinks or pipes, which are not copied; export the shard again"
        )
        raise ExporterError(ExitCode.UNREADABLE, message)
    fresh = build_folder.create_folder(model_id)
    shutil.copytree(source, fresh.path, dirs_exist_ok=True)
    build_folder.replace_model(model_id, fresh)


@click.command()
@click.argument(
    "folders",  # its name in version 1.0
    metavar="PATH...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, path_type=Path),
)
@root_option
@weights_option
def merge(folders: tuple[Path, ...], root: Path, weights: str | None) -> int:
    """Add the results of other machines, and write the tables.

    PATHS are the build folders of all parts of `export --shard`, with all cells of the manifests;
    if one is missing, the others are joined and the exit code is 1. Red cells do not change the
    exit code, because the gate decides about them.

    Or PATHS are files of `exporter verify FOLDER --device NAME --json > FILE`, from a machine with
    the device. Their verdicts are added to `evidence.json` in the folder of the reports; commit it.
    The digest of a file detects damage; the verdicts are a claim of the person who commits them.
    """
    files = tuple(path for path in folders if not path.is_dir())
    shards = tuple(path for path in folders if path.is_dir())
    if shards and files:
        message = (
            f"{files[0]}: is no build folder of a shard, as {shards[0]} is; merge the folders, "
            "then the files of `exporter verify --json`"
        )
        raise ExporterError(ExitCode.MANIFEST, message)
    manifest = open_project(root, initial_weights=weights is not None)
    return _merge_verdicts(manifest, files) if files else _merge_folders(manifest, shards)


def _merge_folders(manifest: Manifest, folders: tuple[Path, ...]) -> int:
    plan = make_plan(manifest)
    merged = merge_shards(manifest, plan, folders)
    results = merged.results
    for warning in write_reports(manifest, results.run):
        print_error(warning)
    print_summary(make_summary(manifest, plan, results.run))
    tables = f"{manifest.project.reports}/COMPATIBILITY.md"
    print_line(f"merged {pluralize(merged.count, 'shard')}; tables: {tables}")
    problems = list(merged.problems)
    # A problem at its entry for each group of cells without a result.
    entries = {spec.id: spec.location for spec in manifest.models}
    missing = results.missing.items()
    for group in group_by_opset(missing, lambda item: item[0], lambda item: item[1]):
        cell, reason = group.first
        location = entries.get(cell.model)
        message = f"no result: {reason}"
        problems.append(Problem(key=group.label, message=message, location=location))
    if problems:
        raise ExporterError(ExitCode.RED, problems)
    return ExitCode.OK


def _merge_verdicts(manifest: Manifest, files: tuple[Path, ...]) -> int:
    lock = BuildFolder.from_project(manifest.project).lock_committed_files()
    click.get_current_context().with_resource(lock)
    run = read_results(manifest).run
    refused = 0
    for file in files:
        added, problems = add_evidence(manifest, run, file, datetime.now(UTC))
        for row in added:
            print_line(f"{row.cell}: {row}")
        for problem in problems:
            print_error(f"{file}: {problem}")
        refused += len(problems)
        count = pluralize(len(added), "row")
        print_line(f"{count} added to {find_evidence_path(manifest.project)}")
    for warning in write_reports(manifest, run):
        print_error(warning)
    return ExitCode.RED if refused else ExitCode.OK


@click.group()
def evidence() -> None:
    """Add measurements, as `exporter merge` does, which replaces it."""


@evidence.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@root_option
def add(files: tuple[Path, ...], root: Path) -> int:
    """Add the verdicts in FILES to `evidence.json` in the folder of the reports."""
    print_error("warning: `evidence add`: version 2 removes it; use `exporter merge FILE...`")
    return _merge_verdicts(open_project(root), files)
