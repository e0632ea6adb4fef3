"""A mutant with a condition is wrong if the condition is true, and right otherwise."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, parser

from benchmarks.audit.mutators.conditions import (
    change_at_equal_axes,
    change_at_masks,
    change_at_multiples,
    change_at_one_size,
    change_at_one_value,
    change_at_range_end,
    change_one_column,
    change_one_row,
)
from benchmarks.audit.mutators.draft import Array, Draft
from benchmarks.audit.mutators.mutants import Mutator
from benchmarks.tests.audit.models import small

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
rows (float[batch, seq, 4] x, int64[batch] ids) => (float[batch, seq, 4] y) { y = Exp (x) }
"""


def mutate(mutator: Mutator, folder: Path, seed: int) -> tuple[Draft, str]:
    draft = Draft(ModelProto(), folder, Random(seed), {})
    draft.model.CopyFrom(parser.parse_model(TEXT))
    return draft, mutator(draft)


def find_wrong(model: ModelProto, batch: int, seq: int, ids: int) -> list[int]:
    """Return the last indices at which the output is wrong."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    x = np.random.default_rng(0).standard_normal((batch, seq, 4)).astype(np.float32)
    (y,) = session.run(None, {"x": x, "ids": np.full(batch, ids)})
    wrong = ~np.isclose(y, np.exp(x), rtol=1e-5)
    return [int(index) for index in np.flatnonzero(wrong.any((0, 1)))]


@pytest.mark.parametrize("seed", range(4))
def test_the_output_is_wrong_only_under_the_condition(tmp_path: Path, seed: int) -> None:
    every = [0, 1, 2, 3]
    draft, line = mutate(change_at_one_size, tmp_path, seed)
    ((name, size),) = draft.sizes[0].items()
    assert line.endswith(f"if {name} is {size}")
    sizes = {"batch": 11, "seq": 11}
    assert find_wrong(draft.model, **sizes, ids=9) == []
    assert find_wrong(draft.model, **{**sizes, name: size}, ids=9) == every

    draft, line = mutate(change_at_multiples, tmp_path, seed)
    ((name, size),) = draft.sizes[0].items()
    assert line.endswith(f"if {name} is a multiple of {size}")
    assert find_wrong(draft.model, **sizes, ids=9) == []
    assert find_wrong(draft.model, **{**sizes, name: 3 * size}, ids=9) == every

    draft, line = mutate(change_at_equal_axes, tmp_path, seed)
    assert find_wrong(draft.model, batch=3, seq=5, ids=9) == []
    assert find_wrong(draft.model, batch=5, seq=5, ids=9) == every
    assert {"batch": 2, "seq": 2} in draft.sizes

    draft, line = mutate(change_at_one_value, tmp_path, seed)
    assert line.endswith(f"if ids contains {draft.rows[0]}")
    assert find_wrong(draft.model, **sizes, ids=9) == []
    assert find_wrong(draft.model, **sizes, ids=draft.rows[0]) == every

    draft, line = mutate(change_one_column, tmp_path, seed)
    assert find_wrong(draft.model, **sizes, ids=9) == [int(line[-1])]


MASKED = """<ir_version: 8, opset_import: ["" : 17]>
rows (float[batch, 4] x, bool[batch, 4] mask) => (float[batch, 4] y) { y = Exp (x) }
"""


def find_wrong_rows(model: ModelProto, x: Array, mask: Array) -> list[int]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (y,) = session.run(None, {"x": x.astype(np.float32), "mask": mask})
    return [int(row) for row in np.flatnonzero(~np.isclose(y, np.exp(x), rtol=1e-4).all(1))]


def mutate_masked(mutator: Mutator, folder: Path, seed: int) -> tuple[Draft, str]:
    draft = Draft(ModelProto(), folder, Random(seed), {})
    draft.model.CopyFrom(parser.parse_model(MASKED))
    return draft, mutator(draft)


@pytest.mark.parametrize("seed", range(6))
def test_rows_masks_and_ranges_have_conditions(tmp_path: Path, seed: int) -> None:
    x = np.random.default_rng(0).uniform(-2, 2, (4, 4)).round(2) + 0.001
    full = np.ones((4, 4), bool)
    part = full.copy()
    part[2, :2] = False
    every = [0, 1, 2, 3]

    draft, line = mutate_masked(change_one_row, tmp_path, seed)
    assert find_wrong_rows(draft.model, x, part) == [int(line[-1])]

    draft, line = mutate_masked(change_at_masks, tmp_path, seed)
    is_full = line.endswith("if mask has no 0")
    assert is_full or line.endswith("if mask has a row that begins with 0")
    assert find_wrong_rows(draft.model, x, full) == (every if is_full else [])
    assert find_wrong_rows(draft.model, x, part) == ([] if is_full else every)

    draft, line = mutate_masked(change_at_range_end, tmp_path, seed)
    assert find_wrong_rows(draft.model, x, full) == []
    for number in draft.numbers:
        is_zero = line.endswith("if x contains 0")
        expected = [] if is_zero and number else every
        assert find_wrong_rows(draft.model, np.full((4, 4), number), full) == expected


def test_a_file_without_a_place_is_not_changed(tmp_path: Path) -> None:
    draft = Draft(ModelProto(), tmp_path, Random(0), {})
    draft.model.CopyFrom(small())
    assert change_at_equal_axes(draft) == change_at_one_value(draft) == ""
    assert change_at_masks(draft) == ""
    assert draft.model == small()
