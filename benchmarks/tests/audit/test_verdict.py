"""A mutant fails a check, or further inputs show the difference that the checks missed."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import ModelProto

from benchmarks.audit.mutators.mutants import Mutant
from benchmarks.audit.results import MutantOutcome
from benchmarks.audit.verdict import find_first_failure, search_difference
from exporter.checks.protocol import CheckedFile
from exporter.manifest import Device, Fill, Input, ModelSpec, Output
from tests.unit.checks.contexts import DOUBLE, at, contract, declared, make_reference, make_subject

CPU = Device(name="cpu", runtime="onnxruntime")
#: Three rows; each input selects one.
TABLE = """<ir_version: 8, opset_import: ["" : 18]>
table (int64[batch] index) => (float[batch] y)
<float[3] rows = {1.0, 2.0, 3.0}> { y = Gather(rows, index) }
"""


def make_change(*rows: int) -> Mutant:
    """Return the description of a change without its model."""
    return Mutant(kind="weight", change="", model=ModelProto(), rows=rows)


def doubles(folder: Path, text: str = DOUBLE) -> CheckedFile:
    folder.mkdir(exist_ok=True)
    reference = make_reference(declared(folder), at(folder, 1, 5))
    return make_subject(folder, text, reference=reference)


def table_contract() -> ModelSpec:
    index = Input(
        name="index",
        shape=("batch",),
        dtype="int64",
        at="args[0]",
        fill=Fill(kind="randint", low=0, high=3),
    )
    return contract(inputs=(index,), outputs=(Output(name="y", shape=("batch",)),))


def table(folder: Path, text: str = TABLE) -> CheckedFile:
    folder.mkdir(exist_ok=True)
    return make_subject(folder, text, spec=table_contract(), reference=make_reference())


def test_a_correct_file_passes(tmp_path: Path) -> None:
    assert find_first_failure(doubles(tmp_path), CPU) is None


@pytest.mark.parametrize(
    ("old", "new", "by"),
    [
        ("{2.0}", "{2.01}", "parity"),
        ("Mul", "Add", "parity"),
        ('"" : 18', '"" : 17', "opset"),
        ("=> (float[batch, 3] y)", "=> (float[batch, 4] y)", "wellformed"),
        ("(float[batch, 3] x)", "(float[rows, 3] x)", "signature"),
    ],
)
def test_the_failed_check_is_named(old: str, new: str, by: str, tmp_path: Path) -> None:
    assert old in DOUBLE
    no = find_first_failure(doubles(tmp_path, DOUBLE.replace(old, new)), CPU)
    assert no is not None
    assert no.check == by
    assert no.message


def test_a_row_that_no_sample_selects_is_found_by_its_index(tmp_path: Path) -> None:
    original = table(tmp_path / "original")
    mutant = table(tmp_path / "mutant", TABLE.replace("3.0", "3.5"))
    verdict = search_difference(mutant, original, CPU, make_change(2), seed=0)
    assert verdict.outcome is MutantOutcome.SURVIVED
    assert "output 'y' differs" in verdict.reason


def test_a_change_beyond_the_samples_survives_with_the_input_that_shows_it(tmp_path: Path) -> None:
    original = doubles(tmp_path / "original")
    mutant = doubles(tmp_path / "mutant", DOUBLE.replace("{2.0}", "{2.1}"))
    verdict = search_difference(mutant, original, CPU, make_change(), seed=0)
    assert verdict.outcome is MutantOutcome.SURVIVED
    assert verdict.reason.startswith("on other values (1): output 'y' differs")


def test_a_change_within_the_limit_differs_from_no_change(tmp_path: Path) -> None:
    original = doubles(tmp_path / "original")
    nudged = doubles(tmp_path / "nudged", DOUBLE.replace("{2.0}", "{2.0000002}"))
    assert (
        search_difference(nudged, original, CPU, make_change(), seed=0).outcome
        is MutantOutcome.WITHIN
    )
    same = doubles(tmp_path / "same", DOUBLE.replace("Mul(x, two)", "Mul(two, x)"))
    assert (
        search_difference(same, original, CPU, make_change(), seed=0).outcome is MutantOutcome.SAME
    )


def test_a_mutant_survives_if_no_further_input_runs(tmp_path: Path) -> None:
    broken = TABLE.replace("{1.0, 2.0, 3.0}", "{1.0}").replace("float[3]", "float[1]")
    spec = table_contract()
    wide = spec.inputs[0].model_copy(update={"fill": Fill(kind="randint", low=5, high=9)})
    spec = spec.model_copy(update={"inputs": (wide,)})
    subjects = []
    for name in ("original", "mutant"):
        folder = tmp_path / name
        folder.mkdir()
        subjects.append(make_subject(folder, broken, spec=spec, reference=make_reference()))
    verdict = search_difference(subjects[1], subjects[0], CPU, make_change(), seed=0)
    assert verdict.outcome is MutantOutcome.SURVIVED
    assert "no further input runs" in verdict.reason
