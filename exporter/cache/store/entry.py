"""What the store keeps of one finished cell: its record, and which files belong to it.

In: a record with its files, or the bytes of an entry. Out: those bytes, or an `ModelEntry` that is whole
and agrees with itself.

An entry is found by two keys. The first is the cell with its fingerprint (what the manifest says,
the tools), which is known before anything runs. The second is what the worker was seen to load:
the entries of one first key are held against the files of today one by one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from exporter.cache.fingerprint import THOROUGH
from exporter.core.frozen_model import FrozenModel, Items
from exporter.core.resources import is_out_of_resources
from exporter.jobs.job_folder import WEIGHTS, weights_name
from exporter.records.record import (
    CellId,
    Record,
    Stage,
    Status,
)

#: What an export leaves in a model's folder; an entry that names anything else is not one of ours.
_OF_OPSET = r"([1-9]\d*)\.onnx|logs/([1-9]\d*)\.log|logs/([1-9]\d*)/(?!\.)[^/\\\0\n]+"
_SHARED = (
    r"reference\.json|contract\.json|test_data_set_\d+/\w[\w.-]*|weights/weight_\d+\.pb"
    r"|logs/model\.log"
)
_PATH = re.compile(rf"{_OF_OPSET}|{_SHARED}|{WEIGHTS}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: What may hold a cell's file of PyTorch's answers.
_REFERENCE = "reference.json"


class StoredFile(FrozenModel):
    """A file of a cell."""

    path: str
    """In the model's folder: `18.onnx`."""
    sha256: str
    size: int

    @property
    def is_weights(self) -> bool:
        """Whether it is external data: onnx refuses it where it has a second name."""
        return is_weights(self.path)

    @property
    def is_ours(self) -> bool:
        """Whether an export may have left it, in the place that it names."""
        return bool(_PATH.fullmatch(self.path) and _SHA256.fullmatch(self.sha256))


class Head(FrozenModel):
    """The line of an entry that says what it needs."""

    format: Literal[1] = 1
    files: Items[StoredFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEntry:
    """A finished cell as the store has it."""

    record: Record
    files: tuple[StoredFile, ...]

    @property
    def reference(self) -> str:
        """The digest of what PyTorch said; empty where it was never asked."""
        digests = (file.sha256 for file in self.files if file.path == _REFERENCE)
        return next(digests, "")


class Damaged(Exception):
    """Bytes that are no whole entry."""


def is_weights(name: str) -> bool:
    """Whether a file of that name in a model's folder is external data."""
    return re.fullmatch(WEIGHTS, name) is not None


def lookup_key(cell: CellId, parts: Mapping[str, str]) -> str:
    """What is known before anything runs; a thorough record is good for both wishes."""
    known = sorted((part, value) for part, value in parts.items() if part != THOROUGH)
    return _digest(json.dumps([str(cell), known]))


def variant_key(record: Record) -> str:
    """What the worker was seen to load, and how closely it looked."""
    sources = [[source.file, source.sha256] for source in record.sources]
    found = [sources, sorted(record.packages.items()), record.thorough]
    return _digest(json.dumps(found))[:32]


def is_storable(record: Record) -> bool:
    """Whether the same inputs would give the same again, on any machine.

    Not where the machine or the network may have had a say: time, memory, a device, and whatever
    goes wrong while the model is built. Nor where nobody knows what it was made from.
    """
    settled = record.status in (Status.PASS, Status.FAIL) or (
        record.status is Status.ERROR and record.stage not in (None, Stage.SOURCE)
    )
    is_known = bool(record.fingerprint) and all(source.sha256 for source in record.sources)
    return (
        settled
        and is_known
        and not record.flaky
        and not is_out_of_resources(f"{record.message}\n{record.detail}")
    )


def is_of(path: str, record: Record) -> bool:
    """Whether a file of the model's folder belongs to the cell, or to all cells of the model."""
    found = _PATH.fullmatch(path)
    if found is None:
        return False
    if is_weights(path):
        return record.artifact is not None and path in record.artifact.external_data
    opset = next((group for group in found.groups() if group), None)
    return opset is None or int(opset) == record.cell.opset


def write_entry(entry: StoreEntry) -> bytes:
    """A line with a digest of the rest, one with what it needs, and the record as it is on disk."""
    body = Head(files=entry.files).to_json(indent=None) + entry.record.to_json()
    return f"{_digest(body)}\n{body}".encode()


def read_head(data: bytes) -> Head:
    """What an entry needs, without its record.

    Raises:
        Damaged: where the bytes are no whole entry.
    """
    return _parts(data)[0]


def read_entry(data: bytes) -> StoreEntry:
    """The entry of these bytes.

    Raises:
        Damaged: where they are not whole, or the record speaks of other files.
    """
    head, text = _parts(data)
    try:
        record = Record.read(text.encode())
    except ValueError:
        raise Damaged from None
    entry = StoreEntry(record=record, files=head.files)
    if not (is_storable(record) and _agrees(entry)):
        raise Damaged
    return entry


def read_file(path: Path) -> bytes:
    """The bytes of an entry.

    Raises:
        Damaged: where there is nothing to be read.
    """
    try:
        return path.read_bytes()
    except OSError:
        raise Damaged from None


def _parts(data: bytes) -> tuple[Head, str]:
    try:
        digest, _, body = data.decode().partition("\n")
        head, _, record = body.partition("\n")
        if digest != _digest(body):
            raise Damaged
        return Head.model_validate_json(head), record
    except ValueError:
        raise Damaged from None


def _agrees(entry: StoreEntry) -> bool:
    """Whether the files are those that the record was made of, each in a place of its own."""
    record, artifact = entry.record, entry.record.artifact
    digests = {file.path: file.sha256 for file in entry.files}
    if len(digests) < len(entry.files) or not all(file.is_ours for file in entry.files):
        return False
    if not all(is_of(path, record) for path in digests):
        return False
    if artifact is None:
        return record.status is not Status.PASS
    name = f"{record.cell.opset}.onnx"
    return (artifact.file, artifact.sha256) == (
        f"{record.cell.model}/{name}",
        digests.get(name),
    ) and all(data == weights_name(digests.get(data, "")) for data in artifact.external_data)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
