"""The other exporter is proposed first, if its file passes all checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.manifest import ModelSpec
from exporter.records.record import Culprit, Record, Stage
from tests.traps.prove import export
from tests.traps.trap import DYNAMO, contract, declare_input, declare_output
from tests.worker.contracts import ROOT
from tests.worker.diagnose.cases import wrong_contract

SIZE = "dimension 0 of input 'x' is always 3 in this model: replace 'batch' by 3 (promises less)"


def run(spec: ModelSpec, folder: Path) -> Record:
    (record,) = export(spec, folder / "job", root=ROOT)
    assert not list((folder / "job").glob(".again*"))
    return record


def by_size(net: str, opset: int) -> ModelSpec:
    return wrong_contract(net, opsets=(opset,))


def test_torchscript_is_proposed_before_a_fixed_size(tmp_path: Path) -> None:
    record = run(by_size("DoublesBySize", DYNAMO), tmp_path)
    assert record.stage is Stage.CAPTURE
    assert record.advice == (
        'exporter = "torchscript": its file passes all checks at opset 18',
        SIZE,
    )


@pytest.mark.parametrize(
    ("net", "opset"),
    [
        ("TriplesBySize", DYNAMO),  # TorchScript stores the example's choice
        ("DoublesBySize", 21),  # TorchScript ends at opset 20
    ],
)
def test_an_exporter_that_breaks_a_promise_is_not_proposed(
    net: str, opset: int, tmp_path: Path
) -> None:
    record = run(by_size(net, opset), tmp_path)
    assert record.stage is Stage.CAPTURE
    assert record.advice == (SIZE,)


def test_dynamo_is_proposed_below_its_first_opset(tmp_path: Path) -> None:
    spec = contract(
        "numbers.py:WritesView",
        17,
        inputs=(declare_input(),),
        outputs=(declare_output("y", "batch", 4),),
    )
    (record,) = export(spec, tmp_path / "job")
    assert record.blame is not None
    assert record.blame.culprit is Culprit.EXPORTER
    assert record.advice == ('exporter = "dynamo": its file passes all checks at opset 17',)


def test_a_model_that_changes_its_weights_is_the_culprit(tmp_path: Path) -> None:
    outputs = (declare_output("y", "batch", 4, dtype="int64"),)
    record = run(wrong_contract("KeepsLargest", opsets=(13,), outputs=outputs), tmp_path)
    assert record.blame is not None, record.message
    assert record.blame.culprit is Culprit.MODEL, record.blame
    assert record.blame.evidence[-1].startswith("a call changes the parameter 'largest'")
    assert record.advice == ()
