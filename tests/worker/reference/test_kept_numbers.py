"""Numbers that calls change, and the branches that read them."""

from __future__ import annotations

import linecache
from pathlib import Path

import pytest

from exporter.manifest import ModelSpec
from exporter.worker.inputs.input_sets import choose_usual_sets
from exporter.worker.model.source_loader import load_model
from exporter.worker.reference.kept_numbers import find_branch_on_number
from tests.traps.prove import export
from tests.traps.trap import DYNAMO, TORCHSCRIPT
from tests.worker.contracts import ROOT, make_contract

_FILE = "tests/traps/models/counters.py"


def declare(net: str, opset: int = DYNAMO) -> ModelSpec:
    signature = "x [batch, 4] -> y [batch, 4]"
    return make_contract(
        "", signature, manifest="net.toml", source=f"{_FILE}:{net}", opsets=(opset,)
    )


def search(net: str) -> str:
    spec = declare(net)
    model = load_model(spec, ROOT)
    return find_branch_on_number(model, spec, ROOT, choose_usual_sets(spec)[0])


@pytest.mark.parametrize(
    ("net", "value", "code"),
    [
        ("Attribute", "the attribute 'n'", "if self.n < LIMIT:"),
        ("Alternating", "the attribute 'n'", "if self.n < float(self.limit):"),
        ("Private", "the attribute 'layer._n'", "return x * 2 if self.is_early else x * 3"),
        ("Seconds", "the attribute 'time'", "return x * 3 if self.time > 7.5 else x * 2"),
        ("Remaining", "the attribute 'left'", "return x * 2 if self.left else x * 3"),
        ("Exact", "the attribute 'n'", "return x * 3 if self.n % self.period == 0 else x * 2"),
        ("Phase", "the attribute 'n'", "if self.n > LIMIT:"),
        ("Stored", "the attribute 'history'", "return x * 2 if is_early else x * 3"),
        ("Recent", "the attribute 'history'", "return x * 2 if is_early else x * 3"),
        ("Joined", "the attribute 'rows'", "return x * 2 if is_early else x * 3"),
        ("Table", "the attribute 'counts[\"calls\"]'", "return x * 2 if is_early else x * 3"),
        ("Listed", "the attribute 'counts[0]'", "return x * 2 if is_early else x * 3"),
        ("Held", "the attribute 'progress.calls'", "return x * 2 if is_early else x * 3"),
        ("Iterated", "the attribute 'counter'", "return x * 2 if is_early else x * 3"),
        ("Shared", "the class attribute 'Shared.calls'", "return x * 2 if is_early else x * 3"),
        (
            "Global",
            "the global variable '_CALLS' of tests.traps.models.counters",
            "return x * 2 if is_early else x * 3",
        ),
        ("Closure", "the attribute 'count.calls'", "return x * 2 if is_early else x * 3"),
        ("Hooked", "the variable 'count.calls' of a hook", "return x * 2 if is_early else x * 3"),
        ("Kept", "the attribute 'steps'", "return x * 2 if is_early else x * 3"),
        ("Buffer", "the buffer 'steps'", "return x * 2 if is_early else x * 3"),
    ],
)
def test_a_branch_on_a_number_that_calls_change_is_named(net: str, value: str, code: str) -> None:
    text = search(net)
    start, _, line = text.removesuffix(" reads it").rpartition(":")
    assert (start, text.endswith(" reads it")) == (
        f"calls change {value}, and a branch at {_FILE}",
        True,
    )
    assert linecache.getline(str(ROOT / _FILE), int(line)).strip() == code


@pytest.mark.parametrize(
    ("net", "value"), [("Schedule", "the attribute 'n'"), ("Selected", "the buffer 'steps'")]
)
def test_a_number_that_outputs_read_without_a_branch_is_named(net: str, value: str) -> None:
    assert search(net) == f"calls change {value}, and outputs depend on it"


@pytest.mark.parametrize(
    "net", ["Logged", "Rotary", "LazyMask", "Started", "Normalized", "Ring", "Memoized"]
)
def test_a_number_without_effect_is_not_named(net: str) -> None:
    assert search(net) == ""


@pytest.mark.parametrize("opset", [TORCHSCRIPT, DYNAMO])
@pytest.mark.parametrize("net", ["Private", "Logged"])
def test_the_record_has_the_note(net: str, opset: int, tmp_path: Path) -> None:
    (record,) = export(declare(net, opset), tmp_path / "net")
    texts = [note for note in record.notes if "calls change" in note]
    assert len(texts) == (net == "Private"), record.notes
