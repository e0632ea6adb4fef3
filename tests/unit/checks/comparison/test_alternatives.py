"""Other right outputs: of whole runs, and of the nearest run for each row."""

from __future__ import annotations

import numpy as np

from exporter.checks.comparison.compare_samples import list_alternatives
from exporter.checks.sample_files import SampleData
from exporter.runtimes.session import Array, OnnxValue


def make_sample(*runs: Array, tied: Array | None = None) -> SampleData:
    return SampleData(
        inputs={},
        outputs=(runs[0],),
        float64_outputs=(runs[0].astype(np.float64),),
        tied_outputs=() if tied is None else (tied,),
        rounded_outputs=tuple((run,) for run in runs[1:]),
    )


def list_outputs(actual: OnnxValue, data: SampleData) -> list[object]:
    others = list(list_alternatives([actual], data))
    assert all(other.float64_outputs == (None,) for other in others)
    return [np.asarray(other.outputs[0]).tolist() for other in others]


def test_each_row_has_the_nearest_run() -> None:
    usual, first, second = (np.array(rows) for rows in ([0, 0, 0], [0, 1, 0], [0, 0, 2]))
    data = make_sample(usual, first, second)
    assert list_outputs(np.array([0, 1, 2]), data) == [[0, 1, 0], [0, 0, 2], [0, 1, 2]]
    # A value that no run has stays wrong.
    assert list_outputs(np.array([5, 1, 2]), data)[-1] == [0, 1, 2]


def test_without_runs_there_is_only_the_order_of_onnx() -> None:
    usual, tied = np.array([0.0, 1.0]), np.array([1.0, 0.0])
    assert list_outputs(tied, make_sample(usual)) == []
    assert list_outputs(tied, make_sample(usual, tied=tied)) == [[1.0, 0.0]]


def test_outputs_without_rows_have_no_combination() -> None:
    usual, other = np.array(0.0), np.array(1.0)
    assert list_outputs(np.array(1.0), make_sample(usual, other)) == [1.0]
    rows = make_sample(np.zeros(2), np.ones(2))
    assert list_outputs([np.zeros(2)], rows) == [[1.0, 1.0]]
    assert list_outputs(np.zeros(3), rows) == [[1.0, 1.0]]
