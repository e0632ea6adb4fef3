"""The findings of the gate, and the edits since the accepted state that cause them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from exporter.core.errors import Location
from exporter.manifest import Action, FindingKind, Manifest
from exporter.manifest.resolved.policy import DRIFT, LIMITS
from exporter.records.record import CellId, Record

_HUNK = re.compile(r"^@@ -\S+ \+(?P<start>\d+)\S* @@ ?(?P<context>.*)$")
#: The number of files and of ranges of lines in one sentence.
_LISTED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedLines:
    """Consecutive changed lines of the current file."""

    first: int
    last: int
    context: str = ""
    """The line that git shows in the header of the hunk: `class Net(nn.Module):`."""

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceChange:
    """A file that differs from the accepted state."""

    file: str
    lines: tuple[ChangedLines, ...]
    """Empty for a binary or removed file."""
    diff: str

    def __str__(self) -> str:
        """Return `models/net.py:12-14, 20`."""
        shown = ", ".join(map(str, self.lines[:_LISTED]))
        more = f" and {len(self.lines) - _LISTED} more" if len(self.lines) > _LISTED else ""
        return f"{self.file}:{shown}{more}" if shown else self.file


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Everything that changed for a cell since it was accepted."""

    sources: tuple[SourceChange, ...] = ()
    """Files of the model, the most relevant first."""
    tools: tuple[str, ...] = ()
    """`torch 2.12.0 to 2.13.0`."""

    def __str__(self) -> str:
        """Return `the model changed: models/net.py:12-14`."""
        parts = {
            "the model": ", ".join(map(str, self.sources[:_LISTED])),
            "the tools": ", ".join(self.tools),
        }
        if (more := len(self.sources) - _LISTED) > 0:
            parts["the model"] += f" and {more} more files"
        known = {name: text for name, text in parts.items() if text}
        if len(known) > 1:
            texts = (f"{name} ({text})" for name, text in known.items())
            return f"changed since the acceptance: {' and '.join(texts)}"
        return "".join(f"{name} changed: {text}" for name, text in known.items())

    @property
    def location(self) -> Location | None:
        """The first changed line of the model, if the model changed."""
        if not self.sources:
            return None
        first = self.sources[0]
        return Location(file=first.file, line=first.lines[0].first if first.lines else None)

    @property
    def diff(self) -> str:
        return "\n".join(each.diff for each in self.sources)


def find_cause(
    record: Record,
    manifest: Manifest,
    old_tools: Mapping[str, str],
    new_tools: Mapping[str, str],
    diffs: Mapping[str, str],
) -> Cause | None:
    """Return the changes since the accepted state; None if nothing is known to have changed."""
    spec = manifest.by_id.get(record.cell.model)
    attribute = spec.source.rpartition(":")[2] if spec else ""
    known = [record.blame.first.source] if record.blame and record.blame.first else []
    failing = {*known, *record.lines}
    files = [source.file for source in record.sources if source.file in diffs]
    if not files and old_tools == new_tools:
        return None
    changes = [_rank_lines(read_change(file, diffs[file]), attribute, failing) for file in files]
    # The file with a failing line first, then the one that defines the model.
    changes.sort(key=lambda each: (not _contains_failure(each, failing), each.file))
    cause = Cause(
        sources=tuple(changes),
        tools=tuple(
            f"{name} {old_tools.get(name, 'none')} to {new_tools.get(name, 'none')}"
            for name in sorted(old_tools.keys() | new_tools.keys())
            if old_tools.get(name, "none") != new_tools.get(name, "none")
        ),
    )
    return cause if str(cause) else None


def read_change(file: str, diff: str) -> SourceChange:
    """Return the changed lines of a unified difference, in the current file."""
    return SourceChange(file=file, lines=tuple(_list_ranges(diff)), diff=diff)


def _list_ranges(diff: str) -> Iterator[ChangedLines]:
    number = 0
    context = ""
    changed = list[int]()
    for line in [*diff.splitlines(), "@@ -0,0 +0,0 @@"]:
        header = _HUNK.match(line)
        if (header or line.startswith(" ")) and changed:
            yield ChangedLines(first=changed[0], last=changed[-1], context=context)
            changed = []
        if header:
            number, context = int(header["start"]), header["context"]
        elif number and line.startswith("+"):
            # The line of a removed part is only needed if no line replaces it.
            changed = [each for each in changed if each != number] + [number]
            number += 1
        elif number and line.startswith("-"):
            changed = changed or [max(number, 1)]
        elif number and not line.startswith("\\"):
            number += 1


def _rank_lines(change: SourceChange, attribute: str, failing: set[str]) -> SourceChange:
    """Return the change with the lines of the failure or of the model's class first."""

    def rank(lines: ChangedLines) -> tuple[bool, bool]:
        is_failing = _contains_failure(replace(change, lines=(lines,)), failing)
        is_inside = re.search(rf"\b{re.escape(attribute)}\b", lines.context) is not None
        return (not is_failing, not is_inside)

    return replace(change, lines=tuple(sorted(change.lines, key=rank)))


def _contains_failure(change: SourceChange, failing: set[str]) -> bool:
    return any(
        f"{change.file}:{number}" in failing
        for lines in change.lines
        for number in range(lines.first, lines.last + 1)
    )


#: Values of `GateFinding.before` and `GateFinding.after` if there is no outcome.
NOT_ACCEPTED = "not in the baseline"
NO_RESULT = "no result"


#: Kinds with figures that differ from run to run.
MEASURED_KINDS = frozenset(
    {FindingKind.LATENCY_GROWN, FindingKind.LOAD_GROWN, FindingKind.MEMORY_GROWN}
)
#: Kinds that compare two outcomes or figures of a cell with equal promises.
CAUSED_KINDS = DRIFT | {
    *(FindingKind.NEWLY_RED, FindingKind.WORSE, FindingKind.CHANGED, FindingKind.FLAKY),
    FindingKind.REROUTED,
}
_RANK = {kind: rank for rank, kind in enumerate(FindingKind)}
_IMPROVEMENTS = (FindingKind.BETTER, FindingKind.FIXED, FindingKind.NEW_GREEN)
#: Kinds about a promise: the cell has no failure that another export or a script shows.
PROMISE_KINDS = frozenset(
    {
        *(FindingKind.RELAXED, FindingKind.REDEFINED, FindingKind.CONTRACT),
        *(FindingKind.REMOVED, FindingKind.LOWEST_RAISED),
    }
)
#: The first words of the message of a finding that the branch's own baseline accepts.
ACCEPTED_HERE = f"{FindingKind.ACCEPTED_HERE}: "


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySetting:
    """A setting of the gate's policy that a branch makes less strict."""

    location: Location
    """Its line in pyproject.toml, or that of its table if the branch removed it."""
    cells: tuple[CellId, ...]
    """The cells for which the policy is less strict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFinding:
    """One cell that differs from its accepted outcome."""

    kind: FindingKind
    cell: CellId
    before: str
    """`pass`, `error at convert`, `fail at parity (axes)`, or `NOT_ACCEPTED`."""
    after: str
    """The same notation, or `NO_RESULT`."""
    message: str = ""
    """One line: the message of the record, or the fix."""
    action: Action = "block"
    """The action that the policy defines; an ignored difference has no finding."""
    cause: Cause | None = None
    """The edits since the acceptance, if they are known."""
    setting: PolicySetting | None = None
    """The setting of the gate, if the finding is about one; `cell` is then the first cell."""
    edited: Location | None = None
    """The first edited line of the entry, if a promise differs and the line is known."""

    @property
    def cells(self) -> tuple[CellId, ...]:
        return self.setting.cells if self.setting else (self.cell,)

    @property
    def location(self) -> Location | None:
        """The setting, or the edited line of the model or of its entry, if it is known."""
        if self.setting:
            return self.setting.location
        return self.cause.location if self.cause else self.edited

    @property
    def growth(self) -> float:
        """The figure now as a multiple of the accepted one; 1 without a figure."""
        if self.kind not in LIMITS:
            return 1.0
        old, new = (float(each.split()[0].replace(",", "")) for each in (self.before, self.after))
        return new / old if old else math.inf

    @property
    def is_blocking(self) -> bool:
        return self.action == "block"

    @property
    def is_improvement(self) -> bool:
        """Whether the user only has to accept the finding."""
        return self.kind in _IMPROVEMENTS

    @property
    def sort_key(self) -> tuple[bool, int, tuple[str, int, str], str]:
        """Order: blocking findings first, then the worst kind, then the cell."""
        return (not self.is_blocking, _RANK[self.kind], self.cell.sort_key, self.before)
