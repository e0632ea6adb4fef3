"""PyTorch's results on every input set."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from exporter.checks.protocol import read_sample
from exporter.jobs import JobFolder, Reference
from exporter.manifest import Axis, Case, ModelSpec
from exporter.records.record import Stage, Status
from exporter.worker.model.source_loader import load_model
from exporter.worker.process.failure import Failure
from exporter.worker.reference import eager_run, reference_run
from exporter.worker.reference.eager_run import BufferSnapshot
from exporter.worker.reference.reference_run import compute_reference, format_reference_notes
from tests.traps.prove import export
from tests.worker.contracts import ROOT, declare_input, declare_output, make_contract, make_fill

SPECIAL = ("special values of x", "equal values of x", "rising values of x")


def run_reference(spec: ModelSpec, folder: Path) -> Reference:
    return compute_reference(load_model(spec, ROOT), spec, ROOT, JobFolder(folder))


def test_every_set_runs_and_is_written(tmp_path: Path) -> None:
    spec = make_contract("Affine")
    reference = run_reference(spec, tmp_path)
    assert [sample.name for sample in reference.samples] == [
        "declared",
        "batch=7",
        "batch=1",
        "batch=2",
        "batch=16",
        "other x",
        *SPECIAL,
    ]
    for sample in reference.samples:
        folder = JobFolder(tmp_path).sample(sample.index)
        is_measured = sample.name not in SPECIAL
        assert sorted(path.name for path in folder.iterdir()) == [
            *(["float64_0.pb"] if is_measured else []),
            "input_0.pb",
            "output_0.pb",
        ]
        data = read_sample(folder, spec)
        assert data.outputs[0].shape == (sample.axes["batch"], 3)
        # Usual values may be much smaller than special ones.
        scales = (abs(data.outputs[0]).max(),) if is_measured else ()
        assert sample.scales == pytest.approx(scales)


@pytest.mark.parametrize(
    ("rows", "cases", "texts"),
    [
        (1, (), ("other values of input 'rows': PyTorch rejects", "input 'm' omitted: no case")),
        (1, (Case(name="none", absent=("m",)),), ("other values of input 'rows'",)),
        (1, (Case(name="0", fills={"rows": make_fill("value", value=0)}),), ("input 'm' omitted",)),
        (9, (), ("input 'm' omitted",)),
    ],
    ids=["nothing is proved", "omitted", "a case", "accepted"],
)
def test_an_input_without_other_values_is_not_proved(
    rows: int, cases: tuple[Case, ...], texts: tuple[str, ...], tmp_path: Path
) -> None:
    item = declare_input(
        "rows", at="args[1]", shape=(), dtype="int64", fill=make_fill("value", value=0)
    )
    spec = make_contract(
        "LimitedRow",
        init={"rows": rows},
        inputs=(declare_input(), item, declare_input("m", at="kwargs.m", optional=True)),
        cases=cases,
    )
    # The processes of pytest-xdist have threads, so other calls are impossible there.
    notes = run_reference(spec, tmp_path).unproved[""]
    unproved = [each for each in notes if not each.startswith("the same outputs after other calls")]
    assert all(text.startswith(start) for text, start in zip(unproved, texts, strict=True))


def declare(net: str, signature: str = "", **changes: object) -> ModelSpec:
    values = {"manifest": "net.toml", "source": f"tests/{net}", "opsets": (16,)}
    return make_contract("", signature, **values | changes)


def declare_places(longest: int) -> ModelSpec:
    axes = (Axis(name="batch", example=3), Axis(name="length", example=5, max=longest))
    signature = "x [batch, length] -> y [batch, length]"
    return declare("traps/models/sizes.py:Positions", signature, axes=axes)


def declare_bias(*cases: Case) -> ModelSpec:
    return declare(
        "features/models/calls.py:MaybeBias",
        "x [batch, 4] -> y [batch, 4]",
        inputs=(declare_input(), declare_input("bias", at="kwargs.bias", optional=True)),
        capture="script",
        cases=cases,
    )


@pytest.mark.parametrize(
    ("spec", "notes"),
    [
        (
            declare_places(60_000),
            ["length above 16: a run at length=60000 is too large for each file"],
        ),
        (declare_places(20_000), []),
        (declare_bias(), ["input 'bias' omitted: no case omits it"]),
        (declare_bias(Case(name="plain", absent=("bias",))), []),
    ],
    ids=["size too large", "largest size", "never omitted", "omitted"],
)
def test_a_green_record_names_the_promises_without_a_sample(
    spec: ModelSpec, notes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eager_run, "_MOST_COMPUTED", 100_000)
    (record,) = export(spec, tmp_path / "net")
    assert record.status is Status.PASS, record.message
    prefix = "not proved: "
    assert [n.removeprefix(prefix) for n in record.notes if n.startswith(prefix)] == notes


def test_the_noise_is_the_rounding_of_float32(tmp_path: Path) -> None:
    reference = run_reference(make_contract("Affine"), tmp_path)
    assert reference.float64 == ""
    noise = reference.noise[0]
    assert noise is not None
    assert 1e-9 < noise < 1e-6
    assert reference.unstable == ""
    assert reference.output_spread[0] is not None
    assert reference.output_spread[0] > 0.1


def test_a_large_model_has_the_same_noise_and_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_contract("Affine")
    small = run_reference(spec, tmp_path / "small")
    assert format_reference_notes(spec, small) == ()
    monkeypatch.setattr(eager_run, "_COPIED", 0)
    large = run_reference(spec, tmp_path / "large")
    assert (large.noise, large.samples) == (small.noise, small.samples)
    (note,) = format_reference_notes(spec, large)
    exact = sum(sample.exact for sample in large.samples)
    assert note.startswith(f"float64: {exact} of {len(large.samples)} samples ran first as a copy")


@pytest.mark.parametrize("is_cast", [False, True])
def test_a_model_that_creates_float32_runs_in_float64(is_cast: bool, tmp_path: Path) -> None:
    spec = make_contract("Float32Positions", init={"is_cast": is_cast})
    reference = run_reference(spec, tmp_path)
    if is_cast:
        assert "in its declared dtype for all inputs" in reference.float64
        return
    assert reference.float64 == ""
    noise = reference.noise[0]
    assert noise is not None
    assert 1e-9 < noise < 1e-6


def test_a_model_that_casts_inside_has_no_float64_reference(tmp_path: Path) -> None:
    spec = make_contract("Float32Only", "x [batch, 4] -> y [batch, 4]")
    reference = run_reference(spec, tmp_path)
    assert reference.noise == (None,)
    assert "in its declared dtype for all inputs" in reference.float64


def test_a_random_model_is_unstable(tmp_path: Path) -> None:
    spec = make_contract("RandomOutput", "x [batch, 4] -> y [batch, 4]")
    assert "output 'y' differs by" in run_reference(spec, tmp_path).unstable


def test_a_model_with_state_is_unstable_and_restored_before_each_run(tmp_path: Path) -> None:
    spec = make_contract("Counter", "x [batch, 4] -> y [batch, 4]")
    reference = run_reference(spec, tmp_path)
    assert reference.unstable.startswith(
        "it keeps state in its buffers (calls): output 'y' differs by"
    )
    sample = read_sample(JobFolder(tmp_path).sample(1), spec)
    assert (sample.inputs["x"] == sample.outputs[0]).all()


def test_a_set_that_fails_after_other_sets_shows_a_state(tmp_path: Path) -> None:
    reference = run_reference(make_contract("FailsLater", "x [batch, 4] -> y [batch, 4]"), tmp_path)
    assert reference.unstable.startswith(
        "its outputs depend on earlier calls, which change the attribute 'largest': "
        "the model fails after other calls: ValueError: too many rows"
    )


def test_other_rounding_after_other_sets_is_no_state(tmp_path: Path) -> None:
    spec = make_contract("RoundsLater", "x [batch, 4] -> y [batch, 4]")
    assert run_reference(spec, tmp_path).unstable == ""


def test_statistics_without_effect_on_outputs_are_no_state(tmp_path: Path) -> None:
    axes = (Axis(name="batch", example=3, min=2),)
    spec = make_contract(
        "BatchNorm", outputs=(declare_output("y", "batch", 4),), axes=axes, mode="train"
    )
    reference = run_reference(spec, tmp_path)
    assert reference.unstable == ""
    assert all(not sample.error for sample in reference.samples)


def test_a_model_that_changes_its_input_is_stored_with_the_original_input(tmp_path: Path) -> None:
    spec = make_contract("InPlaceAddition", "x [batch, 4] -> y [batch, 4]")
    run_reference(spec, tmp_path)
    sample = read_sample(JobFolder(tmp_path).sample(0), spec)
    assert (sample.inputs["x"] + 1 == sample.outputs[0]).all()


def test_a_build_whose_process_ends_has_no_other_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_contract("Affine")
    model = load_model(spec, ROOT)
    monkeypatch.setattr(reference_run, "compute_in_fork", lambda _: None)
    change = "its buffers differ"
    reference = compute_reference(model, spec, ROOT, JobFolder(tmp_path), change)
    assert reference.unstable == ""
    texts = [each for each in reference.unproved[""] if "another build" in each]
    assert texts == ["the outputs of another build of the model: its process failed or ended early"]


def test_a_build_with_other_outputs_is_unstable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_contract("Affine")
    model = load_model(spec, ROOT)
    for result, unstable in (("output 'y' differs", "its buffers differ"), ("", "")):
        monkeypatch.setattr(reference_run, "compute_in_fork", lambda _, text=result: text)
        reference = compute_reference(
            model, spec, ROOT, JobFolder(tmp_path / unstable), "its buffers differ"
        )
        assert reference.unstable == unstable


def test_a_size_that_pytorch_rejects_is_stored_with_its_error(tmp_path: Path) -> None:
    spec = make_contract("LimitedBatch", "x [batch, 4] -> y [batch, 4]")
    reference = run_reference(spec, tmp_path)
    errors = {sample.name: sample.error for sample in reference.samples if sample.error}
    message = "ValueError: at most 5 rows at tests/worker/nets.py:64"
    assert errors == {"batch=7": message, "batch=16": message}


def test_an_input_without_other_values_does_not_affect_the_spread(tmp_path: Path) -> None:
    # There is one row: PyTorch rejects index 1, which is no fault of the model.
    index = declare_input(
        "i", at="args[1]", shape=(), dtype="int64", fill=make_fill("value", value=0)
    )
    spec = make_contract(
        "RowLookup", inputs=(declare_input("x", 1, 4, fill=make_fill("ones")), index), axes=()
    )
    spec = spec.model_copy(update={"outputs": (declare_output("y", 4),)})
    reference = run_reference(spec, tmp_path)
    assert [sample.name for sample in reference.samples] == ["declared", "other x"]
    assert reference.output_spread == (0.75,)


def test_each_input_gets_other_values_once(tmp_path: Path) -> None:
    pair = (declare_input("left"), declare_input("right", at="args[1]"))
    outputs = (declare_output("difference", "batch", 4), declare_output("twice", "batch", 4))
    spec = make_contract("KeywordInputs", inputs=pair, outputs=outputs)
    reference = run_reference(spec, tmp_path)
    values = [sample for sample in reference.samples if sample.kind != "axis"][:3]
    assert [sample.name for sample in values] == ["declared", "other left", "other right"]
    sets = [read_sample(JobFolder(tmp_path).sample(each.index), spec) for each in values]
    declared, other_left, other_right = (data.inputs for data in sets)
    assert (declared["left"] != other_left["left"]).any()
    assert (declared["right"] == other_left["right"]).all()
    assert (declared["left"] == other_right["left"]).all()
    assert (declared["right"] != other_right["right"]).any()


@pytest.mark.parametrize(
    ("spec", "status", "message"),
    [
        (
            make_contract("TextOutput", "x [batch, 4] -> y [batch, 4]"),
            Status.FAIL,
            "the model returns 2 outputs (['y']: float32 [3, 4], ['name']: str); only tensors",
        ),
        (
            make_contract("Affine", "x [batch, 4] -> y [batch, 3], z [batch, 3]"),
            Status.FAIL,
            "the model returns 1 output (the result: float32 [3, 3]); the entry declares 2 (y, z)",
        ),
        (
            make_contract(
                "KeywordInputs",
                "left [batch, 4], right [batch, 4] -> left [batch, 4], difference [batch, 4]",
            ),
            Status.FAIL,
            "['left']: float32 [3, 4]); the entry declares them in another order (left, diff",
        ),
        (
            make_contract("Affine", "x [batch, 5] -> y [batch, 3]"),
            Status.ERROR,
            "mat1 and mat2 shapes cannot be multiplied",
        ),
    ],
)
def test_a_model_that_does_not_fit_its_contract_fails_at_source(
    spec: ModelSpec, status: Status, message: str, tmp_path: Path
) -> None:
    with pytest.raises(Failure) as caught:
        run_reference(spec, tmp_path)
    assert (caught.value.stage, caught.value.status) == (Stage.SOURCE, status)
    assert message in caught.value.message


def test_buffers_are_restored() -> None:
    model = load_model(make_contract("Counter"), ROOT)
    snapshot = BufferSnapshot(model)
    assert isinstance(model, torch.nn.Module)
    model(torch.ones(1, 4))
    assert float(dict(model.named_buffers())["calls"]) == 1.0
    snapshot.restore()
    assert float(dict(model.named_buffers())["calls"]) == 0.0


def test_an_axis_of_outputs_only_needs_no_size(tmp_path: Path) -> None:
    spec = make_contract("NonZero", "x [batch, 4] -> y int64 [found, 2]")
    reference = run_reference(spec, tmp_path)
    assert reference.noise == (None,)
    assert reference.samples[0].axes == {"batch": 3}


def test_complex_numbers_are_written_as_pairs_and_run_in_float64(tmp_path: Path) -> None:
    spec = make_contract("ComplexProduct", "z complex64 [batch, 4] -> w complex64 [batch, 4]")
    reference = run_reference(spec, tmp_path)
    assert reference.float64 == ""
    noise, spread = reference.noise[0], reference.output_spread[0]
    assert noise is not None
    assert spread is not None
    assert 0 < noise < 1e-6
    assert spread > 0.1
    data = read_sample(JobFolder(tmp_path).sample(0), spec)
    assert {array.shape for array in (data.inputs["z"], *data.outputs)} == {(3, 4, 2)}
    assert (data.inputs["z"].dtype.name, data.outputs[0].dtype.name) == ("float32", "float32")
    assert data.float64_outputs[0] is not None


@pytest.mark.parametrize(("dtype", "net"), [("float32", "ComplexProduct"), ("complex64", "Affine")])
def test_a_complex_output_must_be_declared_complex(dtype: str, net: str, tmp_path: Path) -> None:
    given_as = "complex64" if net == "ComplexProduct" else "float32"
    spec = make_contract(
        net,
        inputs=(declare_input("z", "batch", 4, dtype=given_as),),
        outputs=(declare_output("w", "batch", 4, dtype=dtype),),
    )
    with pytest.raises(Failure, match=f"output 'w' is {given_as}, declared {dtype}") as raised:
        run_reference(spec, tmp_path)
    assert (raised.value.stage, raised.value.status) == (Stage.SOURCE, Status.FAIL)
