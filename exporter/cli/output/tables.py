"""Tables and lines of the commands: summaries, calls, plans, findings and notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.cache.states import MODULES
from exporter.cli.output.terminal import (
    choose_color,
    find_width,
    fold_log,
    print_error,
    print_line,
    print_problem,
    print_table,
)
from exporter.core.errors import (
    ExitCode,
    ExporterError,
    ExportSummary,
    Problem,
    shorten_problems,
)
from exporter.core.git import list_ignored_files
from exporter.core.text import join_lines, join_names, pluralize
from exporter.manifest import Manifest, Style, load_project
from exporter.manifest.rules.layers import FETCH_GUIDE
from exporter.manifest.syntax.silent_faults import list_silent_faults
from exporter.planning import Selection
from exporter.planning.plan import Plan, PlannedCell, make_plan
from exporter.records.record import (
    DIAGNOSIS_NOTE,
    EQUAL_VALUES,
    IN_PLACE_OF,
    INITIAL_PROOF,
    NO_SETTING,
    TRACED_BRANCH,
    TRACED_NUMBERS,
    UNMEASURED_NOTE,
    UNPROVED_PREFIX,
    UNPROVED_SETTINGS,
    WITHHELD_NOTE,
    CellId,
    Record,
    RunRecord,
    Stage,
    Status,
)
from exporter.report.formats import choose_mark
from exporter.report.pages.templates import render_script
from exporter.report.rows import failures
from exporter.report.rows.artifacts import format_timings, sum_timings
from exporter.report.rows.cells import group_by_opset, mask_numbers

#: Lines of a summary that refer to the folder of a project, which a test does not have.
_PROJECT_LINES = ("    promised at: ", "    reproduce: ", "    log: ")


def make_summary(
    manifest: Manifest,
    plan: Plan,
    run: RunRecord,
    *,
    restored: int = 0,
    timings: bool = False,
    grid: bool = True,
    verbose: bool = False,
) -> ExportSummary:
    """Return the summary of the selected cells.

    Returns:
        The summary with the exit code RED if a selected cell is red or has no record, else
        MANIFEST if a manifest file has a problem.
    """
    by_cell = run.by_cell()
    records = [by_cell.get(planned.cell) for planned in plan.selected]
    existing = [record for record in records if record]
    red = [record for record in existing if record.status.is_red]
    lines: list[tuple[str, str | None]] = []
    for device_name in dict.fromkeys(planned.cell.device for planned in plan.selected if grid):
        cells = [planned for planned in plan.selected if planned.cell.device == device_name]
        rows = format_grid(cells, by_cell, manifest.project.style)
        lines += [(line, None) for line in ("", *rows)]
    thorough = sum(record.thorough for record in existing)
    thorough_text = f", {thorough} of them proved thoroughly" if thorough else ""
    restored_text = f", {restored} of them restored from the store" if restored else ""
    counts = pluralize(len(records), "cell")
    counts += f": {format_counts(records)}" if records else ""
    last = f"{counts}{thorough_text}{restored_text}"
    timing_lines = []
    if timings:
        stages, checks = sum_timings(existing)
        total = sum(stages.values())
        timing_lines.append(f"time of the workers: {total:.1f} s: {format_timings(stages)}")
        timing_lines.append(f"of that, by check: {format_timings(checks)}")
    is_red = bool(red) or len(existing) < len(records)
    green_code = ExitCode.MANIFEST if manifest.problems else ExitCode.OK
    return ExportSummary(
        lines=(
            *lines,
            *([("", None)] if grid else ()),
            *_format_red_groups(manifest, red, verbose=verbose),
            *(_format_unavailable(existing) if grid else ()),
            *((line, None) for line in timing_lines),
            *((line, None) for line in format_initial_weights(existing)),
            *((line, None) for line in _describe_notes(existing)),
            *((f"warning: {fault}", None) for fault in list_silent_faults(run.tools)),
            (last, "red" if is_red else "green"),
        ),
        code=ExitCode.RED if is_red else green_code,
    )


_SHOWN_NOTES = (f"{UNPROVED_PREFIX}{EQUAL_VALUES}", f"{UNPROVED_PREFIX}{UNPROVED_SETTINGS}")


def _describe_notes(records: Iterable[Record]) -> Iterator[str]:
    """Yield a line for each text about variables, reads and traces, with the models."""
    models: dict[str, dict[str, None]] = {}
    for record in records:
        texts = [note for note in record.notes if note.startswith((WITHHELD_NOTE, UNMEASURED_NOTE))]
        if record.status is Status.PASS:
            for note in record.notes:
                if TRACED_BRANCH in note:
                    texts.append(f"the trace keeps one branch: {note}")
                elif any(kind in note for kind in TRACED_NUMBERS):
                    texts.append(f"the trace keeps one number: {note}")
                elif note.startswith(_SHOWN_NOTES):
                    texts.append(note)
        untracked = " and ".join(record.untracked)
        if untracked:
            texts.append(f"runs in each export: {untracked} cannot be tracked")
        for text in texts:
            models.setdefault(text, {})[record.cell.model] = None
    for text, names in models.items():
        yield f"{next(iter(names)) if len(names) == 1 else pluralize(len(names), 'model')}: {text}"


def describe_failures(manifest: Manifest, red: Sequence[Record]) -> str:
    """Return the lines of the terminal for red cells, without those about a project's folder."""
    cells = tuple(map(str, (record.cell for record in red)))
    plan = make_plan(manifest, Selection(patterns=cells))
    summary = make_summary(manifest, plan, RunRecord(tools={}, records=tuple(red)), grid=False)
    lines = (line for line, _ in summary.lines)
    text = "\n".join(line for line in lines if not line.startswith(_PROJECT_LINES))
    return text.replace("\n    cause: ", ": ")  # pytest repeats the first line in its summary


def format_grid(
    cells: Sequence[PlannedCell], records: Mapping[CellId, Record], style: Style = "emoji"
) -> list[str]:
    """Return a table of models and opsets with a mark of two columns for each cell."""
    opsets = sorted({planned.cell.opset for planned in cells})
    models = dict.fromkeys(planned.cell.model for planned in cells)
    by_opset = {(planned.cell.model, planned.cell.opset): planned for planned in cells}
    device_name = cells[0].cell.device
    width = max(len(name) for name in (device_name, *models))
    lines = [f"{device_name:{width}}  " + " ".join(f"{opset:2}" for opset in opsets)]
    for model_id in models:
        marks = []
        for opset in opsets:
            if planned := by_opset.get((model_id, opset)):
                mark = choose_mark(records.get(planned.cell))
                # A symbol has two columns, a letter one.
                marks.append(mark.symbol if style == "emoji" else f" {mark.letter}")
            else:
                marks.append("  ")
        lines.append(f"{model_id:{width}}  {' '.join(marks)}".rstrip())
    return lines


def format_counts(records: Sequence[Record | None]) -> str:
    """Return the number of records per status: `12 pass, 1 fail`."""
    by_word = Counter(choose_mark(record).word for record in records)
    order = [status.value for status in Status]
    words = sorted(by_word, key=lambda word: order.index(word) if word in order else len(order))
    return ", ".join(f"{by_word[word]} {word}" for word in words)


def _format_unavailable(records: Sequence[Record]) -> Iterator[tuple[str, str | None]]:
    """Yield a line for each device and reason, as a missing package is repaired only if known."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.status is Status.UNAVAILABLE:
            key = (str(record.cell.device), mask_numbers(record.message))
            groups.setdefault(key, []).append(record)
    for (device_name, _), group in groups.items():
        count = pluralize(len(group), "cell")
        yield f"{device_name}: {count} unavailable: {join_lines(group[0].message)}", None


def _format_red_groups(
    manifest: Manifest, red: Sequence[Record], *, verbose: bool
) -> Iterator[tuple[str, str | None]]:
    """Yield labelled lines: the cause, what repairs it, what shows it, and where it is promised.

    `verbose`: Whether the advice has the list of what was tried and does not help.
    """
    groups = group_by_opset(
        red,
        lambda record: record.cell,
        lambda record: (record.outcome, mask_numbers(record.message)),
    )
    same: dict[object, list[str]] = {}
    for group in groups:
        key = (group.first.outcome, group.first.message)
        same.setdefault(key, []).append(str(group.label))
    for group in groups:
        record = group.first
        others = same[record.outcome, record.message]
        # Without blame, all of its lines are those of the first one.
        if record.stage is Stage.SOURCE and others[0] != str(group.label):
            continue
        text = failures.split_message(record)
        yield f"{group.label}: {record.outcome}", choose_color(record.status)
        expectation = f" ({record.expectation})" if record.expectation else ""
        code = record.failure_code
        labelled = [
            ("cause", f"{text.cause}{expectation}"),
            *(("fix", fix) for fix in text.fixes),
            ("shown by", text.shown_by),
        ]
        if record.stage is Stage.SOURCE and len(others) > 1:
            labelled.append(("also", join_names(others[1:])))
        for each in record.advice:
            if each not in text.fixes and each not in record.message:
                is_folded = not verbose and each.startswith(f"{NO_SETTING}: ")
                folded = f"{NO_SETTING} (-v lists what was tried)"
                labelled.append(("advice", folded if is_folded else each))
        if record.blame or record.missing:
            labelled.append(("", failures.summarize_failure(record)))
        labelled += [("obstacle", each) for each in record.obstacles]
        ended = (each for each in record.notes if verbose and each.startswith(DIAGNOSIS_NOTE))
        labelled += [("note", each) for each in ended]
        labelled.append(("promised at", str(manifest.find_model(record.cell.model).location)))
        lines = failures.find_model_lines(record)
        # The message begins with the line of the model, if there is one.
        if lines and lines[0] not in record.message:
            labelled.append(("in the model at", ", ".join(lines)))
        labelled.append(("code", f"{code}, explained by `exporter guide {code}`"))
        labelled.append(("reproduce", failures.format_repro_command(record, manifest.project)))
        if record.log:
            labelled.append(("log", f"{manifest.project.build}/{record.log}"))
        for label, value in labelled:
            if value:
                yield (
                    f"    {label}: {join_lines(value)}" if label else f"    {join_lines(value)}",
                    None,
                )
        yield "", None


#: The reason of a plan for the cells of an entry with a problem.
INVALID_ENTRY = "its entry is invalid; `exporter check` lists the problems"

if TYPE_CHECKING:  # most commands print only some of these tables
    from exporter.pipeline.decisions import Results
    from exporter.program import BuildPlan


def open_project(root: Path, *, initial_weights: bool = False) -> Manifest:
    """Return the manifest, and print its problems. The cells of an invalid entry are red.

    Raises:
        ExporterError: MANIFEST if no entry can be read.
    """
    manifest = load_project(root, keep_invalid=True, initial_weights=initial_weights)
    print_file_problems(manifest)
    command = manifest.project.command.format("check")
    invalid = (
        Problem(
            message=f"{pluralize(len(spec.problems), 'problem')}; `{command}` lists them",
            location=spec.location,
            key=spec.id,
        )
        for spec in manifest.models
        if spec.problems
    )
    for problem in shorten_problems(invalid):
        print_problem(problem)
    for name, models in manifest.missing_files.items():
        print_error(
            f"{name}: does not exist here, and git ignores it: {_count_models(models)} cannot be "
            f"exported; fetch it first: see {FETCH_GUIDE}"
        )
    return manifest


def _count_models(names: Collection[str]) -> str:
    return f"{pluralize(len(names), 'model')} ({join_names([*names])})"


def describe_ignored_files(
    manifest: Manifest, environment: Mapping[str, str], records: Iterable[Record] = ()
) -> Iterator[str]:
    """Yield a note for each data file that CI does not have, because git ignores it.

    With `weights_sha256` the entry says which file CI has to fetch, so there is no note. There is
    none in CI either: a file that is there was fetched, and a missing one is a problem.

    `records`: Results, whose models may have read a checkpoint that the entry does not name. A
    module is none, because an installation may write it again.
    """
    if environment.get("CI"):
        return
    models: dict[str, dict[str, None]] = {}
    for spec in manifest.models:
        if spec.weights_sha256:
            continue
        for name in spec.data_files:
            models.setdefault(name, {})[spec.id] = None
    for record in records:
        model = record.cell.model
        named = manifest.by_id[model].data_files if model in manifest.by_id else ()
        for source in record.sources:
            is_data = source.is_file and Path(source.file).suffix not in MODULES
            if is_data and source.file not in named:
                models.setdefault(source.file, {})[model] = None
    root = Path(manifest.project.root)
    for name in list_ignored_files(root, models.keys(), environment):
        yield (
            f"{name}: git ignores it, so CI does not have it for {_count_models(models[name])}; "
            f"see {FETCH_GUIDE}"
        )


def print_ignored_files(root: Path, environment: Mapping[str, str]) -> None:
    """Print a note for each file of `describe_ignored_files`; none without a valid project."""
    with suppress(ExporterError):
        print_file_notes(load_project(root, keep_invalid=True), environment)


def print_file_notes(
    manifest: Manifest, environment: Mapping[str, str], records: Iterable[Record] = ()
) -> None:
    for note in describe_ignored_files(manifest, environment, records):
        print_error(f"note: {note}")


def print_file_problems(manifest: Manifest) -> None:
    """Print the problems that belong to no cell."""
    for problem in shorten_problems(manifest.problems):
        print_problem(problem)


def require_readable_files(manifest: Manifest) -> None:
    """Raise an error if the models of a file are unknown, before their results are removed.

    Raises:
        ExporterError: MANIFEST, with the problems.
    """
    if manifest.problems:
        raise ExporterError(ExitCode.MANIFEST, manifest.problems)


def format_initial_weights(records: Iterable[Record]) -> list[str]:
    """Return a line with the models whose weights were drawn, for each text about them."""
    models = dict[str, dict[str, None]]()
    for each in records:
        if each.initial_weights:
            models.setdefault(each.initial_weights, {})[each.cell.model] = None
    ends = {
        False: "`weights` in an entry names trained ones",
        True: f"this {INITIAL_PROOF}",
    }
    return [
        f"{join_names([*names])}: weights: {text}; {ends[IN_PLACE_OF in text]}"
        for text, names in models.items()
    ]


def print_result_notes(current: Results) -> None:
    """Print the tools with another version, and the cells without a result."""
    if current.other_tools:
        print_error(
            f"warning: the results were created with {current.other_tools}; run `exporter export` "
            "to prove them with the current tools"
        )
    missing = current.missing.items()
    groups = group_by_opset(missing, lambda item: item[0], lambda item: item[1])
    problems = [
        Problem(key=group.label, message=f"no result: {group.first[1]}") for group in groups
    ]
    for problem in shorten_problems(problems):
        print_problem(problem)


def show_plan(build_plan: BuildPlan) -> None:
    """Print the counts, then the decision, the route and the reason of each group of opsets."""
    plan, decisions = build_plan.plan, build_plan.decisions
    invalid = dict.fromkeys(
        planned.cell.model
        for planned in plan.selected
        if planned.cell.model in build_plan.invalid_models
    )
    # The cells of an invalid entry are those of its readable keys, or one that nobody wrote.
    known = [planned for planned in plan.to_run if planned.cell.model not in invalid]
    run, restored = sum(map(decisions.is_to_run, known)), len(decisions.hits)
    unchanged = len(known) - run - restored
    skipped = len(plan.selected) - len(plan.to_run)
    counts = f"{pluralize(run, 'cell')} to run, {unchanged} to keep, {skipped} to skip"
    counts += f", {restored} to restore from the store" if restored else ""
    entries = pluralize(len(invalid), "invalid entry", "invalid entries")
    print_line(f"{counts}, {entries}" if invalid else counts)
    rows: list[tuple[CellId, tuple[str, str, str]]] = []
    for planned in plan.selected:
        cell = planned.cell
        if cell.model in invalid:
            continue
        route = f"{planned.route.exporter} {planned.route.capture}"
        if not planned.route.is_export:
            route = planned.route.title
        if planned.skip:
            rows.append((cell, (planned.skip_status.value, "", planned.skip)))
        elif decisions.is_to_run(planned):
            action = "recheck" if cell in decisions.rechecks else "run"
            rows.append((cell, (action, route, decisions.reasons[cell])))
        elif hit := decisions.hits.get(cell):
            rows.append((cell, ("restore", route, f"from the store: {hit}")))
        else:
            rows.append((cell, ("keep", route, "up to date")))
    for note in build_plan.notes:
        print_line(note)
    groups = group_by_opset(rows, lambda row: row[0], lambda row: row[1])
    lines = [(group.label, *group.first[1]) for group in groups]
    problems = (Problem(key=model_id, message=INVALID_ENTRY) for model_id in invalid)
    lines += [(each.key, "error", "", each.message) for each in shorten_problems(problems)]
    print_table(lines)


def show_findings(**values: object) -> None:
    """Print the `rows` of findings, or those of a `gate`, each with the lines that explain it."""
    width = find_width()
    for line in render_script("gate.txt", **values).splitlines():
        color, _, text = line.partition("|")
        if color in ("group", "endgroup"):
            fold_log(color, text)
            continue
        is_code = text.startswith(8 * " ")
        if is_code and width and len(text) > width:
            text = f"{text[: width - 1]}…"
        print_line(text, color=color or None, wraps=text.startswith("    ") and not is_code)
