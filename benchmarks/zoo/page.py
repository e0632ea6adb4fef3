"""The page of the zoo: the agreement, each disagreement with its reason, and the red cells.

Input: verdicts, and `reasons.toml` with known disagreements. Output: markdown.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from benchmarks.zoo.verdicts import Verdict

REASONS = Path(__file__).parent / "reasons.toml"
#: The share of cells whose verdicts must agree.
AIM = 0.97
_LONGEST = 240
_HEAD = """\
# The zoo

The session `zoo -- --page` writes it. Each model is a known architecture with seeded weights.
Its contract is the one an expert would write: masks, padding and dynamic axes. The program exports
and proves each cell. An independent judgement runs the file on other inputs next to PyTorch. If a
cell is red, files of plain `torch.onnx.export` calls are judged too: without gradients, with them,
and with inferred axes. A red cell with a right file is a false red. A green cell with a wrong file
is a false green.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """The explanation of known disagreements."""

    cells: tuple[str, ...]
    """Globs over cell IDs."""
    text: str

    def explains(self, verdict: Verdict) -> bool:
        """Return whether a disagreement has this reason; a false green never has one."""
        matches = any(fnmatchcase(verdict.cell, pattern) for pattern in self.cells)
        return matches and verdict.kind == "false red"


def read_reasons(path: Path = REASONS) -> tuple[Reason, ...]:
    """Read the known disagreements."""
    tables = tomllib.loads(path.read_text(encoding="utf-8")).get("reason", [])
    return tuple(Reason(cells=tuple(item["cells"]), text=item["text"]) for item in tables)


def find_reason(verdict: Verdict, reasons: Iterable[Reason]) -> str:
    """Return the reason of a disagreement, or ""."""
    return next((reason.text for reason in reasons if reason.explains(verdict)), "")


def list_faults(verdicts: Sequence[Verdict], reasons: Sequence[Reason]) -> Iterator[str]:
    """Yield each reason why the zoo fails."""
    counts = Counter(verdict.kind for verdict in verdicts)
    for kind in ("false green", "unjudged"):
        if counts[kind]:
            yield f"{counts[kind]} cells are {kind}; there must be none"
    share = counts["agree"] / len(verdicts) if verdicts else 0.0
    if share < AIM:
        yield f"{share:.1%} of the cells agree; there must be {AIM:.0%}"
    reds = [verdict for verdict in verdicts if verdict.kind == "false red"]
    unexplained = [verdict.cell for verdict in reds if not find_reason(verdict, reasons)]
    if unexplained:
        yield f"no reason for {', '.join(unexplained)}; add one to reasons.toml"


def make_page(
    verdicts: Sequence[Verdict], reasons: Sequence[Reason], versions: Mapping[str, str]
) -> str:
    """Return the page."""
    return "\n".join((_HEAD, *_list_lines(verdicts, reasons, versions), ""))


def compare_with_page(verdicts: Iterable[Verdict], page: str) -> Iterator[str]:
    """Yield the cells whose status differs from that of a page of another release, then a count."""
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    opsets = next(cells[1:] for cells in rows if cells[0] == "model")
    statuses = {
        f"{model}/{opset}/cpu": status
        for model, *marks in rows
        if len(marks) == len(opsets)
        for opset, status in zip(opsets, marks, strict=True)
    }
    pairs = [(each, statuses[each.cell]) for each in verdicts if each.cell in statuses]
    differing = [(each, status) for each, status in pairs if each.status != status]
    for verdict, status in differing:
        yield f"{verdict.cell}: {status} -> {verdict.status}  {_shorten(verdict.message)}"
    count = len(pairs) - len(differing)
    yield f"{count} of {len(pairs)} cells have the status of {version_of(page)}"


def version_of(page: str) -> str:
    """Return the release of torch of a page, `torch 2.13.0`."""
    found = re.search(r"^torch [0-9.]+", page, re.MULTILINE)
    return found.group() if found else "the page"


def _list_lines(
    verdicts: Sequence[Verdict], reasons: Sequence[Reason], versions: Mapping[str, str]
) -> Iterator[str]:
    yield ", ".join(f"{name} {version}" for name, version in versions.items()) + "."
    yield from ("", "| | models | cells | green | agree | false red | false green |")
    yield "|---|---|---|---|---|---|---|"
    tags = dict.fromkeys(verdict.tag for verdict in verdicts)
    for tag in tags:
        yield _make_row(tag, [verdict for verdict in verdicts if verdict.tag == tag])
    yield _make_row("all", verdicts)
    differing = [verdict for verdict in verdicts if verdict.kind != "agree"]
    yield from ("", "## Disagreements", "")
    if differing:
        yield from ("| cell | kind | verdict | judgement | reason |", "|---|---|---|---|---|")
    else:
        yield "None."
    for verdict in differing:
        reason = find_reason(verdict, reasons) or "**not explained**"
        cells = (verdict.kind, verdict.message or "green", verdict.judgement, reason)
        yield f"| {verdict.cell} | {' | '.join(map(_shorten, cells))} |"
    yield from ("", "## Cells", "")
    yield from _list_models(verdicts)
    agreed = [item for item in verdicts if item.kind == "agree" and not item.is_green]
    yield from ("", "## Red cells without a right file", "")
    yield from ("| cell | verdict | judgement |", "|---|---|---|")
    for verdict in agreed:
        yield f"| {verdict.cell} | {_shorten(verdict.message)} | {_shorten(verdict.judgement)} |"


def _make_row(name: str, verdicts: Sequence[Verdict]) -> str:
    counts = Counter(verdict.kind for verdict in verdicts)
    models = {verdict.model for verdict in verdicts}
    green = sum(verdict.is_green for verdict in verdicts)
    share = f"{counts['agree'] / len(verdicts):.1%}"
    figures = (len(models), len(verdicts), green, share, counts["false red"], counts["false green"])
    return f"| {name} | {' | '.join(map(str, figures))} |"


def _list_models(verdicts: Sequence[Verdict]) -> Iterator[str]:
    opsets = sorted({verdict.opset for verdict in verdicts})
    yield f"| model | {' | '.join(map(str, opsets))} |"
    yield f"|---|{'---|' * len(opsets)}"
    models: dict[str, dict[int, str]] = {}
    for verdict in verdicts:
        mark = verdict.status if verdict.kind == "agree" else f"**{verdict.kind}**"
        models.setdefault(verdict.model, {})[verdict.opset] = mark
    for model, marks in models.items():
        yield f"| {model} | {' | '.join(marks.get(opset, '') for opset in opsets)} |"


def _shorten(text: str) -> str:
    """Return a text that fits into a cell of a table."""
    line = " ".join(text.split()).replace("|", "\\|")
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ..."
