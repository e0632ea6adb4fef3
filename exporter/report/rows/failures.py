"""Cells that do not pass: reasons and commands, and clusters of equal failures and findings."""

from __future__ import annotations

import math
import posixpath
import re
import shlex
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from exporter.core.text import (
    DEFAULT_COMMAND,
    format_command,
    format_two_digits,
    join_lines,
    join_names,
)
from exporter.manifest import Manifest, ModelSpec, Project
from exporter.records.record import (
    TRACER_PREFIX,
    CellId,
    Culprit,
    Divergence,
    Record,
    Stage,
    Status,
)
from exporter.report import formats
from exporter.report.rows.cells import (
    AS_ACCEPTED,
    AcceptanceHistory,
    Cell,
    Row,
    format_export_command,
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
_LISTED_LINES = 3
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)', re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureReasons:
    """The diagnosis of a failure; a field is empty if its content is unknown."""

    code: str = ""
    """The code of a red cell, `E-axis-fixed`."""
    culprit: str = ""
    sample: str = ""
    """The input set that shows the failure."""
    evidence: tuple[str, ...] = ()
    divergence: str = ""
    """The first node that differs, as a sentence without its period."""
    missing_operators: tuple[Row, ...] = ()
    """Operators that the exporter lacks: `operator`, `count`, `sources`."""
    obstacles: tuple[str, ...] = ()
    """Every place at which the model cannot be captured."""
    advice: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    """Lines of the model: `models/vision.py:31`."""
    repro_command: str = ""
    """A shell command; empty if there is no failure to reproduce."""


def explain_failure(record: Record, project: Project | None = None) -> FailureReasons:
    command = project.command if project else DEFAULT_COMMAND
    has_script = project is None or _has_script(project, record.cell.device)
    blame = record.blame
    message = formats.clean_message(record.message)
    failed = record.status in (Status.FAIL, Status.ERROR, Status.CRASH, Status.XFAIL)
    has_repro = failed and record.stage and has_script and not find_repro_obstacle(record)
    return FailureReasons(
        code=record.failure_code,
        culprit=name_culprit(blame.culprit) if blame else "",
        sample=blame.sample if blame else "",
        evidence=tuple(
            formats.replace_repetition(formats.clean_message(line), message)
            for line in (blame.evidence if blame else ())
        ),
        divergence=describe_divergence(blame.first) if blame and blame.first else "",
        missing_operators=tuple(
            {
                "operator": item.operator,
                "count": item.count,
                "sources": join_names(item.sources, _LISTED_LINES),
            }
            for item in record.missing
        ),
        obstacles=tuple(formats.clean_message(line) for line in record.obstacles),
        advice=tuple(line for line in record.advice if line not in record.message),
        lines=find_model_lines(record),
        repro_command=format_command(command, "repro", shlex.quote(str(record.cell)))
        if has_repro
        else "",
    )


def _has_script(project: Project, device: str) -> bool:
    """Return True unless a script cannot run the files of the device, such as those for Node."""
    try:
        return project.find_device(device).row.has_script
    except KeyError:  # the results have a device that the settings lack; `repro` says so
        return True


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
    lines += [first.source] if first else []
    lines += [line for item in record.missing for line in item.sources]
    lines += record.lines
    known = tuple(dict.fromkeys(line for line in lines if line))
    if known or not record.detail:
        return known[:_LISTED_LINES]
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


def describe_divergence(first: Divergence) -> str:
    """Return the first node that differs, as text.

    Returns:
        `Gemm node_linear_5 (net.py:12): against PyTorch, ≤ 1e-6 before it and 0.07 ...`
    """
    source = f" ({first.source})" if first.source else ""
    among = f", or one of the {first.suspects - 1} nodes before it" if first.suspects > 1 else ""
    before = formats.format_magnitude(first.error_before) if first.error_before else "no error"
    if math.isinf(first.error_after):
        after = "a clearly different result"
    else:
        after = f"{format_two_digits(first.error_after)} of the scale"
    return (
        f"{first.operator} {first.node}{source}{among}: "
        f"against {first.against}, {before} before it and {after} after it"
    )


def summarize_failure(record: Record) -> str:
    """Return the diagnosis in one line for a terminal, or "" if there is none."""
    if record.blame:
        line = f"fault: {name_culprit(record.blame.culprit)}"
        if constants := _list_traced_constants(record):
            return f"{line}, the trace made constants at {join_names(constants, _LISTED_LINES)}"
        if first := record.blame.first:
            source = f" ({first.source})" if first.source else ""
            line += f", first at {first.operator} {first.node}{source}"
            line += f", or in the {first.suspects - 1} nodes before it" * (first.suspects > 1)
        return line
    if record.missing:
        return "missing: " + ", ".join(f"{item.operator} x{item.count}" for item in record.missing)
    return "; ".join(record.advice)


#: Lines of a detail on the page. The end of a log is its most useful part.
_DETAIL_LINES = 20


def keep_last_lines(text: str) -> str:
    return "\n".join(text.rstrip().splitlines()[-_DETAIL_LINES:])


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


T = TypeVar("T")

#: The number of labels of cells in one row; further labels are counted.
_LISTED_LABELS = 12
#: The number of manifest locations in one row.
_LISTED_LOCATIONS = 3
#: The folders of a node's name: `/layer1/0/conv1/Conv_3`.
_PATH = re.compile(r"(?<![\w.])/(?:[\w.#-]+/)*")
_COUNTER = re.compile(r"_#(?![\w.])")
_MODEL = "MODEL"
_EXPORTERS = {
    "dynamo": "dynamo",
    "torchscript": "TorchScript",
    "transformers": "transformers",
    "file": "the finished file",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedCells:
    """The cells of a cluster, grouped by opset: `alexnet/13..17/cpu`."""

    cells: int
    models: int
    labels: tuple[str, ...]
    more: int
    """The number of further labels."""


#: One failure of one cell: the key of its cluster, the cell, the operator and the reason.
_Failure = tuple[Hashable, Cell, str, str]


def cluster_cells(
    cells: Iterable[Cell], manifest: Manifest, history: AcceptanceHistory | None = None
) -> tuple[Row, ...]:
    """Return clusters of red cells, those with new failures first, then the largest.

    A cell with two missing operators is in two clusters.
    """
    command = manifest.project.command
    history = history or AcceptanceHistory()
    names = {spec.id: _collect_names(spec) for spec in manifest.models}
    failures = (each for cell in cells for each in _list_failures(cell, names[cell.id.model]))
    clusters: list[Row] = []
    for group in _group(failures, lambda failure: failure[0]):
        _, first, operator, reason = group[0]
        is_same = all(other == reason for *_, other in group)
        ids = tuple(cell.id for _, cell, _, _ in group)
        accepted = (history.find_outcome(cell) for _, cell, _, _ in group)
        record = first.record
        reasons = explain_failure(record, manifest.project) if record else FailureReasons()
        outcomes = tuple(dict.fromkeys(filter(None, accepted)))
        clusters.append(
            {
                "mark": first.mark,
                "outcome": first.outcome,
                # The missing operator, or the first one that differs; empty if it is unknown.
                "operator": operator,
                "reason": reason if is_same else f"{reason} (text of {first.id})",
                "affected": count_cells(ids),
                "locations": list_locations(ids, manifest),
                # In the baseline; empty without one.
                "accepted": outcomes,
                "is_new": any(outcome != AS_ACCEPTED for outcome in outcomes),
                "cell": str(first.id),
                "model": first.id.model,
                "members": ids,
                # Of the first cell, which represents the others.
                "lines": reasons.lines,
                "export_command": format_export_command(str(first.id), command),
                "repro_command": reasons.repro_command,
            }
        )
    return tuple(sorted(clusters, key=lambda each: (not each["is_new"], -each["affected"].cells)))


def _list_failures(cell: Cell, names: Mapping[str, str]) -> Iterator[_Failure]:
    record = cell.record
    if record and record.missing:
        exporter = _EXPORTERS[record.route.exporter] if record.route else "the exporter"
        for operator in dict.fromkeys(item.operator for item in record.missing):
            reason = f"{exporter} has no translation of {operator} at this opset"
            key: Hashable = (cell.outcome, operator, exporter)
            yield key, cell, operator, reason
        return
    blame = record.blame if record else None
    operator = blame.first.operator if blame and blame.first else ""
    culprit = blame.culprit if blame else None
    key = (cell.outcome, operator, culprit, mask_names(cell.reason, names))
    yield key, cell, operator, cell.reason


def list_locations(cells: Iterable[CellId], manifest: Manifest) -> tuple[str, ...]:
    """Return the entries of the cells' models: `manifests/vision.toml:14`, `and 2 more`."""
    known = {spec.id: spec.location for spec in manifest.models}
    models = dict.fromkeys(cell.model for cell in cells)
    locations = [join_lines(str(known[model])) for model in models if model in known]
    more = len(locations) - _LISTED_LOCATIONS
    return (*locations[:_LISTED_LOCATIONS], *((f"and {more} more",) if more > 0 else ()))


def count_cells(cells: Sequence[CellId]) -> AffectedCells:
    """Return the labels of cells, grouped by opset."""
    groups = group_by_opset(cells, lambda cell: cell, lambda _: None)
    labels = tuple(group.label for group in groups)
    return AffectedCells(
        cells=len(cells),
        models=len({cell.model for cell in cells}),
        labels=labels[:_LISTED_LABELS],
        more=max(0, len(labels) - _LISTED_LABELS),
    )


def _group(items: Iterable[T], key_of: Callable[[T], Hashable]) -> Iterable[list[T]]:
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(key_of(item), []).append(item)
    return groups.values()


def mask_names(message: str, names: Mapping[str, str]) -> str:
    """Return the message without names and numbers of the model, to compare it with others."""
    pattern = _compile_names(tuple(sorted(names, key=len, reverse=True)))
    message = pattern.sub(lambda match: names[match.group()], message)
    return _COUNTER.sub("", _PATH.sub("/…/", mask_numbers(message)))


@lru_cache(maxsize=64)
def _compile_names(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(rf"(?<![\w.]){re.escape(name)}(?!\w)" for name in names))


def _collect_names(spec: ModelSpec) -> Mapping[str, str]:
    """Return the names of a contract, with their replacements.

    Only quoted occurrences of input and axis names are replaced, because they can be short words.
    """
    file, _, attribute = spec.source.partition(":")
    quoted = [item.name for item in (*spec.inputs, *spec.outputs)]
    quoted += [axis.name for axis in spec.axes]
    names = {f"'{name}'": "NAME" for name in quoted}
    names |= {name: "SOURCE" for name in (spec.source, file, file.rpartition("/")[2]) if name}
    names[spec.id] = _MODEL
    if attribute:
        names[attribute] = "SOURCE"
    return names


_DIFF_HEADERS = ("diff --git ", "index ", "--- ", "old mode ", "new mode ")


def shorten_diff(diff: str, limit: int) -> str:
    """Return the changed lines of a difference with their context, at most `limit` lines."""
    lines = [line for line in diff.splitlines() if not line.startswith(_DIFF_HEADERS)]
    more = len(lines) - limit
    return "\n".join(lines[:limit]) + (f"\n… and {more} more lines" if more > 0 else "")
