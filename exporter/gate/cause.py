"""The cause of a finding: the edits since the accepted state.

A cell differs from its accepted outcome because its model, its entry or a tool changed. The record
has the files that the model depends on. If only these changed, the promise and the tools are as
accepted, so the model is the cause.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from exporter.core.errors import Location
from exporter.manifest import Manifest, ModelSpec
from exporter.records.record import Record

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
    entry: SourceChange | None = None
    """The lines of the manifest that may change the promise."""
    tools: tuple[str, ...] = ()
    """`torch 2.12.0 to 2.13.0`."""

    def __str__(self) -> str:
        """Return `the model changed: models/net.py:12-14`."""
        parts = {
            "the model": _join([str(each) for each in self.sources]),
            "the entry": str(self.entry or ""),
            "the tools": ", ".join(self.tools),
        }
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
        """The differences of the model's files."""
        return "\n".join(each.diff for each in self.sources)


def find_cause(
    record: Record,
    manifest: Manifest,
    tools: tuple[Mapping[str, str], Mapping[str, str]],
    diffs: Mapping[str, str],
) -> Cause | None:
    """Return the changes since the accepted state; None if nothing is known to have changed."""
    spec = next((each for each in manifest.models if each.id == record.cell.model), None)
    attribute = spec.source.rpartition(":")[2] if spec else ""
    known = [record.blame.first.source] if record.blame and record.blame.first else []
    failing = {*known, *record.lines}
    files = [source.file for source in record.sources if source.file in diffs]
    changes = [_rank_lines(read_change(file, diffs[file]), attribute, failing) for file in files]
    # The file with a failing line first, then the one that defines the model.
    changes.sort(key=lambda each: (not _contains_failure(each, failing), each.file))
    lines = [each.line for each in manifest.models if spec and each.manifest == spec.manifest]
    cause = Cause(
        sources=tuple(changes),
        entry=_find_entry_change(spec, lines, diffs) if spec else None,
        tools=tuple(_list_changed_tools(*tools)),
    )
    return cause if str(cause) else None


def read_change(file: str, diff: str) -> SourceChange:
    """Return the changed lines of a unified difference, in the current file."""
    return SourceChange(file=file, lines=tuple(_list_ranges(diff)), diff=diff)


def _list_ranges(diff: str) -> Iterator[ChangedLines]:
    number, context, changed = 0, "", list[int]()
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


def _find_entry_change(
    spec: ModelSpec, entry_lines: Sequence[int], diffs: Mapping[str, str]
) -> SourceChange | None:
    """Return the changed lines of the entry, or of the defaults above all entries.

    Args:
        spec: The entry.
        entry_lines: The first line of each entry of the same manifest.
        diffs: The differences by file.
    """
    if spec.manifest not in diffs:
        return None
    change = read_change(spec.manifest, diffs[spec.manifest])
    end = min((line for line in entry_lines if line > spec.line), default=math.inf)
    defaults_end = min(entry_lines, default=spec.line)
    relevant = tuple(
        lines
        for lines in change.lines
        if lines.first < defaults_end or (lines.first < end and lines.last >= spec.line)
    )
    return replace(change, lines=relevant) if relevant else None


def _join(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _LISTED} more files" if len(texts) > _LISTED else ""
    return ", ".join(texts[:_LISTED]) + more


def _list_changed_tools(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name, "none"), after.get(name, "none")
        if old != new:
            yield f"{name} {old} to {new}"
