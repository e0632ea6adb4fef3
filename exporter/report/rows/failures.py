"""Cells that do not pass: reasons and commands, and clusters of equal failures and findings."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from exporter.core.text import (
    DEFAULT_COMMAND,
    format_command,
    join_lines,
    join_names,
    pluralize,
)
from exporter.manifest import Manifest, Project
from exporter.records.record import (
    AGREES,
    IN_PLACE_OF,
    PROVED,
    TRACER_PREFIX,
    CellId,
    Culprit,
    Record,
    Stage,
    Status,
)
from exporter.report import formats
from exporter.report.rows.cells import (
    Cell,
    Row,
    group_by_opset,
    mask_numbers,
)

#: The checks of outputs that a script repeats; the others need this tool.
_REPEATED_CHECKS = ("parity", "axes", "cases", "values")
_CULPRITS = {
    Culprit.CONTRACT: "PyTorch itself breaks the contract; fix the model, or promise less",
    Culprit.MODEL: "the model differs from itself; remove its state or its random numbers",
    Culprit.FILE: "a new export gives a right file; run `exporter export --force`",
}


def find_repro_obstacle(record: Record) -> str:
    """Return the reason why a script cannot show the failure, "" if it can.

    A record without a failure has no obstacle: its script shows that nothing is wrong.
    """
    if record.stage is Stage.SOURCE:
        return f"fails before the export: {record.message}"
    if record.broken_pass and record.blame is None:
        return "a pass fails; run it with the files in the model's folder `passes`"
    if record.route is None:
        return "was never exported; run `exporter export` first"
    if not record.route.is_export:
        return (
            "PyTorch's exporter did not create the file; run it with the build folder's test data"
        )
    if record.blame is not None and record.blame.culprit in _CULPRITS:
        return _CULPRITS[record.blame.culprit]
    if record.status is Status.INCONCLUSIVE:
        return "nothing is wrong, but the checks prove nothing; follow the message of the cell"
    text = ""
    if record.stage is Stage.PARITY and record.check is not None:
        if record.check not in _REPEATED_CHECKS:
            text = f"a script cannot repeat the check '{record.check}'; run `exporter export` again"
        elif record.undiagnosed:
            text = "its cause was not searched; run `exporter export --thorough` with the cell"
        elif record.blame is None:
            text = "the failure did not occur again in the diagnosis; run `exporter export --force`"
    return text


#: Lines of the model that are listed for one missing operator.
LISTED_LINES = 3
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)', re.MULTILINE)


def format_repro_command(record: Record, project: Project | None = None) -> str:
    """Return a shell command; "" if there is no failure to reproduce, or no script can do it."""
    failed = record.status in (Status.FAIL, Status.ERROR, Status.CRASH, Status.XFAIL)
    has_script = project is None or _has_script(project, record.cell.device)
    if not (failed and record.stage and has_script) or find_repro_obstacle(record):
        return ""
    command = project.command if project else DEFAULT_COMMAND
    option = " --weights initial" if IN_PLACE_OF in record.initial_weights else ""
    return format_command(command, "repro", f"{shlex.quote(str(record.cell))}{option}")


def _has_script(project: Project, device_name: str) -> bool:
    """Return True unless a script cannot run the files of the device, such as those for Node."""
    try:
        return project.find_device(device_name).row.has_script
    except KeyError:  # the results have a device that the settings lack; `repro` says so
        return True


@dataclass(frozen=True, slots=True)
class FailureText:
    """The parts of a record's message."""

    cause: str
    fixes: tuple[str, ...]
    """The changes after which the file passes all checks, or what the message asks for."""
    shown_by: str
    """The figures of the failed check, or "" if they are all that is known."""


#: The end of a message about an entry or a call: what to do, after the problem.
_REQUEST = re.compile(
    r"; ((?:PyTorch accepts|did you mean|add|correct|declare|fix|give|install|name|promise|remove"
    r"|set|use|write) .+)",
    re.DOTALL,
)


def split_message(record: Record) -> FailureText:
    """Return the parts of a message, which a diagnosis joins: `place: cause; fix; figures`.

    A message about the source has no figures, and ends with the fix if one is known.
    """
    fixes = tuple(each for each in record.advice if PROVED in each or AGREES in each)
    cause = record.message
    for fix in fixes:
        cause = cause.replace(f"{fix}; ", "").removesuffix(f"; {fix}")
    request = _REQUEST.search(cause) if record.stage is Stage.SOURCE and not fixes else None
    if request:
        cause, fixes = cause[: request.start()], (request[1],)
    figures = next((each.message for each in record.checks if each.check == record.check), "")
    is_split = bool(figures) and cause.endswith(f"; {figures}")
    return FailureText(
        cause=cause.removesuffix(f"; {figures}") if is_split else cause,
        fixes=fixes,
        shown_by=figures if is_split else "",
    )


def name_culprit(culprit: Culprit) -> str:
    """Return the culprit for a reader.

    If PyTorch breaks a promise, either side can be wrong. A comparison with the accepted state
    shows the side that changed.
    """
    return "model or contract" if culprit is Culprit.CONTRACT else culprit.value


def find_model_lines(record: Record) -> tuple[str, ...]:
    """Return the lines of the model at which it fails, if they are known.

    Returns:
        The lines of the first node that differs, of the missing operators and of the failed stage.
        If there are none, the deepest line of the model in the traceback.
    """
    first = record.blame.first if record.blame else None
    lines = list(_list_traced_constants(record))
    if first:
        lines.append(first.source)
    lines += [line for item in record.missing for line in item.sources]
    lines += record.lines
    known = tuple(dict.fromkeys(line for line in lines if line))
    if known or not record.detail:
        return known[:LISTED_LINES]
    # Some tracebacks contain only base names, so a name with two source files is ambiguous.
    names = Counter(posixpath.basename(source.file) for source in record.sources)
    files = {posixpath.basename(source.file): source.file for source in record.sources}
    files = {name: file for name, file in files.items() if names[name] == 1}
    files |= {source.file: source.file for source in record.sources}
    frames = [(name, line) for name, line in _FRAME.findall(record.detail) if name in files]
    return tuple(f"{files[name]}:{line}" for name, line in frames[-1:])


def _list_traced_constants(record: Record) -> tuple[str, ...]:
    """Return the lines of the tracer's warnings, if the trace or the exporter is at fault."""
    if record.blame is None or record.blame.culprit not in (Culprit.TRACE, Culprit.EXPORTER):
        return ()
    notes = (
        note.removeprefix(TRACER_PREFIX) for note in record.notes if note.startswith(TRACER_PREFIX)
    )
    return tuple(dict.fromkeys(note.partition(": ")[0] for note in notes))


def summarize_failure(record: Record) -> str:
    """Return the diagnosis in one line for a terminal, or "" if there is none."""
    if record.blame:
        line = f"fault: {name_culprit(record.blame.culprit)}"
        if constants := _list_traced_constants(record):
            return f"{line}, the trace made constants at {join_names(constants, LISTED_LINES)}"
        if first := record.blame.first:
            source = f" ({first.source})" if first.source else ""
            line += f", first at {first.operator} {first.node}{source}"
            line += f", or in the {first.suspects - 1} nodes before it" * (first.suspects > 1)
        return line
    if record.missing:
        return "missing: " + ", ".join(f"{item.operator} x{item.count}" for item in record.missing)
    return "; ".join(record.advice)


def build_flaky_rows(cells: Iterable[Cell]) -> tuple[Row, ...]:
    """Return the flaky cells, red or not."""
    flaky = ((cell, cell.record.flaky) for cell in cells if cell.record and cell.record.flaky)
    groups = group_by_opset(
        flaky, lambda item: item[0].id, lambda item: (item[0].outcome, mask_numbers(item[1]))
    )
    return tuple(
        {
            "mark": group.first[0].mark,
            "label": group.label,
            "previous": formats.clean_message(group.first[1]),
        }
        for group in groups
    )


#: The number of manifest locations in one row.
_LISTED_LOCATIONS = 3
#: The folders of a node's name: `/layer1/0/conv1/Conv_3`.
_PATH = re.compile(r"(?<![\w.])/(?:[\w.#-]+/)*")
_COUNTER = re.compile(r"_#(?![\w.])")


def list_locations(cells: Iterable[CellId], manifest: Manifest) -> tuple[str, ...]:
    """Return the entries of the cells' models: `manifests/vision.toml:14`, `and 2 more`."""
    known = {spec.id: spec.location for spec in manifest.models}
    models = dict.fromkeys(cell.model for cell in cells)
    locations = [join_lines(str(known[model_id])) for model_id in models if model_id in known]
    more = len(locations) - _LISTED_LOCATIONS
    return (*locations[:_LISTED_LOCATIONS], *((f"and {more} more",) if more > 0 else ()))


def mask_names(message: str, names: Mapping[str, str]) -> str:
    """Return the message without names and numbers of the model, to compare it with others."""
    pattern = _compile_names(tuple(sorted(names, key=len, reverse=True)))
    message = pattern.sub(lambda match: names[match.group()], message)
    return _COUNTER.sub("", _PATH.sub("/…/", mask_numbers(message)))


@lru_cache(maxsize=64)
def _compile_names(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(rf"(?<![\w.]){re.escape(name)}(?!\w)" for name in names))


_DIFF_HEADERS = ("diff --git ", "index ", "--- ", "old mode ", "new mode ")


def shorten_diff(diff: str, limit: int) -> str:
    """Return the changed lines of a difference with their context, at most `limit` lines."""
    lines = [line for line in diff.splitlines() if not line.startswith(_DIFF_HEADERS)]
    more = len(lines) - limit
    rest = f"\n… and {pluralize(more, 'more line')}" if more > 0 else ""
    return "\n".join(lines[:limit]) + rest
