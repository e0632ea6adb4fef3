"""The entries of a store: the records of finished cells and the hashes of their files.

The name of an entry has two keys. The lookup key is a hash of the cell and its fingerprint, which
are known before a worker starts. The variant key is a hash of the loaded sources and packages. All
variants of one lookup key are compared with the current files.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from exporter.cache.fingerprint import THOROUGH, is_known_everywhere
from exporter.cache.states import hash_text
from exporter.core.frozen_model import ChecksummedModel, FrozenModel, Items
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
_WEIGHTS = re.compile(WEIGHTS_PATTERN)
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: The file with PyTorch's outputs.
_REFERENCE = "reference.json"
#: Prevents that a signature of another program with the same key is valid here.
_PURPOSE = b"onnx-exporter-matrix store entry\n"


class DamagedEntry(Exception):
    """An entry cannot be used; the text says why in one or a few words."""


class StoredFile(FrozenModel):
    """A file of a cell."""

    path: str
    """Relative to the model's folder: `18.onnx`."""
    sha256: str
    size: int

    @property
    def blob(self) -> str:
        """The name of the content in a store."""
        return f"blobs/{self.sha256[:2]}/{self.sha256}"


class StoreEntry(ChecksummedModel):
    """A finished cell in a store."""

    format: Literal[3] = 3
    files: Items[StoredFile]
    record: Record
    changed: float = Field(default=0.0, exclude=True)
    """Seconds since 1970: the time of the last use, or 0 if it is unknown."""

    @property
    def reference(self) -> str:
        """The hash of PyTorch's outputs, or "" if there are none."""
        return next((file.sha256 for file in self.files if file.path == _REFERENCE), "")


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A secret that all trusted writers and readers have."""

    secret: bytes = field(repr=False)

    def sign(self, data: bytes) -> bytes:
        """Return the signature of these bytes."""
        return hmac.new(self.secret, _PURPOSE + data, hashlib.sha256).hexdigest().encode()


def name_entry(record: Record) -> str:
    """Return the name of a record's entry in a store."""
    key = make_lookup_key(record.cell, record.fingerprint)
    return f"{name_folder(key)}/{make_variant_key(record)}.json"


def name_folder(lookup_key: str) -> str:
    return f"entries/{lookup_key[:2]}/{lookup_key[2:]}"


def make_lookup_key(cell: CellId, parts: Mapping[str, str]) -> str:
    """Return the key from the inputs that are known before a worker starts.

    Thorough and default records have the same key, because a thorough record satisfies both.
    """
    known = sorted(
        (part, value)
        for part, value in parts.items()
        if part != THOROUGH and is_known_everywhere(part)
    )
    return hash_text(json.dumps([str(cell), known]))


def make_variant_key(record: Record) -> str:
    """Return the key from the inputs that the worker loaded."""
    sources = [[source.file, source.state] for source in record.sources]
    states = [sorted(each.items()) for each in (record.packages, record.variables)]
    loaded = [sources, *states, record.thorough]
    return hash_text(json.dumps(loaded))[:32]


def is_storable(record: Record) -> bool:
    """Return True if the same inputs give the same result on every machine.

    A result is not storable if it can depend on time, memory, a device or the network. Errors in
    the model's own code can depend on all of these. All inputs of a storable result are known.
    """
    is_deterministic = record.status in (Status.PASS, Status.FAIL) or (
        record.status is Status.ERROR and record.stage not in (None, Stage.SOURCE)
    )
    return (
        (is_deterministic or record.is_final)
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
    if _WEIGHTS.fullmatch(path):
        return record.artifact is not None and path in record.artifact.external_data
    opset = next((group for group in match.groups() if group), None)
    return opset is None or int(opset) == record.cell.opset


def serialize_entry(store_entry: StoreEntry, key: SigningKey | None = None) -> bytes:
    """Return a line with the signature, if there is a key, and the entry."""
    body = store_entry.to_json().encode()
    return (key.sign(body) if key else b"") + b"\n" + body


def parse_entry(data: bytes, key: SigningKey | None = None) -> StoreEntry:
    """Return the entry. It must be signed with the key if there is one.

    Raises:
        DamagedEntry: if the bytes are incomplete or changed, the record has other files, or the
            signature is missing or wrong.
    """
    signature, _, body = data.partition(b"\n")
    if key and not hmac.compare_digest(signature, key.sign(body)):
        raise DamagedEntry("signed with another key or changed" if signature else "not signed")
    try:
        entry = StoreEntry.read(body)
    except ValueError:
        raise DamagedEntry("damaged") from None
    if not (is_storable(entry.record) and _is_consistent(entry)):
        raise DamagedEntry("damaged")
    return entry


def _is_consistent(store_entry: StoreEntry) -> bool:
    """Return True if each file is listed once and the artifact has a reference and the hashes."""
    record, artifact = store_entry.record, store_entry.record.artifact
    hashes = {file.path: file.sha256 for file in store_entry.files}
    if len(hashes) < len(store_entry.files):
        return False
    for path, sha256 in hashes.items():
        if not (_SHA256.fullmatch(sha256) and belongs_to(path, record)):
            return False
    if artifact is None:
        return record.status is not Status.PASS
    name = f"{record.cell.opset}.onnx"
    file = (f"{record.cell.model}/{name}", hashes.get(name))
    return (
        _REFERENCE in hashes
        and (artifact.file, artifact.sha256) == file
        and all(is_weights_name(data, hashes.get(data, "")) for data in artifact.external_data)
    )
