"""Further inputs: allowed by the contract, reproducible, and aimed at a changed row."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from benchmarks.audit.counterexamples import NoSuchInput, Trial, draw_inputs, plan_trials
from exporter.manifest import Axis, Fill, Input, ModelSpec
from tests.unit.factory import make_spec


def tokens(*, longest: int | None = None) -> ModelSpec:
    return make_spec(
        inputs=(
            Input(
                name="tokens",
                shape=("batch", "sequence"),
                dtype="int64",
                at="args[0]",
                fill=Fill(kind="randint", low=0, high=100),
            ),
        ),
        axes=(
            Axis(name="batch", example=3, multiple_of=3, min=3),
            Axis(name="sequence", example=5, max=longest),
        ),
    )


def test_sizes_and_values_are_those_that_the_contract_allows() -> None:
    spec = tokens(longest=6)
    for trial in plan_trials(spec, 0, rows=()):
        assert all(axis.allows(trial.sizes[axis.name]) for axis in spec.axes), trial
        values = draw_inputs(spec, trial, [], 0)["tokens"]
        assert values.shape == (trial.sizes["batch"], trial.sizes["sequence"])
        assert values.dtype == np.int64
        assert values.min() >= 0
        assert values.max() < 100


def test_the_same_seed_draws_the_same_values_and_another_seed_others() -> None:
    spec, trial = tokens(), Trial(name="other values", sizes={"batch": 3, "sequence": 5})
    first = draw_inputs(spec, trial, [], 1)["tokens"]
    assert np.array_equal(first, draw_inputs(spec, trial, [], 1)["tokens"])
    assert not np.array_equal(first, draw_inputs(spec, trial, [], 2)["tokens"])


def test_a_changed_row_has_trials_by_index_and_by_position() -> None:
    spec = tokens(longest=64)
    aimed = list(plan_trials(spec, 0, rows=(40,)))
    indexed = next(trial for trial in aimed if trial.index == 40)
    assert (draw_inputs(spec, indexed, [], 0)["tokens"] == 40).all()
    assert any(trial.sizes["sequence"] == 41 for trial in aimed)


def test_a_row_out_of_range_has_no_trial() -> None:
    spec = tokens(longest=64)
    aimed = list(plan_trials(spec, 0, rows=(5000,)))
    assert all(trial.sizes["sequence"] <= 64 for trial in aimed)
    with pytest.raises(NoSuchInput):
        draw_inputs(spec, next(trial for trial in aimed if trial.index == 5000), [], 0)


def test_a_python_fill_uses_a_sample_of_the_same_size() -> None:
    spec = make_spec(
        inputs=(
            Input(
                name="x",
                shape=("batch", 2),
                at="args[0]",
                fill=Fill(kind="python", python="a.py:b"),
            ),
        )
    )
    stored = [{"x": np.ones((3, 2), np.float32)}]
    fits = Trial(name="as declared", sizes={"batch": 3})
    assert draw_inputs(spec, fits, stored, 0)["x"] is stored[0]["x"]
    with pytest.raises(NoSuchInput):
        draw_inputs(spec, Trial(name="larger", sizes={"batch": 4}), stored, 0)


def test_a_number_has_a_trial_if_a_fill_contains_it() -> None:
    def plan(fill: Fill) -> list[float]:
        item = Input(name="x", shape=("batch", 4), at="args[0]", fill=fill)
        spec = make_spec(inputs=(item,), axes=(Axis(name="batch", example=3),))
        values = []
        for trial in plan_trials(spec, 0, (), numbers=(0.0, 6.0)):
            if trial.number is not None:
                with contextlib.suppress(NoSuchInput):
                    values += np.unique(draw_inputs(spec, trial, [], 0)["x"]).tolist()
        return values

    assert plan(Fill(kind="normal")) == [0.0, 6.0]
    assert plan(Fill(kind="uniform", low=0.0, high=1.0)) == [0.0]
    assert plan(Fill(kind="ones")) == []
