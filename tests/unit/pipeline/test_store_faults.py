"""A damaged store costs time and changes no result."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults.corruption import cut, flip, folder, missing
from tests.unit.pipeline.test_increments import edits
from tests.unit.pipeline.test_store_and_restore import list_built, start


def swap(path: Path, draw: random.Random) -> None:
    """Replace the file by another one of the same kind."""
    others = [other for other in path.parents[2].rglob("*") if other.is_file()]
    path.write_bytes(draw.choice(others).read_bytes())


HOW = (cut, flip, missing, swap, folder)


def corrupt(store: Path, how: Callable[[Path, random.Random], None], seed: int) -> None:
    """Corrupt a third of the files in the store."""
    draw = random.Random(seed)
    for kind in ("entries", "blobs"):
        for path in sorted((store / kind).rglob("*")):
            if path.is_file() and draw.random() < 0.34:
                detach(path)
                how(path, draw)


def detach(path: Path) -> None:
    """Replace the file by a copy, because hard links share its content."""
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)


@pytest.mark.parametrize("how", HOW)
def test_a_damaged_store_changes_no_result(
    tmp_path: Path, how: Callable[[Path, random.Random], None]
) -> None:
    project = start(tmp_path)
    expected = project.export()
    project.put("net.py", "2")
    project.export()
    corrupt(tmp_path / "store", how, seed=0)
    project.put("net.py", "1")
    assert project.export() == expected
    shutil.rmtree(tmp_path / "build")
    assert project.export() == expected


@pytest.mark.parametrize("what", ["blobs", "entries"])
def test_the_problem_of_the_store_is_in_the_reason(tmp_path: Path, what: str) -> None:
    project = start(tmp_path)
    project.put("net.py", "2")
    project.export()
    for path in (tmp_path / "store" / what).rglob("*"):
        if path.is_file():
            detach(path)
            flip(path, random.Random(1))
    project.put("net.py", "1")
    project.export()
    assert len(list_built(project)) == 2
    for reason in project.on_note.reasons.values():
        assert reason.startswith("net.py changed, and ")
        assert reason.endswith("damaged" if what == "entries" else " in the store")


@pytest.mark.parametrize("state", ["file", "dangling link", "nothing"])
def test_a_store_that_cannot_be_written(tmp_path: Path, state: str) -> None:
    if state == "file":
        (tmp_path / "store").write_text("")
    elif state == "dangling link":
        (tmp_path / "store").symlink_to(tmp_path / "nowhere/at/all")
    project = start(tmp_path)
    assert len(list_built(project)) == 4
    notes = [note for note in project.on_note.notes if "cannot be written" in note]
    assert len(notes) <= 1
    project.put("net.py", "2")
    assert project.export() == project.export(name="nothing")


def actions() -> st.SearchStrategy[Any]:
    """Yield edits, runs in another checkout and corruptions."""
    wreck = st.tuples(st.just("corruption"), st.sampled_from(HOW), st.integers(0, 9))
    return st.one_of(edits(), edits(), st.tuples(st.just("checkout")), wreck)


@settings(max_examples=500 if os.environ.get("FAULTS") == "long" else 8, deadline=None)
@given(st.lists(actions(), min_size=2, max_size=8))
def test_any_sequence_of_edits_checkouts_and_corruptions(sequence: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as top:
        roots = Path(top)
        projects = [start(roots / "one", roots / "store")]
        for number, (name, *rest) in enumerate(sequence):
            project = projects[-1]
            if name == "corruption":
                corrupt(roots / "store", *rest)
            elif name == "checkout":
                projects.append(start(roots / f"{number}", roots / "store"))
            else:
                project.put(name, rest[0])
                if rest[1]:
                    results = project.export(rest[1])
                    assert results.items() <= project.export(name=f"nothing-{number}").items()
        for project in projects:
            assert project.export() == project.export(name="nothing")
