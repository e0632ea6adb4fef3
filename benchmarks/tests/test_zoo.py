"""The judgement of the zoo accepts right files, rejects wrong ones, and reports disagreements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from onnx import TensorProto, helper

from benchmarks.zoo.draws import draw_sets
from benchmarks.zoo.folders import PROJECT
from benchmarks.zoo.judge import find_problem, list_masks
from benchmarks.zoo.page import Reason, list_faults, make_page, read_reasons
from benchmarks.zoo.verdicts import Kind, Verdict, judge_model, read_verdicts, write_verdicts
from exporter.manifest import Axis, ModelSpec, load_project
from exporter.records.record import Artifact, CellId, Record, Stage, Status
from tests.traps.trap import contract
from tests.worker.contracts import declare_input, declare_output, make_fill

#: TorchScript exports in less time than dynamo.
OPSET = 17
MODELS = """
import torch


class Double(torch.nn.Module):
    def forward(self, x):
        return x * 2


class Broken(torch.nn.Module):
    def forward(self, x):
        raise ValueError("no such size")


class Hidden(torch.nn.Module):
    def forward(self, x):
        return torch.from_numpy(x.numpy() * 2)
"""


def make_spec(source: str = "Double", **changes: object) -> ModelSpec:
    spec = contract("loops.py:Turns", OPSET, tags=("tag",), **changes)
    return spec.model_copy(update={"source": f"zoo_doubles.py:{source}"})


def write_file(
    path: Path, factor: float = 2.0, opset: int = OPSET, rows: int | str = "batch"
) -> Path:
    constant = helper.make_tensor("factor", TensorProto.FLOAT, [], [factor])
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "factor"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [constant],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    onnx.save(model, path)
    return path


def list_samples(spec: ModelSpec) -> Any:
    return [(inputs, [(inputs["x"] * 2).numpy()]) for inputs in draw_sets(spec)]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, ""),
        ({"factor": 2.01}, "output 0 differs by"),
        ({"opset": 18}, "opset 18 instead of 17"),
        ({"rows": 3}, "x: axis 'batch' is fixed at 3"),
    ],
    ids=["right", "factor", "opset", "axis"],
)
def test_a_file_is_judged_by_its_outputs_and_its_header(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    spec = make_spec()
    path = write_file(tmp_path / "x.onnx", **changes)
    found = find_problem(path, spec, OPSET, list_samples(spec))
    assert found.startswith(problem)
    assert str(tmp_path) not in found
    assert bool(found) == bool(problem)


def make_record(status: Status, file: str = "") -> Record:
    artifact = Artifact(
        file=file,
        sha256="",
        bytes=0,
        ir_version=10,
        opset_imports={"": OPSET},
        nodes=1,
        parameters=1,
        operators={"Mul": 1},
    )
    cell = CellId(model="trap", opset=OPSET, device="cpu")
    if status.is_green:
        return Record(cell=cell, status=status, artifact=artifact)
    return Record(cell=cell, status=status, stage=Stage.CONVERT, message="no such operator")


@pytest.mark.parametrize(
    ("source", "status", "factor", "kind"),
    [
        ("Double", Status.PASS, 2.0, "agree"),
        ("Double", Status.PASS, 2.1, "false green"),
        ("Double", Status.ERROR, 0.0, "false red"),
        ("Hidden", Status.ERROR, 0.0, "agree"),
        ("Broken", Status.ERROR, 0.0, "agree"),
        ("Broken", Status.PASS, 2.0, "false green"),
        ("Missing", Status.ERROR, 0.0, "unjudged"),
    ],
)
def test_a_verdict_agrees_with_the_judgement_or_not(
    tmp_path: Path, source: str, status: Status, factor: float, kind: Kind
) -> None:
    (tmp_path / "zoo_doubles.py").write_text(MODELS)
    write_file(tmp_path / "x.onnx", factor)
    record = make_record(status, "x.onnx")
    (verdict,) = judge_model(make_spec(source), [record], tmp_path, tmp_path)
    assert verdict.kind == kind, verdict.judgement
    assert verdict.is_green == status.is_green
    assert verdict.is_sound == (kind == "false red" or (kind == "agree" and status.is_green))
    write_verdicts(tmp_path / "verdicts.jsonl", [verdict])
    assert read_verdicts(tmp_path / "verdicts.jsonl") == [verdict]


def test_a_cell_without_a_result_is_unjudged(tmp_path: Path) -> None:
    (tmp_path / "zoo_doubles.py").write_text(MODELS)
    (verdict,) = judge_model(make_spec(), [], tmp_path, tmp_path)
    assert (verdict.kind, verdict.status, verdict.is_green) == ("unjudged", "missing", False)


def make_verdict(cell: str, kind: Kind, message: str = "") -> Verdict:
    status = "fail" if message else "pass"
    return Verdict(
        cell=cell, tag="tag", status=status, message=message, kind=kind, judgement="judgement"
    )


def test_the_zoo_fails_for_each_kind_of_fault() -> None:
    good = [make_verdict(f"bert/{opset}/cpu", "agree") for opset in range(100)]
    red = make_verdict("gpt/18/cpu", "false red", "parity: wrong")
    reason = Reason(cells=("gpt/*",), text="the reason")
    assert not list(list_faults(good, ()))
    assert not list(list_faults([*good, red], (reason,)))
    (fault,) = list_faults([*good, red], ())
    assert fault == "no reason for gpt/18/cpu; add one to reasons.toml"
    (fault,) = list_faults([*good, make_verdict("gpt/18/cpu", "false green")], (reason,))
    assert fault == "1 cells are false green; there must be none"
    (fault,) = list_faults([*good, make_verdict("gpt/18/cpu", "unjudged")], (reason,))
    assert fault == "1 cells are unjudged; there must be none"
    (fault,) = list_faults([*good[:4], red], (reason,))
    assert fault == "80.0% of the cells agree; there must be 97%"


def test_the_page_contains_each_disagreement_with_its_reason() -> None:
    verdicts = [
        make_verdict("bert/18/cpu", "agree"),
        make_verdict("gpt/18/cpu", "false red", "parity: a | b"),
    ]
    page = make_page(verdicts, [Reason(cells=("gpt/*",), text="the reason")], {"torch": "2"})
    assert "| all | 2 | 2 | 1 | 50.0% | 1 | 0 |" in page
    assert "| gpt/18/cpu | false red | parity: a \\| b | judgement | the reason |" in page
    assert "| gpt | **false red** |" in page
    assert "**not explained**" in make_page(verdicts, [], {})


def test_draws_stay_inside_the_promises() -> None:
    axes = (Axis(name="batch", example=4, min=2, max=6, multiple_of=2),)
    mask = declare_input(
        "mask", "batch", 5, at="args[1]", dtype="int64", fill=make_fill("mask", side="right")
    )
    tokens = declare_input(
        "tokens", "batch", at="args[2]", dtype="int64", fill=make_fill("randint", low=3, high=5)
    )
    spec = make_spec(axes=axes, inputs=(declare_input(), mask, tokens))
    sets = list(draw_sets(spec))
    assert {inputs["x"].shape[0] for inputs in sets} == {2, 4, 6}
    for inputs in sets:
        assert inputs["mask"].any(dim=1).all()
        assert 3 <= inputs["tokens"].min() <= inputs["tokens"].max() < 5
    assert not all(inputs["mask"].all() for inputs in sets)


def test_the_manifests_of_the_zoo_are_valid() -> None:
    models = load_project(PROJECT).models
    assert len(models) >= 60
    assert all(spec.tags and set(spec.opsets) <= {17, 18, 21, 23} for spec in models)
    cells = [f"{spec.id}/{opset}/cpu" for spec in models for opset in spec.opsets]
    for reason in read_reasons():
        known = [make_verdict(cell, "false red", "x") for cell in cells]
        assert any(reason.explains(verdict) for verdict in known), reason.text


def test_masked_positions_are_not_compared(tmp_path: Path) -> None:
    mask = declare_input(
        "mask", "batch", at="args[1]", dtype="int64", fill=make_fill("mask", side="right")
    )
    output = declare_output().model_copy(update={"shape": ("batch", 4), "masked_by": "mask"})
    spec = make_spec(inputs=(declare_input(), mask), outputs=(output,))
    inputs = {"x": torch.ones(2, 4), "mask": torch.tensor([1, 0])}
    (positions,) = list_masks(spec, inputs)
    assert positions.tolist() == [[True], [False]]
    padding = mask.model_copy(update={"fill": make_fill("padding", side="right")})
    spec = make_spec(inputs=(declare_input(), padding), outputs=(output,))
    (positions,) = list_masks(spec, inputs)
    assert positions.tolist() == [[False], [True]]
