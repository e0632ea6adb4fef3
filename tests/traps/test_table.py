"""The table of traps: large enough, unique names, and equal to the page."""

from __future__ import annotations

from collections import Counter

import pytest

from exporter.records.record import CellId, Record, Stage, Status
from tests.traps.table import ALL, PAGE, PLAIN, SOUND_MODELS, page
from tests.traps.trap import ROOT, Verdict, parity


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tests.traps`"


def test_the_readme_and_the_evidence_have_the_figures_of_the_page() -> None:
    checker, compared, checks = PLAIN.values()
    wrong, sound = checker + compared + checks, sum(trap.is_sound for trap in ALL)
    sentence = (
        f"It found **{wrong} of {wrong}** wrong files that are built to look right, and called "
        f"none of {sound} sound models wrong. `onnx.checker` finds {checker} of them. "
        f"`onnx.checker` and one comparison with PyTorch, the usual test, find "
        f"{checker + compared}."
    )
    assert sentence in " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    rows = (
        (
            f"{wrong} of {wrong} wrong files; `onnx.checker` finds {checker}, with one comparison "
            f"{checker + compared}. None of {sound} sound models is red"
        ),
        f"{len(ALL) - sound} traps and {sound} sound models",
    )
    evidence = (ROOT / "docs/evidence.md").read_text(encoding="utf-8")
    assert [row for row in rows if row not in evidence] == []


def test_there_are_enough_traps_and_sound_models() -> None:
    assert sum(not trap.is_sound for trap in ALL) >= 60
    assert len(SOUND_MODELS) >= 40


def test_names_are_unique() -> None:
    assert [name for name, count in Counter(trap.name for trap in ALL).items() if count > 1] == []


@pytest.mark.parametrize(
    "verdict",
    [
        parity("axes", "batch=7"),
        parity("values", "batch=8"),
        Verdict(status=Status.PASS),
        Verdict(status=Status.FAIL, stage=Stage.STRUCTURE, check="values", message="batch=7"),
    ],
)
def test_another_verdict_is_a_difference(verdict: Verdict) -> None:
    record = Record(
        cell=CellId(model="trap", opset=13, device="cpu"),
        status=Status.FAIL,
        stage=Stage.PARITY,
        check="values",
        message="batch=7: output 'y': error",
    )
    assert verdict.differences(record)
    assert parity("values", "batch=7").differences(record) == []
