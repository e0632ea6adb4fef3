"""Dynamic axes and their example sizes."""

from __future__ import annotations

from math import isqrt
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.manifest import ModelSpec
from exporter.manifest.rules.axes import resolve_axes
from exporter.manifest.rules.layers import Layer, ProjectFacts, merge_layers
from exporter.manifest.rules.signature import resolve_shapes
from exporter.manifest.schema.entry import Settings
from exporter.manifest.syntax.toml_file import ProblemCollector, TomlFile
from tests.unit.manifest.projects import load_model

_AXIS = st.fixed_dictionaries(
    {},
    optional={
        "min": st.integers(1, 40),
        "max": st.integers(1, 40),
        "multiple_of": st.integers(1, 9),
        "example": st.integers(0, 40),
    },
)


def _model(tmp_path: Path, shape: str, keys: str = "", output: str = '["batch"]') -> ModelSpec:
    entry = (
        'source = "models/vision.py:AlexNet"\nopsets = 17\n'
        f'inputs = [{{ name = "x", shape = {shape} }}]\n'
        f'outputs = [{{ name = "y", shape = {output} }}]\n'
    )
    return load_model(tmp_path, keys, entry)


def _examples(model: ModelSpec) -> dict[str, int | None]:
    return {axis.name: axis.example for axis in model.axes}


BY_32 = "".join(f"axes.{name} = {{ multiple_of = 32, max = 96 }}\n" for name in "hwd")


@pytest.mark.parametrize(
    ("shape", "keys", "output", "examples"),
    [
        ('["b", "a", 7, "b", "c"]', "", '["z", "a"]', {"b": 3, "a": 5, "c": 7, "z": None}),
        # Explicit examples are not chosen for other axes.
        (
            '["a", "b", "c"]',
            "axes.c.example = 3\naxes.a.example = 5\n",
            "[]",
            {"a": 5, "b": 7, "c": 3},
        ),
        # A capture may fix the size of the last example.
        ('["h", "w", "d"]', BY_32, "[]", {"h": 96, "w": 64, "d": 32}),
        *(
            ('["batch"]', f"axes.batch = {{ {limits} }}\n", '["batch"]', {"batch": example})
            for limits, example in (
                ("min = 10", 11),
                ("multiple_of = 8", 24),
                ("multiple_of = 8, max = 16", 16),
                ("multiple_of = 8, max = 8", 8),
                ("max = 2", 2),
                ("min = 4, max = 4", 4),
                ("min = 24, max = 28", 24),
                ("min = 2000000000", 2000000011),
                ("multiple_of = 1000003", 3000009),
            )
        ),
    ],
)
def test_examples_are_promised_primes(
    tmp_path: Path, shape: str, keys: str, output: str, examples: dict[str, int | None]
) -> None:
    assert _examples(_model(tmp_path, shape, keys, output)) == examples


def test_the_size_of_a_named_dimension_is_its_example(tmp_path: Path) -> None:
    model = _model(tmp_path, "[4, 3]", 'dynamic_axes.x = { 0 = "batch" }\n')
    assert model.inputs[0].shape == ("batch", 3)
    assert _examples(model) == {"batch": 4}


def test_generated_names_count_positions_in_the_list_as_torch_onnx_does(tmp_path: Path) -> None:
    model = _model(tmp_path, "[4, 3, 8]", "dynamic_axes.x = [2, 0]\n", output="[4]")
    assert model.inputs[0].shape == ("x_dynamic_axes_2", 3, "x_dynamic_axes_1")
    assert model.outputs[0].shape == (4,)
    # A name in the shape precedes a generated name.
    model = _model(tmp_path, '["batch", 3]', "dynamic_axes.x = [0, 1]\n")
    assert model.inputs[0].shape == ("batch", "x_dynamic_axes_2")


def test_limits_of_axes_that_only_outputs_have(tmp_path: Path) -> None:
    model = _model(tmp_path, '["batch"]', "axes.rows.max = 8\n", output='["rows"]')
    assert model.find_axis("rows").max == 8
    assert model.find_axis("rows").example is None


@given(st.lists(_AXIS, min_size=1, max_size=4))
def test_examples_are_promised_distinct_and_never_0_or_1(contracts: list[dict[str, int]]) -> None:
    names = [f"a{index}" for index in range(len(contracts))]
    settings = Settings.model_validate(
        {
            "inputs": [{"name": "x", "shape": names}],
            "outputs": [{"name": "y", "shape": names}],
            "axes": dict(zip(names, contracts, strict=True)),
        }
    )
    report = ProblemCollector()
    layer = Layer(file=TomlFile(name="f", table={}, lines={(): 1}), path=(), table=settings)
    model = merge_layers("net", [layer], report, ProjectFacts(Path()))
    axes = resolve_axes(model, resolve_shapes(model))
    assert [axis.name for axis in axes] == names
    if report:
        return
    chosen = [
        axis.example for axis, table in zip(axes, contracts, strict=True) if "example" not in table
    ]
    explicit = {contract["example"] for contract in contracts if "example" in contract}
    assert all(axis.example is not None and axis.example >= 2 for axis in axes)
    assert all(axis.allows(axis.example or 0) for axis in axes)
    assert len(set(chosen)) == len(chosen)
    assert explicit.isdisjoint(chosen)


def test_chosen_examples_of_unlimited_axes_are_primes(tmp_path: Path) -> None:
    names = ", ".join(f'"a{index}"' for index in range(30))
    sizes = [axis.example or 0 for axis in _model(tmp_path, f"[{names}]", output="[]").axes]
    assert len(set(sizes)) == 30
    assert all(size % factor for size in sizes for factor in range(2, isqrt(size) + 1))
