"""Every mutant is one change; the same seed draws the same ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.audit.mutators.mutants import MUTATORS, Mutant, draw_mutants
from benchmarks.tests.audit.models import small, with_data_outside


def drawn(folder: Path, count: int = 150, seed: int = 0) -> list[Mutant]:
    return list(draw_mutants(small(), folder, count, seed))


def test_the_same_seed_draws_the_same_mutants_and_another_seed_others(tmp_path: Path) -> None:
    def lines(seed: int) -> list[tuple[str, bytes]]:
        return [
            (mutant.change, mutant.model.SerializeToString(deterministic=True))
            for mutant in drawn(tmp_path, 60, seed)
        ]

    assert lines(3) == lines(3)
    assert lines(3) != lines(4)


def test_every_mutant_differs_from_the_file_and_has_its_own_line(tmp_path: Path) -> None:
    mutants = drawn(tmp_path)
    sound = small().SerializeToString(deterministic=True)
    assert len(mutants) > 60
    assert all(mutant.model.SerializeToString(deterministic=True) != sound for mutant in mutants)
    assert len({mutant.change for mutant in mutants}) == len(mutants)
    assert all("\n" not in mutant.change for mutant in mutants)


def test_few_mutants_contain_every_kind(tmp_path: Path) -> None:
    kinds = [mutant.kind for mutant in drawn(tmp_path, len(MUTATORS))]
    assert set(kinds) == {"weight", "attribute", "operator", "edge", "shape", "header", "condition"}


def test_the_number_of_mutants_is_limited(tmp_path: Path) -> None:
    assert len(drawn(tmp_path, 7)) == 7


def test_weights_outside_the_file_are_changed_by_a_patch_of_a_few_bytes(tmp_path: Path) -> None:
    model = with_data_outside(tmp_path)
    before = (tmp_path / "weights.data").read_bytes()
    outside = ("w[", "w:", "w ", "b[", "b:", "b ")  # the others are too small for external data
    weights = [m for m in draw_mutants(model, tmp_path, 60, 0) if m.kind == "weight"]
    mutants = [m for m in weights if m.change.startswith(outside)]
    assert len(mutants) > 10
    assert all(mutant.patches and mutant.touched for mutant in mutants)
    for patch in (patch for mutant in mutants for patch in mutant.patches):
        old = before[patch.offset : patch.offset + len(patch.data)]
        assert len(old) == len(patch.data)
        assert patch.file == "weights.data"
    assert (tmp_path / "weights.data").read_bytes() == before


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("weight", r"w\[\d, \d\] times 1\.001"),
        ("weight", r"w: rows \d and \d swapped"),
        ("attribute", r"LeakyRelu -> y: alpha from 0\.1 to 1"),
        ("attribute", r"Gemm -> linear: transB from 1 to 0"),
        ("operator", r"Sub -> z: Add in its place"),
        ("operator", r"LeakyRelu -> y bypassed: its input linear in its place"),
        ("edge", r"Sub -> z: inputs 0 and 1 swapped"),
        ("edge", r"outputs z and y each under the other's name"),
        ("shape", r"dimension 1 of y declared 4, was 3"),
        ("shape", r"dimension 0 of x called 'batch_1', was 'batch'"),
        ("header", r"opset of 'ai\.onnx' from 17 to 18"),
        ("header", r"IR version from 8 to 9"),
    ],
)
def test_a_mutant_describes_its_change(kind: str, change: str, tmp_path: Path) -> None:
    mutants = [mutant.change for mutant in drawn(tmp_path, 400) if mutant.kind == kind]
    assert any(re.fullmatch(change, line) for line in mutants), mutants
