"""The culprit of a failure: the runtime, the file or the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from exporter.jobs import Sample
from exporter.manifest import Axis, Device, Fill, Input, ModelSpec, Output, Tolerance
from exporter.manifest.resolved.call import SizeRule
from exporter.records.record import Culprit, MissingOperator, Record, Stage
from exporter.worker.diagnose.explanation import (
    advise_lower_opset,
    advise_on_failure,
    advise_on_operators,
    advise_on_program,
    blame_contract,
    blame_load_failure,
)
from exporter.worker.diagnose.fault_analysis import explain_masked_rows
from exporter.worker.model.source_loader import load_model
from exporter.worker.process.failure import Failure
from tests.traps import trap
from tests.traps.prove import export
from tests.unit.checks.contexts import (
    DOUBLE,
    Array,
    ConstantSession,
    contract,
    declared,
    make_reference,
    make_subject,
    write,
)
from tests.worker.contracts import ROOT, declare_input, declare_output, make_contract
from tests.worker.diagnose.cases import case_of, explain, write_export, wrong_contract

CPU = Device(name="cpu", runtime="onnxruntime")


@pytest.mark.parametrize(
    ("model", "culprit", "text"),
    [
        (DOUBLE, Culprit.RUNTIME, "onnx.reference: right"),
        (DOUBLE.replace("{2.0}", "{3.0}"), Culprit.EXPORTER, "times the bound"),
        (
            DOUBLE.replace('"" : 18', '"" : 18, "unknown" : 1').replace("Mul", "unknown.Mul"),
            Culprit.UNKNOWN,
            "rejects the file too",
        ),
    ],
)
def test_reference_evaluator_decides(
    model: str, culprit: Culprit, text: str, tmp_path: Path
) -> None:
    context = make_subject(tmp_path, model, reference=make_reference(declared(tmp_path)))
    blame = blame_load_failure(context, CPU)
    assert blame is not None
    assert blame.culprit is culprit
    assert text in blame.evidence[0]
    assert str(tmp_path) not in blame.evidence[0]


def test_no_blame_without_reference_evaluator_or_sample(tmp_path: Path) -> None:
    context = make_subject(tmp_path, reference=make_reference(declared(tmp_path)))
    assert blame_load_failure(context, Device(name="r", runtime="reference")) is None
    without_sample = make_subject(tmp_path, reference=make_reference())
    assert blame_load_failure(without_sample, CPU) is None


def test_the_contract_is_the_culprit_if_pytorch_rejects_a_size(tmp_path: Path) -> None:
    rejected = Sample(index=1, name="batch=7", kind="axis", axes={"batch": 7}, error="too large")
    accepted = make_subject(tmp_path, reference=make_reference(declared(tmp_path)))
    assert blame_contract(accepted) is None
    reference = make_reference(declared(tmp_path), rejected)
    blame = blame_contract(make_subject(tmp_path, reference=reference))
    assert blame is not None
    assert (blame.culprit, blame.sample) == (Culprit.CONTRACT, "batch=7")
    assert blame.evidence == ("PyTorch itself rejects this input set: too large",)


MASK = np.array([[0, 1, 1], [1, 1, 1]])
EMPTY_ROW = np.array([[0, 0, 0], [1, 1, 1]])
FILLS = ("ones", "mask", "bernoulli")
VALUES = np.arange(1, 7, dtype=np.float32).reshape(2, 3)


def explain_masks(folder: Path, actual: Array, mask: Array = MASK, fill: str = "mask") -> str:
    rule = Fill.model_validate({"kind": fill})
    item = Input(name="m", shape=(2, 3), at="args[0]", dtype="int64", fill=rule)
    spec = contract(inputs=(item,), outputs=(Output(name="y", shape=(2, 3)),), axes=())
    sample = write(folder, 0, [mask], [VALUES])
    context = make_subject(folder, spec=spec, reference=make_reference(sample))
    return explain_masked_rows(context, "cpu", sample, ConstantSession(actual, names=("y",)))


def change(*index: int) -> Array:
    actual = VALUES.copy()
    actual[index] += 5
    return actual


@pytest.mark.parametrize(
    ("wrong", "mask", "fill", "parts"),
    [
        (
            (0, 0),
            MASK,
            "mask",
            (
                "right at all positions with 1 in 'm', wrong only at masked",
                "declare masked_by = 'm'",
            ),
        ),
        (
            (0, 0),
            1 - MASK,
            "padding",
            ("right at all positions with 0 in 'm'", 'fill = { padding = "right" }'),
        ),
        # a row without an allowed element
        ((0, 1), EMPTY_ROW, "ones", ("with 1 in 'm'",)),
        ((0, 1), 1 - EMPTY_ROW, "zeros", ("with 0 in 'm'",)),
        # wrong values elsewhere
        *(((1, 1), mask, fill, ()) for mask in (MASK, EMPTY_ROW) for fill in FILLS),
        # zeros in complete rows, random ones, and a mask that excludes everything
        ((0, 0), MASK, "ones", ()),
        ((0, 0), MASK, "bernoulli", ()),
        ((0, 0), np.zeros_like(MASK), "mask", ()),
    ],
)
def test_wrong_values_at_masked_positions_are_explained(
    wrong: tuple[int, int], mask: Array, fill: str, parts: tuple[str, ...], tmp_path: Path
) -> None:
    evidence = explain_masks(tmp_path, change(*wrong), mask=mask, fill=fill)
    assert all(part in evidence for part in parts)
    assert bool(evidence) is bool(parts)


def test_fixed_size_is_named_with_its_input() -> None:
    axes = (Axis(name="batch", example=3), Axis(name="flat", example=None))
    spec = make_contract("ConstantSize", outputs=(declare_output("y", "flat"),), axes=axes)
    case = case_of(spec, 18, dynamo=True, capture=False)
    with pytest.raises(Failure) as caught:
        case_of(spec, 18, dynamo=True)
    assert caught.value.stage is Stage.CAPTURE
    assert explain(caught.value, case)["advice"] == (
        "dimension 0 of input 'x' is always 3 in this model: replace 'batch' by 3 (promises less)",
    )


@pytest.mark.parametrize(
    "text",
    [
        "L['pair'][1].size()[0] as dynamic but your code specialized it to be a constant (3).",
        "- tracing inferred a static shape of 3 for dimension inputs['pair'][1].shape[0].",
    ],
)
def test_input_inside_a_tuple_is_found(text: str) -> None:
    inputs = (
        declare_input(),
        declare_input("a", at="args[1][0]"),
        declare_input("b", "rows", 4, at="args[1][1]"),
    )
    axes = (Axis(name="batch", example=3), Axis(name="rows", example=3))
    spec = make_contract(
        "NestedInputs", inputs=inputs, axes=axes, outputs=(declare_output("y", "batch", 4),)
    )
    (line,) = advise_on_failure(text, load_model(spec, ROOT), spec)
    assert line.startswith("dimension 0 of input 'b' is always 3")
    assert line.endswith("replace 'rows' by 3 (promises less)")


@pytest.mark.parametrize(
    ("fix", "line"),
    [
        ("batch = Dim('batch', max=512)", "axes.batch.max = 512"),
        ("batch = 2*_batch", "axes.batch = { example = 4, multiple_of = 2 }"),
        ("batch = 3", "replace 'batch' by 3"),
        ("rows = batch", "replace 'rows' by 'batch': the model requires equal sizes"),
    ],
)
def test_suggested_fixes_become_lines_of_the_manifest(fix: str, line: str) -> None:
    axes = (Axis(name="batch", example=3), Axis(name="rows", example=5))
    spec = make_contract("Affine", axes=axes)
    text = f"Constraints violated (batch)!\n\nSuggested fixes:\n  {fix}\n"
    assert advise_on_failure(text, load_model(spec, ROOT), spec) == (f"{line} (promises less)",)


def test_a_size_that_only_the_capture_fixed_is_no_property_of_the_model() -> None:
    axes = (Axis(name="batch", example=3),)
    spec = make_contract("Affine", axes=axes)
    text = (
        "L['x'].size()[0] as dynamic but your code specialized it to be a constant (3).\n"
        "Suggested fixes:\n  batch = 3\n"
    )
    samples = [
        Sample(index=index, name=f"batch={size}", kind="axis", axes={"batch": size}, error=error)
        for index, (size, error) in enumerate([(3, ""), (7, "too large"), (5, "")])
    ]
    model = load_model(spec, ROOT)
    (line,) = advise_on_failure(text, model, spec, samples)
    assert line.startswith("torch.export fixed dimension 0 of input 'x' to 3, but PyTorch accepts")
    lines = advise_on_failure(text, model, spec, samples[:2])
    assert [line.partition(":")[2] for line in lines] == [" replace 'batch' by 3 (promises less)"]


def test_a_condition_on_values_has_its_cures() -> None:
    spec = wrong_contract("Signs")
    case = case_of(spec, 18, dynamo=True, capture=False)
    with pytest.raises(Failure) as caught:
        case_of(spec, 18, dynamo=True)
    (line,) = explain(caught.value, case)["advice"]
    assert "torch.where or torch.cond" in line


@pytest.mark.parametrize(
    ("text", "is_number"),
    [
        ("RuntimeError: output 1 (7\n) of traced region did not depend on the inputs", True),
        ("AttributeError: 'int' object has no attribute 'name'", True),
        ("AttributeError: 'Node' object has no attribute 'name'", False),
    ],
)
def test_a_constant_number_as_an_output_has_advice(text: str, is_number: bool) -> None:
    case = case_of(make_contract("Affine"), 13, dynamo=False)
    fields = explain(Failure(Stage.CONVERT, text), case)
    assert ("Python number" in str(fields.get("advice"))) == is_number


def test_other_messages_give_no_advice() -> None:
    spec = make_contract("Affine")
    assert advise_on_failure("RuntimeError: batch = 3", load_model(spec, ROOT), spec) == ()


def test_program_for_fewer_sizes_gives_advice() -> None:
    case = case_of(wrong_contract("Short"), 18, dynamo=True)
    large = {"batch": 512}
    assert advise_on_program(case.program, case.spec, {"batch": 511}) == ()
    assert advise_on_program(case.program, case.spec, {}) == ()  # a failure by values
    assert advise_on_program(case.program, case.spec, large) == (
        (
            "axes.batch.max = 511: torch.export captured the model for these sizes only "
            "(promises less)"
        ),
    )
    narrow = case.spec.model_copy(update={"axes": (Axis(name="batch", example=3, max=64),)})
    assert advise_on_program(case.program, narrow, large) == ()
    rule = SizeRule(kind="product", operands=("rows", 3))
    derived = (Axis(name="batch", example=3, rule=rule), Axis(name="rows", example=1))
    derived_spec = case.spec.model_copy(update={"axes": derived})
    assert advise_on_program(case.program, derived_spec, large) == ()
    sound = case_of(wrong_contract("Chain"), 18, dynamo=True)
    assert advise_on_program(sound.program, sound.spec, large) == ()


@pytest.mark.parametrize(
    ("operator", "setting"),
    [
        ("transformers.grouped_mm_fallback.default", 'experts_implementation = "batched_mm"'),
        ("aten._grouped_mm.default", 'experts_implementation = "batched_mm"'),
        ("flash_attn._flash_attn_forward.default", 'attn_implementation = "sdpa"'),
        ("higher_order.flex_attention", 'attn_implementation = "sdpa"'),
    ],
)
def test_a_setting_of_the_library_avoids_the_operator(operator: str, setting: str) -> None:
    missing = [MissingOperator(operator=name, count=2, sources=()) for name in (operator,) * 2]
    (advice,) = advise_on_operators(missing)
    assert setting in advice


def test_other_operators_have_no_such_advice() -> None:
    missing = [MissingOperator(operator="aten.special_airy_ai.default", count=1, sources=())]
    assert advise_on_operators(missing) == ()


SIZE = (
    "torch.export fixed dimension 0 of input 'x' to 3, but PyTorch accepts other sizes: compute "
    "with `shape` in the model, without `int()` and branches on this size"
)


def run(spec: ModelSpec, folder: Path) -> Record:
    (record,) = export(spec, folder / "job", root=ROOT, diagnose=True)
    assert not list((folder / "job").glob(".again*"))
    return record


def by_size(net: str, opset: int) -> ModelSpec:
    return wrong_contract(net, opsets=(opset,))


def test_torchscript_is_proposed_before_a_fixed_size(tmp_path: Path) -> None:
    record = run(by_size("DoublesBySize", trap.DYNAMO), tmp_path)
    assert record.stage is Stage.CAPTURE
    assert record.advice == (
        'exporter = "torchscript": its file passes all checks at opset 18',
        SIZE,
    )


@pytest.mark.parametrize(
    ("net", "opset"),
    [
        ("TriplesBySize", trap.DYNAMO),  # TorchScript stores the example's choice
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
    spec = trap.contract(
        "numbers.py:WritesView",
        17,
        inputs=(trap.declare_input(),),
        outputs=(trap.declare_output("y", "batch", 4),),
    )
    (record,) = export(spec, tmp_path / "job", diagnose=True)
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
    assert advise_lower_opset(case, subject) == advice
