"""Axes with a size that other axes determine: rules, examples, limits and problems."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.errors import ExporterError
from exporter.manifest import ModelSpec
from exporter.manifest.resolved.call import SizeRule, complete_sizes, find_bases
from tests.unit.manifest.projects import load, load_model

_CACHE = (
    '{ name = "x", shape = ["batch", "seq"] }, { name = "past", shape = ["batch", "past"] }, '
    '{ name = "mask", shape = ["batch", "total"] }'
)


def _model(tmp_path: Path, keys: str, inputs: str = _CACHE, output: str = '["batch"]') -> ModelSpec:
    entry = (
        'source = "models/vision.py:AlexNet"\nopsets = 17\n'
        f'inputs = [{inputs}]\noutputs = [{{ name = "y", shape = {output} }}]\n'
    )
    return load_model(tmp_path, keys, entry)


@pytest.mark.parametrize(
    ("rule", "formula", "size"),
    [
        (SizeRule(kind="sum", operands=("n", "m", 1)), "n + m + 1", 15),
        (SizeRule(kind="difference", operands=("n", "m")), "n - m", 8),
        (SizeRule(kind="product", operands=("n", 4)), "n*4", 44),
        (SizeRule(kind="window", operands=("n",), stride=2, kernel=2), "n//2", 5),
        (SizeRule(kind="window", operands=("n",), stride=2), "(n - 1)//2 + 1", 6),
        (SizeRule(kind="window", operands=("n",), kernel=3), "n - 2", 9),
        (SizeRule(kind="window", operands=("n",), kernel=5), "n - 4", 7),
        (SizeRule(kind="window", operands=("n",), kernel=1, padding=2), "n + 4", 15),
        (
            SizeRule(kind="window", operands=("n",), stride=3, kernel=3, padding=1),
            "(n - 1)//3 + 1",
            4,
        ),
        (
            SizeRule(kind="window", operands=("n",), stride=2, kernel=3, padding=2),
            "(n + 1)//2 + 1",
            7,
        ),
    ],
)
def test_formula_and_size(rule: SizeRule, formula: str, size: int) -> None:
    sizes = {"n": 11, "m": 3}
    assert rule.formula == formula
    assert rule.compute(sizes) == size
    assert eval(formula, dict(sizes)) == size


def test_rules_of_rules_are_computed_in_any_order() -> None:
    rules = {
        "out": SizeRule(kind="window", operands=("total",), stride=2, kernel=2),
        "total": SizeRule(kind="sum", operands=("past", "seq")),
    }
    sizes = {"past": 3, "seq": 6, "total": 99}
    assert complete_sizes(sizes, rules) == {"past": 3, "seq": 6, "total": 9, "out": 4}
    assert complete_sizes({"past": 3}, rules) == {"past": 3}
    assert find_bases(("out", "seq"), rules) == ("past", "seq")


@pytest.mark.parametrize(
    ("keys", "examples"),
    [
        (
            'axes.total = { sum = ["past", "seq"] }\naxes.past.min = 0\n',
            {"batch": 7, "seq": 5, "past": 3, "total": 8},
        ),
        # Primes give no allowed sum, so small sizes are examples.
        (
            'axes.total = { sum = ["past", "seq"], max = 5 }\n',
            {"batch": 7, "seq": 2, "past": 3, "total": 5},
        ),
        (
            'axes.total = { sum = ["past", "seq"] }\naxes.seq.example = 4\n',
            {"batch": 5, "seq": 4, "past": 3, "total": 7},
        ),
        # The axes of the limit have an input each, the sum has none.
        (
            'axes.room = { sum = ["past", "seq"], max = 64 }\n',
            {"batch": 7, "seq": 5, "past": 3, "total": 11, "room": 8},
        ),
        # An axis of no shape determines the size of an input.
        (
            (
                "axes.blocks.min = 2\n"
                'axes.padded = { product = ["blocks", 8] }\naxes.total = { sum = ["padded", 1] }\n'
            ),
            {"batch": 5, "seq": 7, "past": 11, "total": 25, "padded": 24, "blocks": 3},
        ),
    ],
)
def test_examples_fit_each_other(tmp_path: Path, keys: str, examples: dict[str, int]) -> None:
    assert {axis.name: axis.example for axis in _model(tmp_path, keys).axes} == examples


def test_sizes_of_examples_differ(tmp_path: Path) -> None:
    # With a length of 7, the output would be as long as a batch of 3.
    keys = 'axes.out = { of = "seq", stride = 2 }\naxes.batch.example = 3\naxes.seq.min = 6\n'
    model = _model(tmp_path, keys, output='["batch", "out"]')
    sizes = [axis.example for axis in model.axes]
    assert len({*sizes}) == len(sizes)


def test_sizes_of_shapes_are_the_computed_ones(tmp_path: Path) -> None:
    inputs = '{ name = "x", shape = [3, 4] }, { name = "mask", shape = [3, 8] }'
    keys = 'dynamic_axes = { x = { 1 = "n" }, mask = { 1 = "m" } }\n'
    model = _model(tmp_path / "a", keys + 'axes.m = { product = ["n", 2] }\n', inputs, "[3]")
    assert {axis.name: axis.example for axis in model.axes} == {"n": 4, "m": 8}
    with pytest.raises(ExporterError, match='the axis "m" has the size 8 here, but n'):
        _model(tmp_path / "b", keys + 'axes.m = { product = ["n", 3] }\n', inputs, "[3]")


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (
            'axes.total = { sum = ["past", "sequ"] }\n',
            "axes.total.sum: no input has the axis \"sequ\"; did you mean 'seq'?",
        ),
        (
            'axes.total = { sum = ["past", "seq"] }\naxes.past = { sum = ["total", 1] }\n',
            (
                "axes.past.sum: is a cycle: past -> total -> past; compute one of these axes from "
                "other axes"
            ),
        ),
        (
            'axes.total = { sum = ["past", "seq"], product = ["past", 2] }\n',
            "axes.total.product: has `sum` and `product`; write only one of them",
        ),
        ('axes.total = { sum = ["past"] }\n', "axes.total.sum: needs two or more axes and sizes"),
        ("axes.total = { sum = [1, 2] }\n", "axes.total.sum: needs two or more axes and sizes"),
        ("axes.total = { stride = 2 }\n", "axes.total.stride: needs `of`, the axis that it"),
        (
            'axes.total = { of = "seq" }\n',
            'axes.total.of: needs `stride` or `kernel`: { of = "seq", stride = 2 }',
        ),
        (
            'axes.total = { sum = ["past", "seq"], example = 9 }\n',
            "axes.total.example: the size of this axis is past + seq; remove it",
        ),
        (
            'axes.total = { sum = ["past", "seq"] }\naxes.past.min = 0\naxes.seq.min = 0\n',
            (
                "axes.total: is 0 (past + seq) with past=0, seq=0, but takes sizes of at least 1; "
                'write a larger min for "past" or "seq", or axes.total.min = 0'
            ),
        ),
        (
            'axes.total = { of = "seq", kernel = 3 }\n',
            (
                "axes.total: is -1 (seq - 2) with seq=1, but takes sizes of at least 1; write a "
                'larger min for "seq"'
            ),
        ),
        (
            'axes.total = { sum = ["past", "seq"], max = 3 }\n',
            (
                "axes.total: is 6 (past + seq) with past=3, seq=3, but takes sizes of at least 1 "
                'and at most 3; change the example or the limits of "past" or "seq"'
            ),
        ),
        (
            'axes.total = { of = "seq", stride = 9 }\naxes.seq = { example = 9, min = 9 }\n',
            "axes.total: is 1 (seq//9) with seq=9, which the exporter would turn into a constant",
        ),
        (
            (
                'axes.total = { sum = ["past", "seq"], max = 20 }\n'
                'cases = [{ name = "c", axes = { seq = 40 } }]\n'
            ),
            'cases[0].axes: the axis "total" is 43 (past + seq) with past=3, seq=40, but',
        ),
        ('axes.room = { sum = ["past", "seq"] }\n', "axes.room: no input or output has this axis"),
        (
            'axes.total = { sum = ["past", "seq"] }\ncases = [{ name = "a", axes.total = 9 }]',
            "cases[0].axes.total: the size of this axis is past + seq; set past and seq",
        ),
        (
            (
                'axes.total = { sum = ["past", "seq"], max = 9 }\n'
                'cases = [{ name = "a", axes = { past = 9 } }]'
            ),
            'cases[0].axes: the axis "total" is 14 (past + seq) with past=9, seq=5, but takes',
        ),
    ],
)
def test_problems_of_rules(tmp_path: Path, keys: str, problem: str) -> None:
    with pytest.raises(ExporterError) as caught:
        _model(tmp_path, keys)
    assert problem in str(caught.value)


def test_difference_relates_the_sizes_of_two_inputs(tmp_path: Path) -> None:
    keys = 'axes.new = { difference = ["total", "past"] }\n'
    model = _model(tmp_path, keys, output='["batch", "new"]')
    sizes = {axis.name: axis.example for axis in model.axes if axis.example is not None}
    assert sizes["total"] - sizes["past"] == sizes["new"] > 1
    assert model.allows_sizes({"total": 4, "past": 3})
    assert not model.allows_sizes({"total": 3, "past": 3})


def test_a_case_may_make_no_axis_too_small(tmp_path: Path) -> None:
    keys = (
        'axes.new = { difference = ["total", "past"] }\n'
        'cases = [{ name = "a", axes = { total = 3, past = 3 } }]\n'
    )
    with pytest.raises(ExporterError) as caught:
        _model(tmp_path, keys, output='["batch", "new"]')
    problem = 'cases[0].axes: the axis "new" is 0 (total - past) with total=3, past=3, but takes'
    assert problem in str(caught.value)


def test_defaults_may_have_rules_of_other_models(tmp_path: Path) -> None:
    entry = (
        '[models.a]\nsource = "models/vision.py:AlexNet"\nopsets = 17\n'
        'inputs = [{ name = "x", shape = ["n"] }]\noutputs = [{ name = "y", shape = ["n"] }]\n'
    )
    text = '[defaults]\naxes.total = { sum = ["past", "seq"] }\naxes.past.min = 0\n'
    text += '[models.cache]\nsource = "models/vision.py:AlexNet"\nopsets = 17\n'
    text += f'inputs = [{_CACHE}]\noutputs = [{{ name = "y", shape = ["batch"] }}]\n'
    manifest = load(tmp_path, text + entry)
    assert [axis.name for axis in manifest.find_model("a").axes] == ["n"]
    assert manifest.find_model("cache").find_axis("total").example == 8
