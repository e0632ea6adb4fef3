"""The content of one published folder: copies, descriptions and hashes.

In: a `Candidate`, the build folder and an empty folder. Out: `model.onnx`, its external data,
`exporter.json` (what was proved, with what), `contract.json`, `README.md`, and for test runners
`data.json` (onnx.backend.test) and `config.txt` (onnx_test_runner); `SHA256SUMS` over all of them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from exporter.core.atomic_files import write_text
from exporter.core.errors import ExitCode, ExporterError
from exporter.core.frozen_model import FrozenModel, Items
from exporter.jobs.job_folder import format_weights_name
from exporter.manifest import ModelSpec
from exporter.records.record import Record
from exporter.tools.publish.candidates import Candidate
from exporter.tools.publish.protocol import Allowance, DataSet

MODEL = "model.onnx"
#: Says that we wrote the folder.
MARKER = "exporter.json"
SUMS = "SHA256SUMS"


class Publication(FrozenModel):
    """`exporter.json`: what was published, and how it was proved."""

    format: Literal[1] = 1
    tool: Literal["onnx-exporter-matrix"] = "onnx-exporter-matrix"
    model: str
    opset: int
    is_green: bool
    """Whether every promise was proved on every device listed in `records`."""
    warning: str = ""
    """What is wrong with the file; empty where nothing is."""
    sha256: str
    """Of `model.onnx`."""
    external_data: Items[str] = ()
    tools: dict[str, str]
    """What it was made and proved with."""
    data_sets: Items[DataSet]
    allowed: Items[Allowance]
    """How far each output may be off the test data."""
    records: Items[Record]
    """Of each device: checks with their figures, route, sources with their hashes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderContent:
    """All that a folder is made from."""

    spec: ModelSpec
    """The contract at this opset."""
    candidate: Candidate
    tools: dict[str, str]
    sets: tuple[DataSet, ...]
    allowed: tuple[Allowance, ...]


def copy_model(candidate: Candidate, built: Path, folder: Path) -> None:
    """Copies the file and its external data; what was copied is what was proved.

    Raises:
        ExporterError: UNREADABLE, where it is not.
    """
    names = {f"{candidate.opset}.onnx": MODEL}
    names |= {name: name for name in candidate.artifact.external_data}
    for source, target in names.items():
        path = built / source
        if PurePosixPath(source).name != source or path.is_symlink():
            message = f"{source}: is not inside the model's folder; export the model again"
            raise ExporterError(ExitCode.UNREADABLE, message)
        shutil.copyfile(path, folder / target)
        digest = sha256(folder / target)
        is_model = target == MODEL
        is_proved = (
            digest == candidate.artifact.sha256 if is_model else target == format_weights_name(digest)
        )
        if not is_proved:
            message = f"{candidate.model}/{source}: is not the file that was proved"
            raise ExporterError(ExitCode.UNREADABLE, message)


def summarize_content(content: FolderContent) -> Publication:
    """What `exporter.json` says; nothing in it differs between two runs of the same."""
    candidate = content.candidate
    return Publication(
        model=candidate.model,
        opset=candidate.opset,
        is_green=not candidate.warning,
        warning=candidate.warning,
        sha256=candidate.artifact.sha256,
        external_data=candidate.artifact.external_data,
        tools=content.tools,
        data_sets=content.sets,
        allowed=content.allowed,
        records=tuple(_timeless(record) for record in candidate.records),
    )


def write_descriptions(content: FolderContent, card: str, folder: Path) -> None:
    """Writes what says what the files are, and at last the hashes of all."""
    atol = max((item.atol for item in content.allowed), default=0.0)
    rtol = max((item.rtol for item in content.allowed), default=0.0)
    write_text(folder / MARKER, summarize_content(content).to_json())
    write_text(folder / "contract.json", content.spec.to_json())
    write_text(folder / "README.md", card)
    write_text(folder / "data.json", json.dumps({"rtol": rtol, "atol": atol}) + "\n")
    config = f"per_sample_tolerance:{atol}\nrelative_per_sample_tolerance:{rtol}\n"
    write_text(folder / "config.txt", config)
    lines = (f"{sha256(folder / name)}  {name}\n" for name in sorted(list_files(folder)))
    write_text(folder / SUMS, "".join(lines))


def list_files(folder: Path) -> Iterator[str]:
    """Every file in the folder, relative to it."""
    for path in folder.rglob("*"):
        if not path.is_dir():
            yield path.relative_to(folder).as_posix()


def read_listed_files(folder: Path) -> frozenset[str]:
    """The files that the folder's list of hashes names.

    Raises:
        OSError: where there is no such list.
        ValueError: where it is none.
    """
    return frozenset(name for _, name in _sums(folder))


def find_hash_problems(folder: Path) -> tuple[str, ...]:
    """Files that are not what the list of hashes says, or that it does not name."""
    sums = {name: digest for digest, name in _sums(folder)}
    found = set(list_files(folder)) - {SUMS}
    absent = [f"{name} is missing" for name in sorted(set(sums) - found)]
    further = [f"{name} is in no list" for name in sorted(found - set(sums))]
    other = [
        f"{name} has another hash"
        for name in sorted(found & set(sums))
        if sha256(folder / name) != sums[name]
    ]
    return (*absent, *further, *other)


def sha256(path: Path) -> str:
    """The hash of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sums(folder: Path) -> Iterator[tuple[str, str]]:
    for line in (folder / SUMS).read_text(encoding="utf-8").splitlines():
        digest, mark, name = line.partition("  ")
        if not mark or len(digest) != hashlib.sha256().digest_size * 2:
            raise ValueError(f"{SUMS} is no list of hashes")
        yield digest, name


def _timeless(record: Record) -> Record:
    checks = tuple(check.model_copy(update={"seconds": 0.0}) for check in record.checks)
    return record.model_copy(update={"checks": checks, "seconds": {}, "log": ""})
