"""The cause, the line and the fix of failures that users reported."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from exporter.records.record import NO_SETTING, Culprit, Record
from exporter.worker.diagnosis import remedies
from tests.distributions import write_distribution
from tests.traps.prove import export, run_in_fork
from tests.worker.contracts import ROOT, declare_input, declare_output, make_contract

NETS = Path(__file__).with_name("reported_nets.py")
DYNAMO = 'exporter = "dynamo": its file passes all checks at opset 17'
TORCHSCRIPT = 'exporter = "torchscript": its file passes all checks at opset 18'
LATER = "opset 18 (dynamo): its file passes all checks"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model at one opset, and the expected diagnosis."""

    net: str
    opset: int
    code: str
    line: str = ""
    """A part of the line of the model; "" if the problem has none."""
    cause: str = ""
    """A part of the message."""
    fix: str = ""
    """A part of the message or of the advice."""
    weaker: tuple[str, ...] = ()
    """Parts of a further advice, whose file is right for the checked values only."""
    culprit: Culprit | None = None
    signature: str = "x [batch, 4] -> y [batch, 4]"
    changes: dict[str, Any] = field(default_factory=dict)


CASES = (
    Case(
        net="Resizes",
        opset=16,
        code="E-operator",
        line="return functional.interpolate",
        cause="aten::_upsample_bicubic2d_aa",
        fix=LATER,
        signature="x [batch, 1, 5, 5] -> y [batch, 1, 2, 2]",
    ),
    Case(
        net="Groups",
        opset=17,
        code="E-convert",
        line="enable_gqa=True",
        cause="not implemented if enable_gqa",
        fix=DYNAMO,
        signature="x [batch, 4, 3, 4] -> y [batch, 4, 3, 4]",
    ),
    Case(
        net="Stops",
        opset=18,
        code="E-capture",
        line="if (x > 100).all()",
        cause="it needs a value of a tensor",
        fix='exporter = "torchscript" and capture = "script": its file passes',
        weaker=(TORCHSCRIPT, "for the checked values; it keeps the example's branch at"),
        changes={"outputs": (declare_output("y", "batch", "steps", dtype="int64"),)},
    ),
    Case(
        net="Drops",
        opset=17,
        code="E-random",
        line="functional.dropout",
        cause="aten::bernoulli_ draws random numbers in each call; set training = self.training "
        "there: PyTorch then agrees with itself; PyTorch differs from itself: ",
        fix="training = self.training",
        culprit=Culprit.MODEL,
    ),
    Case(
        net="Draws",
        opset=17,
        code="E-random",
        line="torch.randint",
        cause="aten::randint draws random numbers in each call; draw the numbers once",
        fix="or make them an input: PyTorch then agrees with itself",
        culprit=Culprit.MODEL,
    ),
    Case(
        net="Keeps",
        opset=17,
        code="E-state",
        line="self.cos = torch.arange",
        cause="a call keeps cos",
        fix="compute them in each call",
        culprit=Culprit.MODEL,
    ),
    Case(
        net="Remembers",
        opset=18,
        code="E-state",
        line="y, self.hidden_states = ",
        cause="a call keeps hidden_states for the next one; PyTorch differs from itself: its "
        "outputs depend on earlier calls, which change the attribute 'hidden_states'",
        fix="`def forward(self, x, hidden_states): self.model.hidden_states = hidden_states; "
        "y = self.model(x); hidden_states_out = self.model.hidden_states; return y, hidden_",
        culprit=Culprit.MODEL,
        signature="x [3, 4] -> y [3, 3]",
    ),
    Case(
        net="Normalizes",
        opset=18,
        code="E-state",
        line="self.running_mean +=",
        cause="a call keeps running_mean, count for the next one",
        fix="keep the update of running_mean, count out of the exported call",
        culprit=Culprit.MODEL,
        signature="x [batch, 4] -> y [batch, 3]",
    ),
    Case(
        net="Repeats",
        opset=17,
        code="E-axes",
        line="for index in range(x.shape[0])",
        cause="as often as for the example",
        fix='capture = "script": its file passes',
        culprit=Culprit.TRACE,
    ),
    Case(
        net="Derives",
        opset=18,
        code="E-capture",
        line="torch.autograd.grad(",
        cause="no exporter keeps derivatives",
        fix="no setting helps",
    ),
    Case(
        net="Narrow",
        opset=17,
        code="E-load",
        line="self.line(x * 2)",
        cause="no kernel for Mul in bfloat16",
        fix="compute in float32, with casts",
        culprit=Culprit.RUNTIME,
        signature="x bfloat16 [batch, 4] -> y bfloat16 [batch, 4]",
        changes={"precision": "bfloat16"},
    ),
    Case(
        net="Flips",
        opset=18,
        code="E-axis-fixed",
        line="self.rnn(x.flip(0))",
        fix=TORCHSCRIPT,
        signature="x [batch, 1, 4] -> y [batch, 1, 4]",
    ),
    Case(
        net="Flags",
        opset=17,
        code="E-source",
        line="is_causal=x.sum() > 100",
        fix="PyTorch accepts is_causal = bool(...)",
        signature="x [batch, 3, 4] -> y [batch, 3, 4]",
    ),
    Case(
        net="Halves",
        opset=17,
        code="E-source",
        line="repeat_interleave(4, 1)",
        fix="multiple_of = 4",
        signature="x [4, batch=5] -> y [4, batch]",
    ),
    Case(
        net="Reads",
        opset=17,
        code="E-source",
        fix="mask: at = 'args[0].mask'",
        changes={
            "inputs": (
                declare_input("x", at="args[0]"),
                declare_input("mask", at="args[1]"),
            )
        },
    ),
    Case(
        net="Calls",
        opset=17,
        code="E-opset",
        cause="the file uses the domain 'mycompany'",
        fix=f"{DYNAMO}; it replaces the operators of mycompany by those of ONNX",
    ),
    Case(
        net="Ignores",
        opset=17,
        code="E-input-ignored",
        cause="the graph ignores input 'mask'",
        fix="in place of the input, `constants = [{ at = 'args[1]' }]`: its file passes all checks",
        changes={
            "inputs": tuple(
                declare_input(name, at=f"args[{index}]")
                for index, name in enumerate(("x", "mask", "bias"))
            )
        },
    ),
    Case(
        net="Pads",
        opset=21,
        code="E-axes",
        line="x.reshape(-1, 2, 4)",
        fix="axes.batch = { example = 8, multiple_of = 2 }, which promises less: its file passes",
        culprit=Culprit.EXPORTER,
        signature="x [batch=8, 4] -> y [pairs, 4]",
    ),
    Case(
        net="Samples",
        opset=16,
        code="E-operator",
        line="functional.grid_sample",
        cause="ONNX's GridSample takes 4 dimensions up to opset 19; opset 20 (dynamo): its file",
        fix="opset 20 (dynamo): its file passes all checks",
        signature="x [batch, 2, 3, 3, 3], grid [batch, 2, 2, 2, 3] -> y [batch, 2, 2, 2, 2]",
    ),
    Case(
        net="Largest",
        opset=10,
        code="E-wellformed",
        line="torch.topk(x, 2)",
        cause="TopK",
        fix="its file passes all checks",
        signature="x int64 [batch, 5] -> values int64 [batch, 2], indices int64 [batch, 2]",
    ),
    Case(
        net="Counts",
        opset=14,
        code="E-wellformed",
        line="known.cumsum(1)",
        cause="CumSum",
        fix='exporter = "dynamo": its file passes all checks at opset 14',
        signature="x [batch, 4] -> y int64 [batch, 4]",
    ),
    Case(
        net="Shifts",
        opset=13,
        code="E-input-ignored",
        line="row[:, 2:] = x",
        cause="a trace loses a write through a view",
        fix="its file passes all checks",
        signature="x [batch, 2], cache [2, batch, 4] -> y [2, batch, 4]",
    ),
    Case(
        net="Forgets",
        opset=17,
        code="E-input-ignored",
        line="weights.masked_fill(mask > 0, 0.0)",
        cause="no output uses the result: remove the input, or use the result",
        signature="x [batch, 4], mask [batch, 4] -> y [batch, 4]",
    ),
    Case(
        net="WritesCopy",
        opset=17,
        code="E-input-ignored",
        line="torch.cat([y, y])[:2].copy_(row)",
        cause="no output uses the result: remove the input, or use the result",
        signature="x [batch, 4], row [1, 4] -> y [batch, 4]",
    ),
    Case(
        net="Selects",
        opset=18,
        code="E-wellformed",
        line="torch.multinomial(chance, 1)",
        cause="aten::multinomial draws random numbers in each call",
        fix="or make them an input: PyTorch then agrees with itself",
        signature="x [1, 4] -> y [1, 4]",
    ),
    Case(
        net="Noises",
        opset=9,
        code="E-operator",
        line="rsample()",
        cause="draws random numbers in each call",
        fix="or make them an input: PyTorch then agrees with itself",
    ),
)


def find_line(text: str) -> str:
    """Return `reported_nets.py:<line>` of the only line with the text."""
    lines = NETS.read_text(encoding="utf-8").splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if text in line]
    return f'reported_nets.py:{number}: "'


def diagnose(case: Case, folder: Path) -> Record:
    values = {"source": f"diagnosis/reported_nets.py:{case.net}", "opsets": (case.opset,)}
    spec = make_contract(case.net, case.signature, **(values | case.changes))
    (record,) = export(spec, folder / "job", root=ROOT, diagnose=True)
    return record


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.net)
def test_a_reported_failure_has_its_cause_line_and_fix(case: Case, tmp_path: Path) -> None:
    record = run_in_fork(lambda: diagnose(case, tmp_path))
    text = f"{record.message}\n{record.advice}\n{record.notes}"
    assert record.failure_code == case.code, text
    assert not [note for note in record.notes if note.startswith("the diagnosis")]
    assert case.cause in record.message
    assert case.fix in text
    assert all(part in record.advice[1] for part in case.weaker)
    assert (record.blame.culprit if record.blame else None) is case.culprit
    if case.line:
        assert re.match(r"[\w/]*" + re.escape(find_line(case.line)), record.message), text
    for internal in ("Caused by", "unhinted", "Please feel free"):
        assert internal not in record.message


def test_a_package_that_fails_in_its_import_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'raise RuntimeError("operator oldvision::nms does not exist")\n'
    (tmp_path / "oldvision.py").write_text(text)
    write_distribution(tmp_path, "oldvision", "0.9")
    monkeypatch.syspath_prepend(tmp_path)
    case = Case(net="build_detector", opset=17, code="E-import")
    record = diagnose(case, tmp_path)
    assert record.failure_code == case.code
    assert find_line('__import__("oldvision")') in record.message
    assert "in the import of oldvision 0.9 beside torch 2." in record.message


def test_a_package_that_imports_another_one_in_a_function_is_not_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lazy = "def __getattr__(name):\n    return __import__('oldpictures')\n"
    (tmp_path / "lazymodels.py").write_text(lazy)
    (tmp_path / "oldpictures.py").write_text("raise RuntimeError('no operator nms')\n")
    for name, version in {"lazymodels": "5.0", "oldpictures": "0.9"}.items():
        write_distribution(tmp_path, name, version)
    monkeypatch.syspath_prepend(tmp_path)
    record = diagnose(Case(net="build_language_model", opset=17, code="E-import"), tmp_path)
    assert record.failure_code == "E-import"
    assert find_line('import_module("lazymodels").Model') in record.message
    assert "in the import of oldpictures 0.9 beside torch 2." in record.message


def test_a_draw_that_is_the_same_in_each_call_is_no_cause(tmp_path: Path) -> None:
    case = Case(net="Seeded", opset=18, code="E-capture", signature="x [1, 4] -> y [1, 4]")
    record = diagnose(case, tmp_path)
    assert "random" not in f"{record.message}\n{record.advice}"
    assert find_line("torch.multinomial(torch.ones(4), 1)") in record.message


def test_an_experiment_that_ends_with_an_error_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bool:
        raise RuntimeError("no memory left")

    monkeypatch.setattr(remedies, "_is_right", fail)
    case = next(each for each in CASES if each.net == "Groups")
    record = run_in_fork(lambda: diagnose(case, tmp_path))
    (advice,) = [each for each in record.advice if each.startswith(NO_SETTING)]
    assert 'exporter = "dynamo" (ended with RuntimeError)' in advice
