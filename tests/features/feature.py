"""What a row of `docs/torch-onnx.md` is, and what it has to prove.

A new row goes into the file of its section, its model into `models/`. Then
`python -m tests.features WORDS` says whether the rows whose names hold one of the words are right,
and `python -m tests.features` writes the page.

In: nothing. Out: `Feature` (proved by a project of its own), `Referred` (proved by traps),
`Elsewhere` (not here, with what to write instead) and `Section`; the words to write them with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import onnx

from exporter.manifest.syntax.opsets import parse_condition
from exporter.planning.plan import pattern_matches
from exporter.records.record import Record
from tests.traps.trap import SOUND, Verdict, inconclusive, parity, refused, structure

#: The ID of the model of every row; headers in `lines` name it: `[[models.net.overrides]]`.
MODEL = "net"


class Standing(StrEnum):
    """How torch.onnx's feature stands here, in the words of the page."""

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
    """The manifest's own message says what to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What came of a row: its records, and what lies in the folder of its model."""

    folder: Path
    """`build/net`, as the worker left it."""
    records: tuple[Record, ...]

    def record(self, opset: int, model: str = MODEL) -> Record:
        """The record at an opset, on the first device."""
        return next(
            item for item in self.records if (item.cell.model, item.cell.opset) == (model, opset)
        )

    def graph(self, opset: int, model: str = MODEL) -> onnx.ModelProto:
        """The file that ships, its external data left outside."""
        path = self.folder.parent / model / f"{opset}.onnx"
        return onnx.load(path, load_external_data=False)

    def operators(self, opset: int, model: str = MODEL) -> list[str]:
        """The operators of the main graph in order, and those of its branches and bodies."""
        return _operators(self.graph(opset, model).graph)

    def notes(self, opset: int) -> str:
        """What the record notes, one a line."""
        return "\n".join(self.record(opset).notes)


def _operators(graph: onnx.GraphProto) -> list[str]:
    found = []
    for node in graph.node:
        found.append(node.op_type)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                found += _operators(attribute.g)
    return found


#: What must hold besides the verdicts, by the words that say so.
Holds = Mapping[str, Callable[[Proof], bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A feature of torch.onnx, the manifest lines for it, and the verdicts that prove them.

    The project of a row has one model `net`: `lines`, and before them what they leave out of
    `source` (from `model`), `inputs` (`x`, `[batch, 4]`), `outputs` (`y`, `[batch, 4]`) and
    `opsets` (13 by TorchScript, 18 by dynamo).
    """

    name: str
    api: str
    """What torch.onnx calls it: `export(..., dynamic_axes=...)`."""
    torch: str
    """The versions of torch that have it: `1.4+`, `2.5-2.10`, `2.5+, dynamo`."""
    model: str
    """`file.py:attribute`, a file of `tests/features/models/`; empty where `lines` names one."""
    lines: str
    """The manifest lines that are the feature; the page shows them."""
    rest: str = ""
    """More lines of the same entry, which the page does not show."""
    standing: Standing = Standing.WORKS
    verdicts: Mapping[str, Verdict] = field(default_factory=lambda: {"*": SOUND})
    """By condition over opsets: `*`, `<18`, `>=18`, `9..13`; the first that fits counts. Where a
    row has more models or devices, cells as on the command line before it: `half: >=18`."""
    holds: Holds = field(default_factory=dict)
    """What else must be so, in words that follow "held:" on the page."""
    invalid: str = ""
    """A part of the message with which the manifest is refused; then nothing is exported."""
    note: str = ""
    """One or two sentences for the reader."""
    project: str = ""
    """Lines of `[tool.exporter]` in pyproject.toml."""
    prepare: Callable[[Path], None] | None = None
    """Writes more files into the manifest's folder: weights, inputs."""
    package: str = ""
    """A package that it needs besides the tools; where it is not installed, nothing is proved."""
    by_command: bool = False
    """Whether it runs by `exporter export`, in processes of its own, which costs seconds."""

    def right(self, record: Record) -> Verdict:
        """The one right verdict for a cell. Raises LookupError where the row names none."""
        for condition, verdict in self.verdicts.items():
            cells, _, opsets = condition.rpartition(": ")
            if record.cell.opset in parse_condition(opsets) and (
                not cells or pattern_matches(cells, record.cell)
            ):
                return verdict
        raise LookupError(f"no verdict for {record.cell}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Referred:
    """A pitfall or feature whose proof is in the trap suite."""

    name: str
    api: str
    torch: str
    traps: tuple[str, ...]
    """Names of traps; the page shows their verdicts."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """What torch.onnx has and this tool has not, because it does it another way, or never will."""

    name: str
    api: str
    torch: str
    instead: str
    """What to write or run instead, or why not."""


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
    "Standing",
    "Verdict",
    "inconclusive",
    "parity",
    "refused",
    "structure",
]
