"""A row of `docs/torch-onnx.md` and the facts that it has to prove.

A new row belongs in the file of its section, its model in `models/`. Then
`python -m tests.features WORDS` tests the rows with one of the words in their name, and
`python -m tests.features` writes the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import onnx

from exporter.manifest.syntax.values import parse_condition
from exporter.planning.plan import pattern_matches
from exporter.records.record import Record, Stage, Status
from tests.traps.trap import SOUND, Verdict, inconclusive, parity, refused, structure

#: The versions of torch of most rows: all of the page.
FIRST = "1.4+"
#: The ID of the model of every row; headers in `lines` name it: `[[models.net.overrides]]`.
MODEL = "net"


class Support(StrEnum):
    """The support of a feature, in the words of the page."""

    WORKS = "works"
    TORCHSCRIPT = "TorchScript only"
    DYNAMO = "dynamo only"
    FROM_10 = "works from opset 10 on"
    FROM_11 = "works from opset 11 on"
    FROM_23 = "works from opset 23 on"
    CAUGHT = "red"
    """A pitfall: torch.onnx.export returns normally or not, and the verdict is red."""
    UNPROVED = "unavailable"
    """Exported, and nothing here can run the file: neither green nor red."""
    REFUSED = "refused by torch"
    """torch has a name for it and raises."""
    INVALID = "refused by the manifest"
    """The message of the manifest names the replacement."""


#: The support of a row that is green only under one of these conditions.
_SUPPORT = {
    "<18": Support.TORCHSCRIPT,
    ">=18": Support.DYNAMO,
    ">=10": Support.FROM_10,
    ">=11": Support.FROM_11,
    ">=23": Support.FROM_23,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The result of a row: its records and the folder of its model."""

    folder: Path
    """`build/net`, as the worker left it."""
    records: tuple[Record, ...]

    def record(self, opset: int, model: str = MODEL) -> Record:
        return next(
            item for item in self.records if (item.cell.model, item.cell.opset) == (model, opset)
        )

    def graph(self, opset: int, model: str = MODEL) -> onnx.ModelProto:
        path = self.folder.parent / model / f"{opset}.onnx"
        return onnx.load(path, load_external_data=False)

    def operators(self, opset: int, model: str = MODEL) -> list[str]:
        """Return the operators of the main graph in order, and those of its branches and bodies."""
        return _operators(self.graph(opset, model).graph)

    def notes(self, opset: int) -> str:
        return "\n".join(self.record(opset).notes)


def _operators(graph: onnx.GraphProto) -> list[str]:
    operators = []
    for node in graph.node:
        operators.append(node.op_type)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                operators += _operators(attribute.g)
    return operators


#: Further facts that the row proves, by their descriptions.
Facts = Mapping[str, Callable[[Proof], bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A feature of torch.onnx, its manifest lines, and the verdicts that prove them.

    The project of a row has one model `net` with the keys in `lines`. The defaults are `source`
    (from `model`), `inputs` (`x`, `[batch, 4]`), `outputs` (`y`, `[batch, 4]`) and `opsets` (13 by
    TorchScript, 18 by dynamo).
    """

    name: str
    api: str
    """The name in torch.onnx: `export(..., dynamic_axes=...)`."""
    torch: str = FIRST
    """The versions of torch that have it: `1.2+`, `2.5-2.10`, `2.5+, dynamo`."""
    model: str
    """`file.py:attribute`, a file of `tests/features/models/`; empty if `lines` names one."""
    lines: str = ""
    """The manifest lines that are the feature; the page shows them."""
    rest: str = ""
    """More lines of the same entry, which the page does not show."""
    support: Support = Support.WORKS
    """By default, it follows from the verdicts."""
    verdicts: Mapping[str, Verdict] = field(default_factory=lambda: {"*": SOUND})
    """By condition over opsets: `*`, `<18`, `>=18`, `9..13`; the first match counts. If a row has
    several models or devices, a cell pattern precedes it: `half: >=18`."""
    facts: Facts = field(default_factory=dict)
    """Further facts that must be true, by the words that follow "checked:" on the page."""
    is_diagnosed: bool = False
    """Whether a fact is about the cause of a red cell, whose search costs seconds."""
    invalid: str = ""
    """A part of the message with which the manifest is refused; then nothing is exported."""
    note: str = ""
    """One or two sentences for the reader."""
    project: str = ""
    """Lines of `[tool.exporter]` in pyproject.toml."""
    prepare: Callable[[Path], None] | None = None
    """Writes more files into the manifest's folder: weights, inputs."""
    package: str = ""
    """A package that the row needs; if it is not installed, nothing is proved."""
    program: str = ""
    """A program that the row needs, such as a compiler; without it, nothing is proved."""
    by_command: bool = False
    """Whether it runs by `exporter export`, in processes of its own, which costs seconds."""

    def __post_init__(self) -> None:
        if self.support is Support.WORKS:
            object.__setattr__(self, "support", self._find_support())

    def _find_support(self) -> Support:
        if self.invalid:
            return Support.INVALID
        sound = [condition for condition, verdict in self.verdicts.items() if verdict == SOUND]
        if sound:
            return _SUPPORT.get(sound[0], Support.WORKS)
        outcomes = {(verdict.status, verdict.stage) for verdict in self.verdicts.values()}
        if {status for status, _ in outcomes} == {Status.UNAVAILABLE}:
            return Support.UNPROVED
        refusals = {(Status.ERROR, stage) for stage in (Stage.CAPTURE, Stage.CONVERT)}
        return Support.REFUSED if outcomes <= refusals else Support.CAUGHT

    def right(self, record: Record) -> Verdict:
        for condition, verdict in self.verdicts.items():
            cells, _, opsets = condition.rpartition(": ")
            if record.cell.opset in parse_condition(opsets) and (
                not cells or pattern_matches(cells, record.cell)
            ):
                return verdict
        raise LookupError(f"no verdict for {record.cell}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Referred:
    """A pitfall or feature that the trap suite proves."""

    name: str
    api: str
    torch: str = FIRST
    traps: tuple[str, ...]
    """Names of traps; the page shows their verdicts."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """A feature of torch.onnx that this tool replaces or will not have."""

    name: str
    api: str
    torch: str = FIRST
    instead: str
    """The replacement, or the reason."""


Row = Feature | Referred | Elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One table of the page."""

    name: str
    text: str = ""
    """A paragraph above the table."""
    rows: tuple[Row, ...]


__all__ = [
    "MODEL",
    "SOUND",
    "Elsewhere",
    "Feature",
    "Proof",
    "Referred",
    "Row",
    "Section",
    "Support",
    "Verdict",
    "inconclusive",
    "parity",
    "refused",
    "structure",
]
