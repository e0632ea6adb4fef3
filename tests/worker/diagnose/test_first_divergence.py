"""The bisection: on graphs whose wrong value is known, with the values that it looks at counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from exporter.checks.comparison.compare_arrays import Array
from exporter.worker.diagnose.first_divergence import DivergenceSearch
from exporter.worker.diagnose.runtime_values import BATCH_SIZE, measure_error
from exporter.worker.diagnose.value_graph import FileGraph


class Made:
    """Ones, but for what is wrong: a value after it is wrong too."""

    name = "made"

    def __init__(self, wrong: set[str], unknown: set[str] = frozenset()) -> None:
        self._wrong = wrong
        self._unknown = unknown
        self.asked: list[int] = []

    def knows(self, value: str) -> bool:
        return value not in self._unknown

    def of(self, names: Sequence[str]) -> Mapping[str, Array | None]:
        self.asked.append(len(names))
        return {name: np.full(3, 2.0 if name in self._wrong else 1.0) for name in names}


def graph_of(nodes: list[tuple[list[str], str]], folder: Path) -> FileGraph:
    """A graph of `Sum` nodes: inputs and output of each."""
    made = [helper.make_node("Sum", inputs, [output], f"n_{output}") for inputs, output in nodes]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3])
    y = helper.make_tensor_value_info(nodes[-1][1], onnx.TensorProto.FLOAT, [3])
    path = folder / "graph.onnx"
    onnx.save(helper.make_model(helper.make_graph(made, "g", [x], [y])), path)
    return FileGraph(path)


def chain(length: int) -> list[tuple[list[str], str]]:
    return [([f"v{i - 1}" if i else "x"], f"v{i}") for i in range(length)]


@pytest.mark.parametrize("first", [0, 1, 499, 998, 999])
def test_a_chain_is_searched_in_few_questions(first: int, tmp_path: Path) -> None:
    graph = graph_of(chain(1000), tmp_path)
    found = Made({f"v{i}" for i in range(first, 1000)})
    divergence = DivergenceSearch(graph, found, Made(set())).first_from("v999")
    assert divergence is not None
    assert (divergence.node, divergence.output) == (f"n_v{first}", f"v{first}")
    assert (divergence.error_before, divergence.error_after) == (0.0, 1.0)
    assert divergence.suspects == 1
    assert len(found.asked) <= 6
    assert max(found.asked) <= BATCH_SIZE


def test_the_wrong_one_of_two_branches_is_found(tmp_path: Path) -> None:
    left = [(["x"], "a0"), (["a0"], "a1"), (["a1"], "a2")]
    right = [(["x"], "b0"), (["b0"], "b1"), (["b1"], "b2")]
    graph = graph_of([*left, *right, (["a2", "b2"], "y")], tmp_path)
    for wrong, first in ({"a1", "a2", "y"}, "a1"), ({"b2", "y"}, "b2"), ({"y"}, "y"):
        divergence = DivergenceSearch(graph, Made(set(wrong)), Made(set())).first_from("y")
        assert divergence is not None
        assert divergence.output == first


def test_values_without_a_twin_widen_the_circle(tmp_path: Path) -> None:
    graph = graph_of(chain(10), tmp_path)
    trusted = Made(set(), unknown={"v4", "v5"})
    divergence = DivergenceSearch(graph, Made({f"v{i}" for i in range(4, 10)}), trusted).first_from(
        "v9"
    )
    assert divergence is not None
    # v4, v5 or v6: the first that can be compared is v6.
    assert (divergence.output, divergence.suspects) == ("v6", 3)


def test_a_difference_that_is_gone_when_looked_at_names_nothing(tmp_path: Path) -> None:
    graph = graph_of(chain(10), tmp_path)
    assert DivergenceSearch(graph, Made(set()), Made(set())).first_from("v9") is None


def test_a_part_of_a_file_computes_only_what_is_asked_for(tmp_path: Path) -> None:
    graph = graph_of([(["x"], "a"), (["a"], "b"), (["x"], "c"), (["b", "c"], "y")], tmp_path)
    part = graph.part(["b"])
    assert [node.output[0] for node in part.graph.node] == ["a", "b"]
    assert [output.name for output in part.graph.output] == ["b"]


@pytest.mark.parametrize(
    ("found", "wanted", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.5], [1.0, 2.0], 0.25),
        ([1.0, np.nan], [1.0, np.nan], 0.0),
        ([1.0, np.nan], [1.0, 2.0], np.inf),
        ([1.0, np.inf], [1.0, -np.inf], np.inf),
        ([1.0], [1.0, 2.0], np.inf),
        ([1, 2], [1, 3], np.inf),
        ([1, 2], [1, 2], 0.0),
        ([], [], 0.0),
    ],
)
def test_the_error_is_a_share_of_the_scale(
    found: list[float], wanted: list[float], error: float
) -> None:
    assert measure_error(np.array(found), np.array(wanted)) == error
