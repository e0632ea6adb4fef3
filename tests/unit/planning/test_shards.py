"""Every model is in exactly one shard, and in the same one on every machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.errors import ExitCode, ExporterError
from exporter.planning import Selection
from exporter.planning.plan import (
    Plan,
    Shard,
    assign_models,
    make_plan,
    read_shard_note,
    remove_shard_note,
    select_shard,
    write_shard_note,
)
from tests.unit.factory import make_manifest, make_spec

ALL = Selection()


def plan(sizes: dict[str, int], selection: Selection = ALL) -> Plan:
    specs = [make_spec(id, opsets=tuple(range(10, 10 + count))) for id, count in sizes.items()]
    return make_plan(make_manifest(*specs), selection)


def shards(full: Plan, count: int) -> list[tuple[str, ...]]:
    indices = range(1, count + 1)
    return [assign_models(full, Shard(index=index, count=count)) for index in indices]


@given(
    sizes=st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 12), min_size=1),
    count=st.integers(1, 10),
)
def test_every_model_is_in_one_shard(sizes: dict[str, int], count: int) -> None:
    full = plan(sizes)
    parts = shards(full, count)
    assert sorted(model for part in parts for model in part) == sorted(sizes)
    cells = [
        planned.cell
        for index in range(1, count + 1)
        for planned in select_shard(full, Shard(index=index, count=count)).selected
    ]
    assert sorted(map(str, cells)) == sorted(str(planned.cell) for planned in full.selected)
    # The order of the manifests does not matter.
    other = shards(plan(dict(reversed(sizes.items()))), count)
    assert [set(part) for part in other] == [set(part) for part in parts]


def test_the_cells_are_balanced() -> None:
    assert shards(plan({"a": 9, "b": 3, "c": 3, "d": 3}), 2) == [("a",), ("b", "c", "d")]
    assert shards(plan({"a": 1}), 3) == [("a",), (), ()]


def test_only_selected_models_are_assigned() -> None:
    full = plan({"a": 2, "b": 2}, Selection(patterns=("b",)))
    assert shards(full, 1) == [("b",)]


def test_the_note_contains_the_models_of_the_shard(tmp_path: Path) -> None:
    full, shard = plan({"a": 2, "b": 2}), Shard(index=2, count=2)
    write_shard_note(tmp_path, shard, full)
    note = read_shard_note(tmp_path)
    assert (note.shard, note.models) == (shard, ("b",))
    remove_shard_note(tmp_path)
    remove_shard_note(tmp_path)
    with pytest.raises(ExporterError, match="contains no finished shard") as caught:
        read_shard_note(tmp_path)
    assert caught.value.exit_code is ExitCode.UNREADABLE
    (tmp_path / "shard.json").write_text("{}")
    with pytest.raises(ExporterError, match="cannot be read"):
        read_shard_note(tmp_path)
