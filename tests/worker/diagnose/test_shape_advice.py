"""Messages of torch.export about sizes become lines of a manifest."""

from __future__ import annotations

import pytest

from exporter.jobs.reference import Sample
from exporter.manifest import Axis
from exporter.manifest.resolved.call import SizeRule
from exporter.records.record import Stage
from exporter.worker.diagnose.explanation import explain_failure
from exporter.worker.diagnose.shape_advice import advise_on_failure, advise_on_program
from exporter.worker.model.source_loader import load_model
from exporter.worker.process.failure import Failure
from tests.worker.contracts import ROOT, declare_input, declare_output, make_contract
from tests.worker.diagnose.cases import case_of, wrong_contract


def test_fixed_size_is_named_with_its_input() -> None:
    axes = (Axis(name="batch", example=3), Axis(name="flat", example=None))
    spec = make_contract("ConstantSize", outputs=(declare_output("y", "flat"),), axes=axes)
    case = case_of(spec, 18, dynamo=True, capture=False)
    with pytest.raises(Failure) as caught:
        case_of(spec, 18, dynamo=True)
    failure = explain_failure(caught.value, case, 10.0)
    assert failure.stage is Stage.CAPTURE
    assert failure.advice == (
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
    (line,) = explain_failure(caught.value, case, 30.0).advice
    assert "torch.where or torch.cond" in line


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
