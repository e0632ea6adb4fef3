"""Serialize and validate a store entry: the record of a finished cell and the list of its files.

An entry has two keys. The lookup key is a hash of the cell and its fingerprint, which are known
before a worker starts. The variant key is a hash of the loaded sources and packages. All variants
of one lookup key are compared with the current files.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from exporter.cache.fingerprint import THOROUGH, is_known_everywhere
from exporter.core.files import CELL_LIMIT, read_regular_file
from exporter.core.frozen_model import FrozenModel, Items
from exporter.core.text import is_out_of_resources
from exporter.jobs import WEIGHTS_PATTERN, is_weights_name
from exporter.records.record import CellId, Record, Stage, Status

#: The files of an export in a model's folder. An entry with other paths is invalid.
_OPSET_FILES = r"([1-9]\d*)\.onnx|logs/([1-9]\d*)\.log|logs/([1-9]\d*)/(?!\.)[^/\\\0\n]+"
_SHARED_FILES = (
    r"reference\.json|contract\.json|test_data_set_\d+/\w[\w.-]*|weights/weight_\d+\.pb"
    r"|logs/model\.log"
)
_PATH = re.compile(rf"{_OPSET_FILES}|{_SHARED_FILES}|{WEIGHTS_PATTERN}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: The file with PyTorch's outputs.
_REFERENCE = "reference.json"


class StoredFile(FrozenModel):
    """A file of a cell."""

    path: str
    """Relative to the model's folder: `18.onnx`."""
    sha256: str
    size: int

    @property
    def is_weights(self) -> bool:
        """True for external data, which onnx rejects if the file has a second name."""
        return is_weights(self.path)


class StoreEntryHeader(FrozenModel):
    """The line of an entry that lists its files."""

    format: Literal[2] = 2
    files: Items[StoredFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEntry:
    """A finished cell in the store."""

    record: Record
    files: tuple[StoredFile, ...]

    @property
    def reference(self) -> str:
        """The hash of PyTorch's outputs, or "" if there are none."""
        hashes = (file.sha256 for file in self.files if file.path == _REFERENCE)
        return next(hashes, "")


class DamagedEntry(Exception):
    """The bytes of an entry are incomplete or inconsistent."""


def is_weights(name: str) -> bool:
    """Return True if a file of this name in a model's folder is external data."""
    return re.fullmatch(WEIGHTS_PATTERN, name) is not None


def make_lookup_key(cell: CellId, parts: Mapping[str, str]) -> str:
    """Return the key from the inputs that are known before a worker starts.

    Thorough and default records have the same key, because a thorough record satisfies both.
    """
    known = sorted(
        (part, value)
        for part, value in parts.items()
        if part != THOROUGH and is_known_everywhere(part)
    )
    return _hash_text(json.dumps([str(cell), known]))


def make_variant_key(record: Record) -> str:
    """Return the key from the inputs that the worker loaded."""
    sources = [[source.file, source.state] for source in record.sources]
    states = [sorted(each.items()) for each in (record.packages, record.variables)]
    loaded = [sources, *states, record.thorough]
    return _hash_text(json.dumps(loaded))[:32]


def is_storable(record: Record) -> bool:
    """Return True if the same inputs give the same result on every machine.

    A result is not storable if it can depend on time, memory, a device or the network. Errors in
    the model's own code can depend on all of these. All inputs of a storable result are known.
    """
    is_deterministic = record.status in (Status.PASS, Status.FAIL) or (
        record.status is Status.ERROR and record.stage not in (None, Stage.SOURCE)
    )
    return (
        is_deterministic
        and bool(record.fingerprint)
        and all(source.state for source in record.sources)
        and not record.untracked
        and not record.flaky
        and not is_out_of_resources(f"{record.message}\n{record.detail}")
    )


def belongs_to(path: str, record: Record) -> bool:
    """Return True if a file belongs to the cell, or to all cells of its model.

    The path is relative to the model's folder.
    """
    match = _PATH.fullmatch(path)
    if match is None:
        return False
    if is_weights(path):
        return record.artifact is not None and path in record.artifact.external_data
    opset = next((group for group in match.groups() if group), None)
    return opset is None or int(opset) == record.cell.opset


def serialize_entry(entry: StoreEntry) -> bytes:
    """Return three parts: a line with the hash of the others, the header, the record."""
    body = StoreEntryHeader(files=entry.files).to_json(indent=None) + entry.record.to_json()
    return f"{_hash_text(body)}\n{body}".encode()


def read_entry_file(path: Path) -> bytes:
    """Return the bytes of an entry.

    Raises:
        DamagedEntry: if the file cannot be read.
    """
    try:
        return read_regular_file(path, CELL_LIMIT)
    except OSError:
        raise DamagedEntry from None


def parse_header(data: bytes) -> StoreEntryHeader:
    """Return the header of an entry without its record.

    Raises:
        DamagedEntry: if the bytes are incomplete or changed.
    """
    return _split_entry(data)[0]


def parse_entry(data: bytes) -> StoreEntry:
    """Return the entry.

    Raises:
        DamagedEntry: if the bytes are incomplete or changed, or the record has other files.
    """
    header, text = _split_entry(data)
    try:
        record = Record.read(text.encode())
    except ValueError:
        raise DamagedEntry from None
    entry = StoreEntry(record=record, files=header.files)
    if not (is_storable(record) and _is_consistent(entry)):
        raise DamagedEntry
    return entry


def _split_entry(data: bytes) -> tuple[StoreEntryHeader, str]:
    try:
        sha256, _, body = data.decode().partition("\n")
        header, _, record = body.partition("\n")
        if sha256 != _hash_text(body):
            raise DamagedEntry
        return StoreEntryHeader.model_validate_json(header), record
    except ValueError:
        raise DamagedEntry from None


def _is_consistent(entry: StoreEntry) -> bool:
    """Return True if each file is listed once and the artifact has the listed hashes."""
    record, artifact = entry.record, entry.record.artifact
    hashes = {file.path: file.sha256 for file in entry.files}
    if len(hashes) < len(entry.files):
        return False
    for path, sha256 in hashes.items():
        if not (_SHA256.fullmatch(sha256) and belongs_to(path, record)):
            return False
    if artifact is None:
        return record.status is not Status.PASS
    name = f"{record.cell.opset}.onnx"
    return (artifact.file, artifact.sha256) == (
        f"{record.cell.model}/{name}",
        hashes.get(name),
    ) and all(is_weights_name(data, hashes.get(data, "")) for data in artifact.external_data)


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
