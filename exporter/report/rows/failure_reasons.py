"""Why a cell does not pass, as far as the worker found out.

In: a `Record`. Out: `Reasons`: sentences and rows for the page, and a line for the terminal.
"""

from __future__ import annotations

import math
import posixpath
import re
import shlex
from collections import Counter
from dataclasses import dataclass

from exporter.core.command_names import DEFAULT, spelled
from exporter.records.record import (
    Blame,
    Divergence,
    Record,
    Stage,
    Status,
)
from exporter.report.text import number_format as figures

#: Lines of the model that are named for one missing operator.
_SOURCES = 3
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)', re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """An operator that the exporter lacks."""

    operator: str
    count: int
    sources: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """Empty fields where nothing is known."""

    culprit: str = ""
    sample: str = ""
    """The input set that shows it."""
    evidence: tuple[str, ...] = ()
    first: str = ""
    """The first node that differs, as a sentence without its end."""
    missing: tuple[Missing, ...] = ()
    advice: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    """Where in the model: `models/vision.py:31`."""
    reproduce: str = ""
    """A shell command; empty where there is nothing to reproduce."""


def reasons_of(record: Record, command: str = DEFAULT) -> Reasons:
    """What a record knows of its failure.

    Args:
        record: Of any status.
        command: How the project spells a command.
    """
    blame = record.blame
    return Reasons(
        culprit=blame.culprit.value if blame else "",
        sample=blame.sample if blame else "",
        evidence=_evidence(blame, figures.message(record.message)) if blame else (),
        first=first_of(blame.first) if blame and blame.first else "",
        missing=tuple(
            Missing(operator=item.operator, count=item.count, sources=_listed(item.sources))
            for item in record.missing
        ),
        advice=record.advice,
        lines=lines_of(record),
        reproduce=_reproduce(record, command),
    )


def _evidence(blame: Blame, said: str) -> tuple[str, ...]:
    return tuple(figures.not_again(figures.message(line), said) for line in blame.evidence)


def lines_of(record: Record) -> tuple[str, ...]:
    """The lines of the model at which it fails, as far as they are known.

    They are those of the first node that differs and of the missing operators, or else the deepest
    line of the model in the traceback.
    """
    first = record.blame.first if record.blame else None
    known = [first.source] if first else []
    known += [line for item in record.missing for line in item.sources]
    found = tuple(dict.fromkeys(line for line in known if line))
    return found[:_SOURCES] or _raised_at(record)


def _raised_at(record: Record) -> tuple[str, ...]:
    if not record.detail:
        return ()
    # Tracebacks keep the names of files alone: one that two of the sources share says nothing.
    names = Counter(posixpath.basename(source.file) for source in record.sources)
    files = {posixpath.basename(source.file): source.file for source in record.sources}
    frames = [(name, line) for name, line in _FRAME.findall(record.detail) if names[name] == 1]
    return tuple(f"{files[name]}:{line}" for name, line in frames[-1:])


def first_of(first: Divergence) -> str:
    """`Gemm node_linear_5 (net.py:12): against PyTorch, ≤ 1e-6 before it and 0.07 …`."""
    source = f" ({first.source})" if first.source else ""
    among = f", or one of the {first.suspects - 1} nodes before it" if first.suspects > 1 else ""
    before = figures.magnitude(first.error_before) if first.error_before else "no error"
    if math.isinf(first.error_after):
        after = "plainly another result"
    else:
        after = f"{figures.two_digits(first.error_after)} of the scale"
    return (
        f"{first.operator} {first.node}{source}{among}: "
        f"against {first.against}, {before} before it and {after} after it"
    )


def in_short(record: Record) -> str:
    """One line for a terminal; empty where nothing is known."""
    if record.blame:
        line = f"fault: {record.blame.culprit.value}"
        if first := record.blame.first:
            source = f" ({first.source})" if first.source else ""
            line += f", first at {first.operator} {first.node}{source}"
        return line
    if record.missing:
        return "missing: " + ", ".join(f"{item.operator} x{item.count}" for item in record.missing)
    return "; ".join(record.advice)


def _listed(sources: tuple[str, ...]) -> str:
    more = len(sources) - _SOURCES
    return ", ".join(sources[:_SOURCES]) + (f" and {more} more" if more > 0 else "")


def _reproduce(record: Record, command: str) -> str:
    failed = record.status in (Status.FAIL, Status.ERROR, Status.CRASH, Status.XFAIL)
    if not failed or record.route is None or record.stage in (None, Stage.SOURCE):
        return ""
    return spelled(command, "repro", shlex.quote(str(record.cell)))
