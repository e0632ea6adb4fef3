"""A checksummed value is read as it was written; reading fails if a byte changed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

import exporter.cluster.archives
import exporter.commands.publish.published_folder
import exporter.commands.recording.observation
import exporter.commands.verify.client
import exporter.manifest.loader
import exporter.pipeline.decisions
import exporter.store.store_entry  # noqa: F401 - their values
from exporter.core.frozen_model import FrozenModel
from exporter.manifest import ModelSpec
from exporter.records.record import CheckResult, Record, RunRecord, Status
from tests.unit.factory import make_record, make_spec

RECORD = make_record("net/17/cpu", Status.FAIL, message="off by 1e-3 in Ünïcödé \u2028")
WRITTEN = RECORD.to_json().encode()


def list_kinds(kind: type[FrozenModel]) -> set[type[FrozenModel]]:
    return {kind}.union(*map(list_kinds, kind.__subclasses__()))


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


def list_floats(model: type[BaseModel]) -> Iterator[str]:
    """Yield the names of the fields that accept a single float."""
    for name, field in model.model_fields.items():
        kinds = (field.annotation, *get_args(field.annotation))
        is_measured = any(getattr(each, "allow_inf_nan", False) for each in field.metadata)
        if float in kinds and not is_measured:
            yield name


#: All values that are stored or sent.
KINDS = sorted(list_kinds(FrozenModel), key=lambda kind: f"{kind.__module__}.{kind.__qualname__}")
FLOATS = [(kind, name) for kind in KINDS for name in list_floats(kind)]


@pytest.mark.parametrize(("kind", "name"), FLOATS)
def test_a_float_of_a_document_is_finite(kind: type[FrozenModel], name: str) -> None:
    for number in ("NaN", "Infinity", "-Infinity"):
        with pytest.raises(ValidationError) as caught:
            kind.model_validate_json(f'{{"{name}": {number}}}')
        assert [each for each in caught.value.errors() if each["loc"][:1] == (name,)], number


def test_the_floats_are_found_and_measured_ones_may_be_infinite() -> None:
    assert (ModelSpec, "timeout") in FLOATS
    result = CheckResult(check="parity", status=Status.FAIL, metrics={"max_abs": math.inf})
    assert CheckResult.read(result.to_json().encode()) == result


@pytest.mark.parametrize("seconds", ["0", "-1", "1e9", "NaN"])
def test_a_timeout_has_a_range(seconds: str) -> None:
    text = make_spec().to_json().replace('"timeout": 600.0', f'"timeout": {seconds}')
    assert text != make_spec().to_json()
    with pytest.raises(ValueError, match="timeout"):
        ModelSpec.read(text.encode())
