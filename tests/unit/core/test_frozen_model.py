"""A checksummed value is read as it was written; reading fails if a byte changed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.records.record import Record, RunRecord, Status
from tests.unit.factory import make_record

RECORD = make_record("net/17/cpu", Status.FAIL, message="off by 1e-3 in Ünïcödé \u2028")
WRITTEN = RECORD.to_json().encode()


def test_a_written_value_is_read_back() -> None:
    assert Record.read(WRITTEN) == RECORD
    assert Record.read(RECORD.to_json(indent=None).encode()) == RECORD


def test_the_file_is_valid_json() -> None:
    text = json.loads(WRITTEN)
    assert len(text.pop("sha256")) == 64
    assert text == json.loads(RECORD.model_dump_json())


def test_a_nested_value_has_no_digest() -> None:
    run = RunRecord(tools={}, records=(RECORD,))
    assert RunRecord.read(run.to_json().encode()) == run
    assert "sha256" not in json.loads(run.to_json())["records"][0]


@given(st.integers(0, len(WRITTEN) - 1), st.integers(1, 255))
def test_a_changed_byte_is_detected(position: int, change: int) -> None:
    data = bytearray(WRITTEN)
    data[position] ^= change
    with pytest.raises(ValueError, match="changed since it was written"):
        Record.read(bytes(data))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        WRITTEN[:-1],
        WRITTEN + b" ",
        WRITTEN.replace(b'"fail"', b'"pass"'),
        RECORD.model_dump_json(indent=2).encode(),
        b"\xff" * 200,
    ],
)
def test_other_data_is_rejected(data: bytes) -> None:
    with pytest.raises(ValueError, match="changed since it was written"):
        Record.read(data)
