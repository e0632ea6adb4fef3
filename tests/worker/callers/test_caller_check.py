"""Programs that run a file: wrong ones are named with their mistake, right ones pass."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.manifest import Axis, Caller, ModelSpec
from exporter.records.record import CheckResult, Record, Stage, Status
from tests.traps.prove import export, run_in_fork
from tests.worker.contracts import ROOT, make_contract, make_fill

_NETS = {
    "Picture": (
        "image [batch, 3, height=32, width=32] -> logits [batch, 5]",
        "classify",
        "list_pictures",
    ),
    "Text": (
        "ids int64 [batch, length=6], mask int64 [batch, length] -> states [batch, length, 16]",
        "embed",
        "list_texts",
    ),
    "Speed": ("speed [batch, 1] -> y [batch, 4]", "steer", "list_speeds"),
    "Sound": ("sound [batch, samples=80] -> y [batch, 4]", "hear", "list_sounds"),
}
_AXES = {
    "height": Axis(name="height", example=32, min=8, max=40),
    "width": Axis(name="width", example=32, min=8, max=40),
    "samples": Axis(name="samples", example=80, min=32, max=100),
}
_TOKENS = make_fill("randint", high=2)
#: A wrong program -> a model, and parts of the message.
_WRONG = {
    "classify_bytes": ("Picture", "'image' at", "subtracts the mean [123.7, 116.3, 103.5]"),
    "classify_plain": ("Picture", "'image' at", "subtracts the mean [0.485, 0.456, 0.406]"),
    "classify_bgr": ("Picture", "the channels are in the opposite order"),
    "classify_nhwc": ("Picture", "the channels are the last axis", "raises InvalidArgument"),
    "classify_in_float64": ("Picture", "its dtype is float64, and not float32"),
    "classify_without_softmax": (
        "Picture",
        "result.scores is 'logits', and PyTorch's is the softmax of 'logits'",
    ),
    "score_nearest": ("Picture", "the same picture by another resize"),
    "embed_left": ("Text", "'ids' at", "the padding is on the other side"),
    "embed_first": (
        "Text",
        "is the first row of 'states' along axis 1, and PyTorch's is the mean of 'states'",
        "over the rows of 'mask'",
    ),
    "steer_with_integer": ("Speed", "'speed' at", "it is cut to integers"),
    "steer_with_torch": ("Speed", "No module named 'torch'", "PyTorch is not installed"),
    "steer_with_kept_result": ("Speed", "sample 2: it does not run the file for this sample"),
    "steer_with_count": ("Speed", "is another one in a second run, after those of other samples"),
    "steer_with_other_file": ("Speed", "runs another file than the path that it receives"),
    "steer_by_formula": ("Speed", "has a result when its file is empty"),
    "return_object": ("Speed", "the result is a object; expected arrays"),
    "hear_without_context": ("Sound", "'sound' at", "it lacks the first 16 values of axis 1"),
}


def make_caller(program: str, net: str, **changes: object) -> Caller:
    _, reference, samples = _NETS[net]
    if program.startswith("score"):
        reference = "score_small"
    values = {
        "call": f"callers/served.py:{program}",
        "reference": f"callers/trained.py:{reference}",
        "samples": f"callers/trained.py:{samples}",
    }
    return Caller.model_validate(values | changes)


def keep(spec: ModelSpec) -> ModelSpec:
    return spec


def prove(
    net: str,
    folder: Path,
    *callers: Caller,
    change: Callable[[ModelSpec], ModelSpec] = keep,
) -> Record:
    def run() -> Record:
        spec = make_contract(
            net,
            _NETS[net][0],
            source=f"callers/trained.py:{net}",
            opsets=(17,),
            callers=callers,
        )
        inputs = tuple(
            each.model_copy(update={"fill": _TOKENS}) if each.dtype == "int64" else each
            for each in spec.inputs
        )
        axes = tuple(_AXES.get(axis.name, axis) for axis in spec.axes)
        spec = spec.model_copy(update={"inputs": inputs, "axes": axes})
        (record,) = export(change(spec), folder / "job", root=ROOT)
        return record

    return run_in_fork(run)


def find_result(record: Record) -> CheckResult:
    (result,) = [each for each in record.checks if each.check == "caller"]
    return result


@pytest.mark.parametrize("net", _NETS)
def test_the_mistake_of_each_wrong_program_is_named(net: str, tmp_path: Path) -> None:
    programs = [name for name, row in _WRONG.items() if row[0] == net]
    record = prove(net, tmp_path, *(make_caller(name, net) for name in programs))
    assert record.status is Status.FAIL
    assert record.failure_code == "E-caller"
    message = find_result(record).message
    parts = re.split(r"(?:^|; )callers/served.py:", message)[1:]
    assert len(parts) == len(programs), message
    for name, text in zip(programs, parts, strict=True):
        assert text.startswith(f"{name}: ")
        for expected in _WRONG[name][1:]:
            assert expected in text, text


@pytest.mark.parametrize("net", _NETS)
def test_a_right_program_passes(net: str, tmp_path: Path) -> None:
    callers = [make_caller(_NETS[net][1], net)]
    more = {"Picture": "score_small", "Speed": "steer_with_copy"}
    if net in more:
        callers.append(make_caller(more[net], net))
    record = prove(net, tmp_path, *callers)
    assert record.status is Status.PASS, record.message
    assert find_result(record).metrics == {"callers": len(callers)}


def test_equal_results_of_all_samples_prove_nothing(tmp_path: Path) -> None:
    caller = make_caller("steer", "Speed", samples="callers/trained.py:list_equal_speeds")
    record = prove("Speed", tmp_path, caller)
    assert record.status is Status.INCONCLUSIVE
    assert "one result for all samples" in record.message


def test_a_right_result_without_the_file_proves_nothing(tmp_path: Path) -> None:
    record = prove("Speed", tmp_path, make_caller("steer_with_known_answers", "Speed"))
    assert record.status is Status.INCONCLUSIVE
    assert "sample 3: has the right result, and runs the file for other samples" in record.message


def test_programs_with_effects_of_their_own_pass(tmp_path: Path) -> None:
    """One writes into its sample, one starts a service, and one leaves a process behind."""
    written = {
        "samples": "callers/trained.py:list_written_speeds",
        "reference": "callers/trained.py:steer_half",
    }
    callers = (
        make_caller("steer_in_place", "Speed", **written),
        make_caller("steer_with_service", "Speed"),
        make_caller("steer_in_a_fork", "Speed"),
    )
    record = prove("Speed", tmp_path, *callers)
    assert record.status is Status.PASS, record.message


def test_wrong_commands_have_messages(tmp_path: Path) -> None:
    programs = {
        "print([0.5]); print('done')": "prints neither JSON nor an .npz: Extra data",
        "print('no JSON')": "prints neither JSON nor an .npz: Expecting value",
        "raise SystemExit(3)": "exited with code 3",
        "print([0.5])": "the result",
    }
    callers = (
        Caller(
            command=(sys.executable, "-c", program, "{model}", "{sample}"),
            reference="callers/trained.py:steer",
            samples="callers/trained.py:list_speeds",
        )
        for program in programs
    )
    record = prove("Speed", tmp_path, *callers)
    assert record.status is Status.FAIL
    message = find_result(record).message
    for text in programs.values():
        assert text in message, message


def test_a_program_that_hangs_ends_at_its_limit(tmp_path: Path) -> None:
    def shorten(spec: ModelSpec) -> ModelSpec:
        return spec.model_copy(update={"timeout": 40.0})

    record = prove("Speed", tmp_path, make_caller("hang", "Speed"), change=shorten)
    assert record.status is Status.ERROR
    assert "callers/served.py:hang: its process did not finish within 10 s" in record.message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reference": "callers/trained.py:steer_at_random"}, "another result in a second call"),
        ({"reference": "callers/trained.py:steer_without_model"}, "does not call the model"),
        (
            {"reference": "callers/trained.py:steer_with_rounded_weights"},
            "steer_with_rounded_weights: changes the parameter 'line.weight' of the model; use a",
        ),
        ({"samples": "callers/trained.py:list_one_speed"}, "has 1 samples; name at least 2"),
    ],
)
def test_a_wrong_reference_is_a_failure_of_the_source(
    changes: dict[str, str], message: str, tmp_path: Path
) -> None:
    record = prove("Speed", tmp_path, make_caller("steer", "Speed", **changes))
    assert record.stage is Stage.SOURCE
    assert message in record.message
