"""Whose fault it is that a runtime does not take a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.manifest import Device
from exporter.records.record import Culprit
from exporter.worker.diagnose.load_refusal import blame_load_failure
from tests.unit.checks.contexts import DOUBLE, declared, make_reference, make_subject

CPU = Device(name="cpu", runtime="onnxruntime")


@pytest.mark.parametrize(
    ("model", "culprit", "says"),
    [
        (DOUBLE, Culprit.RUNTIME, "onnx.reference: right"),
        (DOUBLE.replace("{2.0}", "{3.0}"), Culprit.EXPORTER, "times the bound"),
        (
            DOUBLE.replace('"" : 18', '"" : 18, "nobody" : 1').replace("Mul", "nobody.Mul"),
            Culprit.UNKNOWN,
            "does not take it either",
        ),
    ],
)
def test_the_specification_is_asked(
    model: str, culprit: Culprit, says: str, tmp_path: Path
) -> None:
    here = make_subject(tmp_path, model, reference=make_reference(declared(tmp_path)))
    blame = blame_load_failure(here, CPU, 30.0)
    assert blame is not None
    assert blame.culprit is culprit
    assert says in blame.evidence[0]
    assert str(tmp_path) not in blame.evidence[0]


def test_without_another_to_ask_there_is_no_blame(tmp_path: Path) -> None:
    here = make_subject(tmp_path, reference=make_reference(declared(tmp_path)))
    assert blame_load_failure(here, Device(name="r", runtime="reference"), 30.0) is None
    alone = make_subject(tmp_path, reference=make_reference())
    assert blame_load_failure(alone, CPU, 30.0) is None
