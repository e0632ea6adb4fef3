"""`exporter record` and `exporter add`: entries from observed calls, with their verdicts."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import click

from exporter.api.finished_file import make_finished_entry, prove_in, prove_specs
from exporter.cli.options import root_option
from exporter.cli.output.progress import print_late
from exporter.cli.output.tables import print_ignored_files
from exporter.cli.output.terminal import choose_color, is_terminal, print_error, print_line
from exporter.commands.recording.entry import choose_id
from exporter.commands.recording.file_changes import apply_changes
from exporter.commands.recording.observation import Observation, merge_observations
from exporter.commands.recording.recorder import (
    PreparedEntry,
    ProvedEntry,
    TargetProject,
    find_builders,
    prove_script_file,
    read_file_interface,
    record_command,
    stage_entry,
)
from exporter.commands.recording.script_file import (
    compare_file,
    free_unknown_sizes,
    rename_inputs,
)
from exporter.commands.recording.sources import (
    choose_settings,
    describe_configuration,
    describe_source,
    describe_with_function,
    name_option,
)
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.files import copy_file, require_inside_checkout
from exporter.core.text import join_lines, pluralize
from exporter.core.toml_table import SETTINGS_FILE, find_settings, read_toml_table
from exporter.manifest import ModelSpec, load_project
from exporter.manifest.loader import load_settings
from exporter.processes import ProcessStarter
from exporter.processes.fork_server_client import make_starter
from exporter.processes.worker_variables import make_worker_environment
from exporter.records.record import Record

yes_option = click.option("--yes", is_flag=True, help="Write without a question.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Show the entries only.")

#: The line of an entry whose trials need long.
_LATE = "{}: its sizes and its file are being tried"


@click.command()
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--model", default="", help="Observe the calls of FILE.py:CLASS, not exports.")
@click.option("--modules", default="", help="Observe the outermost calls of this package.")
@click.option("--check", is_flag=True, help="Only list missing and differing entries; exit with 1.")
@click.option("--update", is_flag=True, help="Apply the differences to the existing entries.")
@click.option("--timeout", type=float, help="Seconds after which the command is killed.")
@dry_run_option
@yes_option
@root_option
def record(
    command: tuple[str, ...],
    model: str,
    modules: str,
    timeout: float | None,
    root: Path,
    **flags: bool,
) -> int:
    """Write entries from the exports of a script.

    COMMAND is a script or a test run: `exporter record -- python export.py`, `-- pytest tests`.
    Model, arguments, names, axes, opset and options of each call become an entry, which is proved
    before it is written. Files of the project do not change.
    """
    root = root.absolute()
    location, _, name = model.rpartition(":")
    if model and not (location and name.isidentifier()):
        raise ExporterError(ExitCode.MANIFEST, f"--model {model}: expected FILE.py:CLASS")
    if location.endswith(".py"):
        if not Path(location).is_file():
            raise ExporterError(ExitCode.MANIFEST, f"--model {location}: no such file")
        model = f"{Path(location).resolve()}:{name}"
    with record_command(
        command, os.environ, print_line, model=model, package=modules, seconds=timeout
    ) as (calls, code):
        if code:
            print_error(f"the command exited with {code}; its observed calls are used")
        observations = merge_observations(calls)
        print_error(f"{pluralize(len(observations), 'model')} observed")
        return _write_entries(observations, root, flags)


@click.command()
@click.argument("source")
@click.option("--input", "inputs", multiple=True, help="NAME=SIZES:DTYPE, image=2x3x64x64.")
@click.option("--call", default="", help="FILE.py:FUNCTION that returns the arguments.")
@click.option("--config", type=click.Path(path_type=Path), help="File or folder of transformers.")
@click.option("--init", multiple=True, help="NAME=VALUE, an argument of the class; repeatable.")
@click.option("--weights", default="", help="File of the project with the trained weights.")
@click.option("--name", default="", help="ID of the entry; by default, from the class.")
@click.option("--opset", "opsets", multiple=True, type=int, help="Opset of the file; repeatable.")
@dry_run_option
@yes_option
@root_option
def add(
    source: str,
    inputs: tuple[str, ...],
    call: str,
    config: Path | None,
    init: tuple[str, ...],
    root: Path,
    **options: Any,
) -> int:
    """Write an entry for a class or a function.

    SOURCE is FILE.py:CLASS, package.module:CLASS or a folder of `save_pretrained`. The model runs
    at several sizes, which shows its dynamic axes. The entry is proved before it is written.
    """
    root = root.absolute()
    if sum(map(bool, (inputs, call, config))) > 1:
        message = "--input, --call and --config: pass one of the three"
        raise ExporterError(ExitCode.MANIFEST, message)
    environment = make_worker_environment(os.environ)
    if config or Path(source).is_dir():
        observation = describe_configuration(source, config or Path(source), root, environment)
    elif call:
        observation = describe_with_function(source, call, init, root, environment)
    else:
        observation = describe_source(source, inputs, init, root)
    chosen = choose_settings(options.pop("weights"), options.pop("name"), root)
    chosen["opsets"] = tuple(sorted({*options.pop("opsets")}))
    return _write_entries([observation.model_copy(update=chosen)], root, options)


def _write_entries(
    observations: Sequence[Observation], root: Path, flags: Mapping[str, bool]
) -> int:
    if root != Path.cwd():
        print_error(f"the entries are for the project {root}")
    settings = load_settings(root)
    folder = root / settings.manifests[0]
    has_entries = any(path for each in settings.manifests for path in (root / each).rglob("*.toml"))
    models = load_project(root, keep_invalid=True).models if has_entries else ()
    files = {path.stem for pattern in ("*.toml", "models/*.*") for path in folder.glob(pattern)}
    project = TargetProject(
        root=root,
        settings=settings,
        environment=os.environ,
        taken={spec.id for spec in models} | files,
    )
    for id in {each.id for each in observations} & project.taken:
        if not any(_find_existing(each, models, root, flags) for each in observations):
            message = f"--name {id}: this name is taken; pass another one"
            raise ExporterError(ExitCode.MANIFEST, message)
    problems: Counter[str] = Counter()
    steps = list[str]()  # what is to do for each model without an entry
    count = 0
    with closing(make_starter(os.environ, settings.environment)) as starter:
        for observation in observations:
            if observation.export_error:
                message = f"the script's own export failed: {observation.export_error}"
                print_error(f"{observation.label}: {message}")
            if existing := _find_existing(observation, models, root, flags):
                if _compare(observation, project, existing, flags) is ExitCode.RED:
                    problems["different"] += 1
                continue
            if flags.get("check"):
                file, problem = observation.class_file, observation.problem
                name = f"{os.path.relpath(file, root)}:" if file else ""
                text = "has no entry; run `exporter record` without --check"
                text = f"its export is not described: {problem}" if problem else text
                print_line(f"{name}{observation.label}: {text}")
                problems["missing"] += 1
                steps.append("`exporter record` without --check")
                continue
            with (
                print_late(partial(_LATE.format, observation.label)),
                stage_entry(observation, project) as (entry, contracts),
            ):
                if not contracts:
                    is_added = observation.kind == "source"
                    problem = entry.problem
                    problem = name_option(problem, observation) if is_added else problem
                    print_error(f"{observation.label}: no entry: {problem}")
                    problems["missing"] += 1
                    first = observation.export_error or problem
                    steps.append(_find_fix(observation.label, first))
                    continue
                # Equal outcomes of an entry count once.
                problems.update(_list_problems(observation, entry, contracts, project, starter))
                if entry.note:
                    print_error(f"{observation.label}: {entry.note}")
            count += len(contracts) if _apply(entry, project, flags) else 0
    if not flags.get("dry_run"):
        print_ignored_files(root, os.environ)
    _print_summary(root, count, problems, steps)
    return ExitCode.RED if problems else ExitCode.OK


def _print_summary(
    root: Path, count: int, problems: Mapping[str, int], steps: Sequence[str]
) -> None:
    """Print what there is now and the next step: that of the first missing entry if all are."""
    entries = pluralize(count, "new entry", "new entries")
    result = ", ".join(f"{number} {word}" for word, number in problems.items())
    if steps and not count:
        step = steps[0]
    else:
        table = read_toml_table(root / SETTINGS_FILE).table
        step = "`exporter export`" if find_settings(table)[0] else "`exporter init`"
    print_line(f"{entries}, {result or '0 red or missing'}; next: {step}")


def _find_fix(label: str, problem: str) -> str:
    """Return what a message without an entry, `<problem>; <fix>`, says to do."""
    fix = join_lines(problem).partition("; ")[2]
    return f"{label}: {fix or 'correct the cause above, and record again'}"


def _list_problems(
    observation: Observation,
    prepared: PreparedEntry,
    contracts: Sequence[ModelSpec],
    project: TargetProject,
    starter: ProcessStarter,
) -> set[str]:
    """Print the verdicts of an entry and of the script's files; return those that are not green."""
    with tempfile.TemporaryDirectory(prefix="exporter-record-") as build:
        records = _show(prepared, contracts, project, starter, build)
        problems = {each.status.value for each in records if not each.status.is_green}
        if observation.export_error and not problems:
            print_error("    fix: ship the file of `exporter export`, which passes here")
        if len(contracts) == 1:
            proved = ProvedEntry(spec=contracts[0], records=records, build=Path(build))
            proofs = _prove_files(observation, prepared, proved, project, starter)
            problems |= {each.status.value for each in proofs if each.status.is_red}
    return problems


def _apply(prepared: PreparedEntry, project: TargetProject, flags: Mapping[str, bool]) -> bool:
    """Write the files of an entry, after a question on a terminal; return whether they are."""
    is_asked = not (flags["yes"] or flags["dry_run"]) and is_terminal() and sys.stdin.isatty()
    if flags["dry_run"] or (is_asked and not click.confirm(f"write {prepared.id}?", default=True)):
        return False
    apply_changes(prepared.changes)
    project.taken.add(prepared.id)
    for change in prepared.changes:
        verb = "created" if change.before is None else "updated"
        print_line(f"{verb} {change.path.relative_to(project.root).as_posix()}")
    if prepared.captured:
        recorded, path = prepared.captured
        require_inside_checkout(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        copy_file(recorded, part)
        part.replace(path)
        text = "the weights of this run; commit or ignore it as you do with checkpoints"
        print_line(f"created {path.relative_to(project.root).as_posix()}: {text}")
    return True


def _compare(
    observation: Observation,
    project: TargetProject,
    entries: Sequence[ModelSpec],
    flags: Mapping[str, bool],
) -> ExitCode:
    """Print the differences of the entry from the script; apply them if that is requested."""
    is_added = observation.kind == "source"
    for existing in entries:
        with stage_entry(observation, project, existing) as (entry, _):
            differences = {"model": entry.problem} if entry.problem else entry.differences
        if not differences:
            break
    for key, text in differences.items():
        reason = name_option(text, observation) if is_added and entry.problem else text
        print_line(f"{existing.location}: {existing.id}: {key}: {reason}", wraps=True)
    if not differences:
        text = "promises what this call shows" if is_added else "promises what the script exports"
        hint = "; `--name ID` adds a second entry" if is_added else ""
        print_line(f"{existing.id}: {text}, {existing.location}{hint}")
    elif flags.get("update") and not entry.problem:
        _apply(entry, project, flags)
        return ExitCode.OK
    elif not entry.problem:
        if is_added:
            text = "differs from this call; edit it, or add a second entry with `--name ID`"
        else:
            text = "differs from the script; `exporter record --update` applies it"
        print_line(f"{existing.id}: {text}")
    return ExitCode.RED if differences and (flags.get("check") or entry.problem) else ExitCode.OK


def _find_existing(
    observation: Observation, models: Sequence[ModelSpec], root: Path, flags: Mapping[str, bool]
) -> list[ModelSpec]:
    """Return the entry of the same class with the name of its file or its arguments.

    With `--check`, all entries of the class if there is no such entry.
    """
    name = choose_id(observation, ()) if observation.title or observation.id else ""
    builders = find_builders(observation, models, root)
    same = [
        spec
        for spec in builders
        if spec.id == name or (not name and spec.init == observation.construction.init)
    ]
    return same[:1] or (builders if flags.get("check") else [])


def _show(
    prepared: PreparedEntry,
    contracts: Sequence[ModelSpec],
    project: TargetProject,
    starter: ProcessStarter,
    build: str,
) -> list[Record]:
    """Print the files and the verdicts of an entry; return the verdicts."""
    for change in prepared.changes:
        print_line(f"# {change.path.relative_to(project.root).as_posix()}", color="cyan")
        print_line(change.text)
    specs: list[ModelSpec] = []
    for contract in contracts:
        devices = tuple(each for each in contract.devices if each == "cpu") or contract.devices[:1]
        specs.append(contract.model_copy(update={"devices": devices}))
    records = list(prove_in(build, project.settings, specs, starter))
    for each in records:
        _print_verdict(str(each.cell), each)
    return records


def _print_verdict(subject: str, record: Record) -> None:
    message = "" if record.status.is_green else f": {record.check or record.stage}"
    message += f": {record.message}" if message else ""
    color = choose_color(record.status)
    print_line(f"{subject}: {record.status}{join_lines(message)}", color=color, wraps=True)
    for text in record.advice:
        print_line(f"    advice: {text}", wraps=True)


def _prove_files(
    observation: Observation,
    prepared: PreparedEntry,
    entry: ProvedEntry,
    project: TargetProject,
    starter: ProcessStarter,
) -> Iterator[Record]:
    """Prove the files that the script left against the entry, and yield the verdicts.

    A script may edit its file after the export. Each difference from the entry is a line.
    """
    spec = entry.spec
    proved = next((each.route.exporter for each in entry.records if each.route), "")
    for path, exporter in observation.written.items():
        name = os.path.relpath(path, project.root)
        name = path if name.startswith("..") else name
        if not Path(path).exists():
            print_line(f"{name}: was not compared, because the script removed it")
            continue
        try:
            file = read_file_interface(path, project)
        except ExporterError as error:
            print_line(f"{name}: was not compared: {error}", wraps=True)
            continue
        for text in compare_file(file, exporter, spec, proved):
            print_line(f"{name}: {text}", wraps=True)
        update = {
            "inputs": rename_inputs(file, spec),
            "outputs": free_unknown_sizes(file, spec),
            "weights": prepared.drawn_weights or spec.weights,
        }
        renamed = spec.model_copy(update=update)
        finished = make_finished_entry(renamed, Path(path), file.opset, ("cpu",))
        # The samples of the entry are those of a file with the same weights.
        records = () if prepared.drawn_weights else prove_script_file(finished, entry, project)
        for record in records or prove_specs(project.settings, [finished], starter):
            _print_verdict(f"{name} against {spec.id}", record)
            yield record
