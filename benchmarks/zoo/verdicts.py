"""The comparison of the program's verdicts with the independent judgement.

Input: the records of one model and its exported files. Output: a `Verdict` for each cell.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import torch

from benchmarks.zoo.draws import Tensors, draw_sets
from benchmarks.zoo.judge import Arrays, BrokenModel, build_model, find_problem, run_eagerly
from benchmarks.zoo.plain_export import export_plainly
from exporter.core.files import write_text
from exporter.manifest import ModelSpec
from exporter.records.record import CellId, Record

Kind = Literal["agree", "false green", "false red", "unjudged"]
#: Seconds for the plain exports of one model.
_LIMIT = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One cell: the verdict of the program, and the judgement of its file."""

    cell: str
    tag: str
    status: str
    message: str
    """The stage, the check and the message of a red cell."""
    kind: Kind
    judgement: str
    """The file that is right, or the problem of each file."""

    @property
    def model(self) -> str:
        """The ID of the model."""
        return self.cell.split("/")[0]

    @property
    def opset(self) -> int:
        """The opset of the cell."""
        return int(self.cell.split("/")[1])

    @property
    def is_green(self) -> bool:
        """Whether the program promises the file."""
        return not self.message

    @property
    def is_sound(self) -> bool:
        """Whether a right file exists, so that the cell must be green."""
        return self.kind == "false red" or (self.is_green and self.kind == "agree")


def read_verdicts(path: Path) -> list[Verdict]:
    """Read stored verdicts; none if there is no file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [Verdict(**json.loads(line)) for line in lines]


def write_verdicts(path: Path, verdicts: Iterable[Verdict]) -> None:
    """Write verdicts, one JSON object a line."""
    write_text(path, "".join(f"{json.dumps(asdict(verdict))}\n" for verdict in verdicts))


def judge_model(
    spec: ModelSpec, records: Sequence[Record], build: Path, manifests: Path
) -> list[Verdict]:
    """Judge all cells of a model in a process of its own, which may crash or hang.

    Returns:
        A verdict for each opset. It is `unjudged` if the process or the record is missing.
    """
    with TemporaryDirectory(prefix="zoo-") as folder:
        target = Path(folder) / "verdicts.jsonl"
        process = multiprocessing.get_context("fork").Process(
            target=_write_verdicts, args=(spec, records, build, manifests, target)
        )
        process.start()
        process.join(_LIMIT)
        if process.is_alive():
            process.kill()
            process.join()
        verdicts = read_verdicts(target)
    done = {verdict.opset for verdict in verdicts}
    by_opset = {record.cell.opset: record for record in records}
    for opset in spec.opsets:
        if opset in done:
            continue
        if opset in by_opset:
            ending = f"the judgement ended with exit code {process.exitcode}"
            verdicts.append(_make_verdict(spec, by_opset[opset], "unjudged", ending))
        else:
            verdicts.append(_make_missing_verdict(spec, opset))
    return verdicts


def _write_verdicts(
    spec: ModelSpec, records: Sequence[Record], build: Path, manifests: Path, target: Path
) -> None:
    warnings.simplefilter("ignore")
    with Path(os.devnull).open("w") as nothing:  # torch prints whole graphs if it fails
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
    torch.set_num_threads(1)
    with TemporaryDirectory(prefix="zoo-") as folder, target.open("w") as stream:
        model = build_model(spec, manifests, spec.seed)
        broken, sets = "", []
        try:
            sets = [(inputs, run_eagerly(model, inputs)) for inputs in draw_sets(spec)]
        except BrokenModel as error:
            broken = str(error)
        for record in records:
            judged = _judge_files(spec, record, build, manifests, Path(folder), sets)
            problems = {"the model": broken} if broken else dict(judged)
            verdict = _decide(spec, record, problems)
            stream.write(json.dumps(asdict(verdict)) + "\n")
            stream.flush()


def _judge_files(
    spec: ModelSpec,
    record: Record,
    build: Path,
    manifests: Path,
    folder: Path,
    sets: Sequence[tuple[Tensors, Arrays]],
) -> Iterator[tuple[str, str]]:
    """Yield each file of a cell with its problem, up to the first right one.

    The first is the file of the program. If the cell is red, files of plain calls follow.
    """
    opset = record.cell.opset
    if record.artifact is not None:
        problem = find_problem(build / record.artifact.file, spec, opset, sets)
        yield "its own file", problem
        if not problem:
            return
    if record.status.is_green:
        return
    model = build_model(spec, manifests, spec.seed)
    for name, result in export_plainly(model, spec, opset, sets[0][0], folder):
        if isinstance(result, Path):
            problem = find_problem(result, spec, opset, sets)
        else:
            problem = str(result)
        yield f"a plain call {name}", problem
        if not problem:
            return


def _decide(spec: ModelSpec, record: Record, problems: dict[str, str]) -> Verdict:
    right = [name for name, problem in problems.items() if not problem]
    if right:
        judgement = f"{right[0]} is right"
    else:
        judgement = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
    kind: Kind = "agree"
    if record.status.is_green and not right:
        kind = "false green"
    if not record.status.is_green and right:
        kind = "false red"
    return _make_verdict(spec, record, kind, judgement)


def _make_verdict(spec: ModelSpec, record: Record, kind: Kind, judgement: str) -> Verdict:
    place = "/".join(str(part) for part in (record.stage, record.check) if part)
    return Verdict(
        cell=str(record.cell),
        tag=spec.tags[0],
        status=str(record.status),
        message="" if record.status.is_green else f"{place}: {record.message}",
        kind=kind,
        judgement=judgement,
    )


def _make_missing_verdict(spec: ModelSpec, opset: int) -> Verdict:
    return Verdict(
        cell=str(CellId(model=spec.id, opset=opset, device="cpu")),
        tag=spec.tags[0],
        status="missing",
        message="the export has no result",
        kind="unjudged",
        judgement="",
    )
