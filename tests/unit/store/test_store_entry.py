"""An entry is complete and consistent and has only files of an export, or it is damaged."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.records.record import Source, Stage, Status
from exporter.store.store_entry import (
    DamagedEntry,
    StoredFile,
    StoreEntry,
    belongs_to,
    is_storable,
    make_lookup_key,
    make_variant_key,
    parse_entry,
    serialize_entry,
)
from tests.unit.factory import make_artifact, make_record
from tests.unit.store.cells import PARTS

ARTIFACT = make_artifact("tiny", 18, sha256="a" * 64, external_data=(f"weights-{'b' * 16}.data",))
RECORD = make_record("tiny/18/cpu", artifact=ARTIFACT, fingerprint=PARTS)
FILES = (
    StoredFile(path="18.onnx", sha256="a" * 64, size=3),
    StoredFile(path=f"weights-{'b' * 16}.data", sha256="b" * 64, size=4),
    StoredFile(path="reference.json", sha256="c" * 64, size=5),
)
ENTRY = StoreEntry(record=RECORD, files=FILES)


def test_a_serialized_entry_is_parsed() -> None:
    assert parse_entry(serialize_entry(ENTRY)) == ENTRY
    assert ENTRY.reference == "c" * 64


def test_truncated_or_changed_bytes_are_damaged() -> None:
    data = serialize_entry(ENTRY)
    for size in range(len(data)):
        with pytest.raises(DamagedEntry):
            parse_entry(data[:size])
    for position in range(0, len(data), 3):
        for bit in (0, 5, 7):
            broken = bytearray(data)
            broken[position] ^= 1 << bit
            with pytest.raises(DamagedEntry):
                parse_entry(bytes(broken))


@given(st.binary(max_size=200))
def test_other_bytes_are_damaged(data: bytes) -> None:
    with pytest.raises(DamagedEntry):
        parse_entry(data)


def forged(entry: StoreEntry, **changes: Any) -> bytes:
    """Return an entry with a right hash and other fields."""
    content = {**json.loads(entry.to_json()), **changes}
    del content["sha256"]
    rest = json.dumps(content, indent=2)[1:] + "\n"
    digest = hashlib.sha256(rest.encode()).hexdigest()
    return f'\n{{\n  "sha256": "{digest}",{rest}'.encode()


@pytest.mark.parametrize(
    "path",
    [
        "../18.onnx",
        "/etc/passwd",
        "17.onnx",
        "018.onnx",
        "records/18.cpu.json",
        "job.json",
        "test_data_set_0/../../x",
        "test_data_set_0/.x",
        "logs/18/../../../x",
        "logs/18/a/b",
        "logs/17/report.md",
        "weights-0000000000000000.data",
        "reference.json/x",
        "",
    ],
)
def test_an_entry_with_a_foreign_path_is_damaged(path: str) -> None:
    more = {"path": path, "sha256": "d" * 64, "size": 1}
    with pytest.raises(DamagedEntry):
        parse_entry(forged(ENTRY, files=[*(f.model_dump() for f in FILES), more]))


def test_a_forged_entry_with_right_content_is_parsed() -> None:
    assert parse_entry(forged(ENTRY)) == ENTRY


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"files": [f.model_dump() for f in FILES[1:]]},  # without the exported file
        {"files": [f.model_dump() for f in (FILES[0], *FILES[2:])]},  # without its weights
        {"files": [f.model_dump() for f in FILES[:2]]},  # without PyTorch's outputs
        {"files": [f.model_dump() for f in (*FILES, FILES[2])]},  # one path twice
        {"files": [{**FILES[0].model_dump(), "sha256": "e" * 64}, FILES[1].model_dump()]},
        {"files": [FILES[0].model_dump(), {**FILES[1].model_dump(), "sha256": "e" * 64}]},
        {
            "files": [
                *(f.model_dump() for f in FILES[:2]),
                {**FILES[2].model_dump(), "sha256": "../x"},
            ]
        },
    ],
)
def test_an_entry_with_files_of_another_record_is_damaged(changes: dict[str, Any]) -> None:
    with pytest.raises(DamagedEntry):
        parse_entry(forged(ENTRY, **changes))


def test_a_pass_without_a_file_is_damaged() -> None:
    record = RECORD.model_copy(update={"artifact": None})
    with pytest.raises(DamagedEntry):
        parse_entry(serialize_entry(StoreEntry(record=record, files=FILES[2:])))


def test_the_lookup_key_depends_on_cell_and_parts_except_thorough() -> None:
    key = make_lookup_key(RECORD.cell, PARTS)
    assert make_lookup_key(RECORD.cell, dict(reversed(PARTS.items()))) == key
    assert make_lookup_key(RECORD.cell, {**PARTS, "thorough": "yes"}) == key
    assert make_lookup_key(RECORD.cell, {**PARTS, "checks": "other"}) != key
    assert make_lookup_key(RECORD.cell.model_copy(update={"opset": 17}), PARTS) != key


def test_the_variant_key_depends_on_loaded_inputs_and_thorough() -> None:
    source = Source(file="net.py", state="1" * 64)
    others = [
        RECORD,
        RECORD.model_copy(update={"sources": (source,)}),
        RECORD.model_copy(update={"sources": (source.model_copy(update={"state": "2" * 64}),)}),
        RECORD.model_copy(update={"packages": {"timm": "1.0 ab"}}),
        RECORD.model_copy(update={"thorough": True}),
    ]
    assert len({make_variant_key(record) for record in others}) == len(others)
    assert make_variant_key(RECORD.model_copy(update={"message": "x"})) == make_variant_key(RECORD)


@pytest.mark.parametrize(
    ("status", "fields", "stored"),
    [
        (Status.PASS, {}, True),
        (Status.FAIL, {}, True),
        (Status.ERROR, {"stage": Stage.CAPTURE}, True),
        (Status.ERROR, {"stage": Stage.CONVERT}, True),
        (Status.ERROR, {"stage": Stage.SOURCE}, False),
        (Status.ERROR, {"stage": None}, False),
        (Status.ERROR, {"stage": Stage.CONVERT, "message": "MemoryError"}, False),
        (Status.ERROR, {"stage": Stage.CONVERT, "detail": "x\nstd::bad_alloc"}, False),
        (Status.INCONCLUSIVE, {}, False),
        (Status.CRASH, {}, False),
        (Status.TIMEOUT, {}, False),
        (Status.KILLED, {}, False),
        (Status.UNAVAILABLE, {}, False),
        (Status.SKIP, {}, False),
        (Status.XFAIL, {}, False),
        (Status.XPASS, {}, False),
        (Status.PASS, {"flaky": "was fail in an earlier run"}, False),
        (Status.PASS, {"sources": (Source(file="net.py", state=""),)}, False),
        (Status.PASS, {"fingerprint": {}}, False),
    ],
)
def test_only_deterministic_results_are_storable(
    status: Status, fields: dict[str, Any], stored: bool
) -> None:
    record = make_record("tiny/18/cpu", status, **{"fingerprint": PARTS, **fields})
    assert is_storable(record) is stored
    if not stored:
        with pytest.raises(DamagedEntry):
            parse_entry(serialize_entry(StoreEntry(record=record, files=FILES)))


def test_files_that_belong_to_a_cell() -> None:
    names = ("18.onnx", "17.onnx", "logs/18.log", "logs/17.log", "logs/18/a b.md", "logs/17/a.md")
    assert [name for name in names if belongs_to(name, RECORD)] == [
        "18.onnx",
        "logs/18.log",
        "logs/18/a b.md",
    ]
    shared = (
        "reference.json",
        "contract.json",
        "test_data_set_3/float64_0.pb",
        "logs/model.log",
        "weights/weight_2.pb",
        f"weights-{'b' * 16}.data",
    )
    assert all(belongs_to(name, RECORD) for name in shared)
    others = (
        "at_work.json",
        "job.json",
        "records/18.cpu.json",
        f"weights-{'c' * 16}.data",
        ".scratch/18.onnx",
    )
    assert not any(belongs_to(name, RECORD) for name in others)


def test_keys_have_a_fixed_length(tmp_path: Path) -> None:
    assert len(make_lookup_key(RECORD.cell, PARTS)) == 64
    assert len(make_variant_key(RECORD)) == 32
