"""The search in graphs with a known wrong value, and shapes that the schema excludes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, parser

from exporter.manifest import Device
from exporter.runtimes import Session, open_session
from exporter.runtimes.session import Array
from exporter.worker.diagnosis.divergence import DivergenceSearch
from exporter.worker.diagnosis.runtime_values import (
    BATCH_SIZE,
    FileGraph,
    find_violation,
    find_violation_in_file,
    measure_error,
)


class Values:
    """Ones, and twos for wrong values."""

    name = "fake"

    def __init__(self, wrong: set[str], unknown: set[str] = frozenset()) -> None:
        self._wrong = wrong
        self._unknown = unknown
        self.requests: list[int] = []

    def has_value(self, value: str) -> bool:
        return value not in self._unknown

    def compute(self, names: Sequence[str]) -> Mapping[str, Array | None]:
        self.requests.append(len(names))
        return {name: np.full(3, 2.0 if name in self._wrong else 1.0) for name in names}


def graph_of(nodes: list[tuple[list[str], str]], folder: Path) -> FileGraph:
    """Return a graph of `Sum` nodes, given their inputs and outputs."""
    items = [helper.make_node("Sum", inputs, [output], f"n_{output}") for inputs, output in nodes]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3])
    y = helper.make_tensor_value_info(nodes[-1][1], onnx.TensorProto.FLOAT, [3])
    path = folder / "graph.onnx"
    onnx.save(helper.make_model(helper.make_graph(items, "g", [x], [y])), path)
    return FileGraph(path)


def chain(length: int) -> list[tuple[list[str], str]]:
    return [([f"v{i - 1}" if i else "x"], f"v{i}") for i in range(length)]


@pytest.mark.parametrize("first", [0, 1, 499, 998, 999])
def test_chain_is_searched_with_few_requests(first: int, tmp_path: Path) -> None:
    graph = graph_of(chain(1000), tmp_path)
    values = Values({f"v{i}" for i in range(first, 1000)})
    divergence = DivergenceSearch(graph, values, Values(set())).find_first("v999")
    assert divergence is not None
    assert (divergence.node, divergence.output) == (f"n_v{first}", f"v{first}")
    assert (divergence.error_before, divergence.error_after) == (0.0, 1.0)
    assert divergence.suspects == 1
    assert len(values.requests) <= 6
    assert max(values.requests) <= BATCH_SIZE


def test_wrong_branch_is_found(tmp_path: Path) -> None:
    left = [(["x"], "a0"), (["a0"], "a1"), (["a1"], "a2")]
    right = [(["x"], "b0"), (["b0"], "b1"), (["b1"], "b2")]
    graph = graph_of([*left, *right, (["a2", "b2"], "y")], tmp_path)
    for wrong, first in ({"a1", "a2", "y"}, "a1"), ({"b2", "y"}, "b2"), ({"y"}, "y"):
        divergence = DivergenceSearch(graph, Values(set(wrong)), Values(set())).find_first("y")
        assert divergence is not None
        assert divergence.output == first


def test_unknown_values_increase_the_suspects(tmp_path: Path) -> None:
    graph = graph_of(chain(10), tmp_path)
    trusted = Values(set(), unknown={"v4", "v5"})
    divergence = DivergenceSearch(
        graph, Values({f"v{i}" for i in range(4, 10)}), trusted
    ).find_first("v9")
    assert divergence is not None
    # v4, v5 or v6: the first that can be compared is v6.
    assert (divergence.output, divergence.suspects) == ("v6", 3)


def test_no_difference_gives_no_divergence(tmp_path: Path) -> None:
    graph = graph_of(chain(10), tmp_path)
    assert DivergenceSearch(graph, Values(set()), Values(set())).find_first("v9") is None


def test_part_computes_only_requested_values(tmp_path: Path) -> None:
    graph = graph_of([(["x"], "a"), (["a"], "b"), (["x"], "c"), (["b", "c"], "y")], tmp_path)
    part = graph.extract_part(["b"])
    assert [node.output[0] for node in part.graph.node] == ["a", "b"]
    assert [output.name for output in part.graph.output] == ["b"]


@pytest.mark.parametrize(
    ("actual", "expected", "error"),
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
def test_error_is_a_share_of_the_scale(
    actual: list[float], expected: list[float], error: float
) -> None:
    assert measure_error(np.array(actual), np.array(expected)) == error


OPSET = 23
REFERENCE = Device(name="reference", runtime="reference")
ROTARY = """<ir_version: 10, opset_import: ["" : 23]>
agraph (float[b, 2, 5, 8] x, float[c, 5, 4] cache) => (float[b, 2, 5, 8] y) {
  cos = Cos(cache)
  sin = Sin(cache)
  y = RotaryEmbedding(x, cos, sin)
}"""


def open_reference(path: Path) -> Session:
    return open_session(path, REFERENCE)


@pytest.mark.parametrize(
    ("operator", "shapes", "problem"),
    [
        (
            "RotaryEmbedding",
            [(3, 2, 5, 8), (1, 5, 4), (1, 5, 4)],
            (
                "RotaryEmbedding: ONNX documents `cos_cache` as (batch_size, sequence_length, "
                "head_size / 2), and batch_size is 3 in `X`; the file has [1, 5, 4]"
            ),
        ),
        ("RotaryEmbedding", [(3, 2, 5, 8), (3, 5, 4), (3, 5, 4)], ""),
        ("RotaryEmbedding", [(3, 5, 16), (3, 5, 4), (3, 5, 4)], ""),
        ("RotaryEmbedding", [(3, 2, 5, 8), (64, 4), (64, 4), (3, 5)], ""),
        ("Attention", [(3, 4, 5, 8), (3, 2, 7, 8), (3, 2, 7, 6), (5, 7)], ""),
        (
            "Attention",
            [(3, 4, 5, 8), (1, 4, 7, 8), (3, 4, 7, 8)],
            (
                "Attention: ONNX documents `K` as (batch_size, kv_num_heads, kv_sequence_length, "
                "head_size), and batch_size is 3 in `Q`; the file has [1, 4, 7, 8]"
            ),
        ),
        ("Gemm", [(3, 4), (4, 5), (5,)], ""),
        ("Gemm", [(4, 3), (5, 4), (3, 5)], ""),
        ("LSTM", [(7, 3, 4), (1, 20, 4), (1, 20, 5), (1, 40)], ""),
        ("Add", [(3, 1), (1, 4)], ""),
        ("Unknown", [(3, 1)], ""),
    ],
)
def test_documented_shapes_are_compared(
    operator: str, shapes: list[tuple[int, ...]], problem: str
) -> None:
    names = [f"v{index}" for index in range(len(shapes))]
    node = helper.make_node(operator, names, ["y"])
    assert find_violation(node, OPSET, dict(zip(names, shapes, strict=True))) == problem


def test_an_absent_input_and_a_list_have_no_shape() -> None:
    node = helper.make_node("RotaryEmbedding", ["x", "c", "s", ""], ["y"])
    assert find_violation(node, OPSET, {"x": (3, 2, 5, 8), "c": None}) == ""


@pytest.mark.parametrize(("batch", "is_violated"), [(1, True), (3, False)])
def test_the_shapes_of_a_file_are_computed(
    batch: int, *, is_violated: bool, tmp_path: Path
) -> None:
    path = tmp_path / "rotary.onnx"
    onnx.save(parser.parse_model(ROTARY), path)
    inputs = {
        "x": np.zeros((3, 2, 5, 8), np.float32),
        "cache": np.zeros((batch, 5, 4), np.float32),
    }
    problem = find_violation_in_file(path, "y", OPSET, inputs, open_reference)
    assert bool(problem) is is_violated
    assert find_violation_in_file(path, "cos", OPSET, inputs, open_reference) == ""
