"""Reading and changing stored numbers, inside the file and in external data."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, numpy_helper

from benchmarks.audit.mutators.draft import FLOATS, Draft, Patch, apply_patches
from benchmarks.tests.audit.models import small, with_data_outside


def tensor(draft: Draft, name: str) -> TensorProto:
    return next(item for item in draft.tensors(FLOATS) if item.name == name)


def weight(model: ModelProto) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return numpy_helper.to_array(next(t for t in model.graph.initializer if t.name == "w"))


def test_an_element_inside_the_file_is_changed_and_no_other(tmp_path: Path) -> None:
    draft = Draft(small(), tmp_path, Random(0), {})
    draft.write(tensor(draft, "w"), 5, np.array([7], np.float32))
    old, new = weight(small()), weight(draft.model)
    assert new.flat[5] == 7
    assert int((old != new).sum()) == 1
    assert draft.patches == []


def test_an_external_element_is_changed_inside_the_block(tmp_path: Path) -> None:
    model = with_data_outside(tmp_path)
    before = (tmp_path / "weights.data").read_bytes()
    draft = Draft(model, tmp_path, Random(0), {})
    chosen = tensor(draft, "w")
    assert draft.read(chosen, 5, 1) == weight(small()).flat[5]
    draft.write(chosen, 5, np.array([7], np.float32))
    with apply_patches(draft.patches, tmp_path):
        changed = weight(onnx.load(tmp_path / "17.onnx"))
        assert changed.flat[5] == 7
        assert int((changed != weight(small())).sum()) == 1
    assert (tmp_path / "weights.data").read_bytes() == before


def test_overlapping_patches_are_undone_in_the_right_order(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"abcdef")
    with apply_patches([Patch("data", 0, b"XXX"), Patch("data", 1, b"Y")], tmp_path):
        assert path.read_bytes() == b"XYXdef"
    assert path.read_bytes() == b"abcdef"


def test_files_are_restored_after_an_exception(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"abcdef")
    with pytest.raises(RuntimeError), apply_patches([Patch("data", 2, b"ZZ")], tmp_path):
        raise RuntimeError
    assert path.read_bytes() == b"abcdef"
