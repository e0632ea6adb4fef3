"""The additional input sets of `thorough`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from exporter.manifest import Axis, Fill, Input, ModelSpec, load_project
from exporter.worker.inputs.input_sets import choose_usual_sets
from exporter.worker.inputs.thorough_sets import choose_all_sets
from tests.unit.manifest.projects import make_project
from tests.unit.planning.test_plan import spec

ENTRY = """
source = "models/vision.py:AlexNet"
inputs = [{ name = "x", shape = ["batch", 3] }]
outputs = [{ name = "y", shape = ["batch", 3] }]
opsets = 18
"""


def contract(**axis: Any) -> ModelSpec:
    axes = (Axis.model_validate({"name": "n", "example": 3, **axis}),)
    inputs = (
        Input(name="x", shape=("n", 4), at="args[0]"),
        Input(name="u", shape=(4,), at="args[1]", fill=Fill(kind="uniform")),
        Input(name="turns", shape=(), at="args[2]", dtype="int64", fill=Fill(kind="value")),
    )
    return spec("net").model_copy(update={"axes": axes, "inputs": inputs, "thorough": True})


def additional_names(spec: ModelSpec, *lengths: int) -> list[str]:
    usual = [chosen.name for chosen in choose_usual_sets(spec)]
    names = [chosen.name for chosen in choose_all_sets(spec, lengths)]
    assert names[: len(usual)] == usual
    assert len(set(names)) == len(names)
    return names[len(usual) :]


def test_without_thorough_there_are_the_usual_sets_only() -> None:
    usual = contract().model_copy(update={"thorough": False})
    assert choose_all_sets(usual, (100,)) == choose_usual_sets(usual)


def test_more_sizes_and_values() -> None:
    sweep = {f"n={size}" for size in range(1, 65)}
    names = additional_names(contract(), 100)
    assert [name for name in names if name not in sweep] == [
        "n=100",
        "n=101",
        "0.001 x x",
        "0.1 x x",
        "10 x x",
        "1000 x x",
        "much larger turns",
        "draw 2",
        "draw 3",
    ]


def test_a_sweep_covers_each_size_of_small_tensors() -> None:
    tested = contract(example=9, multiple_of=3, min=6, max=50)
    sizes = {chosen.sizes["n"] for chosen in choose_all_sets(tested) if chosen.kind != "values"}
    assert sizes == set(range(6, 51, 3))
    image = (Input(name="x", shape=("n", 3, 64, 64), at="args[0]"),)
    large = contract().model_copy(update={"inputs": image})
    assert sum(chosen.kind == "axis" for chosen in choose_all_sets(large)) < 10


def test_sizes_keep_the_contract() -> None:
    bounded = contract(max=300, multiple_of=3)
    sizes = [
        chosen.sizes["n"] for chosen in choose_all_sets(bounded, (250,)) if chosen.kind == "axis"
    ]
    assert set(sizes) >= {6, 300}
    assert all(bounded.axes[0].allows(size) for size in sizes)
    assert 252 not in sizes, "with the maximum 300 table lengths are not tried"
    table_sizes = [c.sizes["n"] for c in choose_all_sets(contract(multiple_of=3), (250,))]
    assert {249, 252} <= set(table_sizes)


def test_a_size_that_needs_too_much_memory_is_omitted() -> None:
    names = additional_names(contract(max=10_000_000), 10_000_000)
    assert "n=10000000" not in names


def test_each_set_has_its_change() -> None:
    by_name = {chosen.name: chosen for chosen in choose_all_sets(contract())}
    assert (by_name["10 x x"].changed_input, by_name["10 x x"].factor) == ("x", 10.0)
    assert (by_name["much larger turns"].changed_input, by_name["much larger turns"].increment) == (
        "turns",
        7,
    )
    assert by_name["draw 3"].seed == 2
    assert {chosen.kind for chosen in by_name.values()} == {"declared", "axis", "values"}


def test_masks_are_tried_without_any_allowed_element() -> None:
    inputs = tuple(
        Input(name=kind, shape=("n",), at="args[0]", dtype=dtype, fill=Fill(kind=kind))
        for kind, dtype in (("ones", "bool"), ("zeros", "int64"), ("arange", "int64"))
    )
    sets = choose_all_sets(contract().model_copy(update={"inputs": inputs}))
    masked = [chosen.name for chosen in sets if chosen.kind == "masked"]
    assert masked == ["fully masked ones", "fully masked zeros"]


LEVELS = ("entry", "file", "project")


@pytest.mark.parametrize("level", LEVELS)
def test_the_key_takes_effect_at_each_level(level: str, tmp_path: Path) -> None:
    texts = {each: "thorough = true\n" if each == level else "" for each in LEVELS}
    files = {
        "pyproject.toml": f"[tool.exporter.defaults]\n{texts['project']}",
        "manifests/net.toml": f"format = 1\n[defaults]\n{texts['file']}"
        f"[models.net]\n{ENTRY}{texts['entry']}",
    }
    spec = load_project(make_project(tmp_path, files)).models[0]
    assert len(choose_all_sets(spec)) > len(choose_usual_sets(spec))
