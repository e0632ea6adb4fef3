"""The other exporter or a lower opset is proposed, if that file passes all checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.manifest import ModelSpec, Tolerance
from exporter.records.record import Culprit, Record, Stage
from exporter.worker.diagnose.exporter_advice import advise_lower_opset
from tests.traps.prove import export
from tests.traps.trap import DYNAMO, contract, declare_input, declare_output
from tests.worker.contracts import ROOT
from tests.worker.diagnose.cases import case_of, write_export, wrong_contract

SIZE = (
    "torch.export fixed dimension 0 of input 'x' to 3, but PyTorch accepts other sizes: compute "
    "with `shape` in the model, without `int()` and branches on this size"
)


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


@pytest.mark.parametrize(
    ("net", "opset", "bound", "advice"),
    [
        ("Attends", 23, 1e-3, ("opset 22, which has no Attention: its file passes all checks",)),
        ("Attends", 22, 1e-3, ()),  # no operator is new since dynamo's first opset
        ("Attends", 23, 0.0, ()),  # the file of the lower opset is wrong, too
        ("Chain", 23, 1e-3, ()),
    ],
)
def test_a_lower_opset_is_proposed_if_it_avoids_the_newest_operator(
    net: str, opset: int, bound: float, advice: tuple[str, ...], tmp_path: Path
) -> None:
    spec = wrong_contract(net, tolerance=Tolerance(atol=bound, rtol=bound))
    case = case_of(spec, opset, dynamo=True)
    subject = write_export(case, tmp_path)
    assert advise_lower_opset(case, subject, 60.0) == advice
