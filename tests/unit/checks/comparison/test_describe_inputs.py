"""The inputs of a failing sample are described in words."""

from __future__ import annotations

import numpy as np
import pytest

from exporter.checks.comparison.compare_samples import describe_inputs
from exporter.runtimes.session import Array


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.zeros((2, 4), np.int64), "mask: all 0"),
        (np.ones(3, bool), "mask: all True"),
        (np.array(4), "mask: 4"),
        (np.array([[1, 0, 0, 1], [1, 0, 1, 1]]), "mask: 3 of 8 elements are 0"),
        (
            np.array([[0, 0], [1, 0]]),
            "mask: 3 of 4 elements are 0, 1 of 2 rows have no other value",
        ),
        (np.array([True, False]), "mask: 1 of 2 elements are False"),
        (np.array([5, 7]), ""),
        (np.zeros(3, np.float32), ""),
        (np.zeros((0, 3), np.int64), ""),
    ],
)
def test_the_changed_input_is_described(array: Array, text: str) -> None:
    inputs = {"mask": array, "other": np.array([0, 1])}
    assert describe_inputs(inputs, "mask") == text


def test_other_samples_describe_all_masks() -> None:
    mask = np.array([0, 1, 1])
    inputs = {"a": mask, "n": np.array(4), "full": np.ones(3, bool), "b": mask.astype(bool)}
    text = "a: 1 of 3 elements are 0, b: 1 of 3 elements are False"
    assert describe_inputs(inputs) == text


def test_an_omitted_input_has_no_description() -> None:
    assert describe_inputs({}, "mask") == ""
