"""The culprit of a failure: the runtime, the file or the model, within a limit of time."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from exporter.jobs import Sample
from exporter.manifest import Device, Fill, Input, Output
from exporter.records.record import Culprit
from exporter.worker.diagnose.explanation import blame_contract, blame_load_failure
from exporter.worker.diagnose.fault_analysis import explain_masked_rows
from exporter.worker.diagnose.replay import TimeLimitExceeded, limit_time
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
    blame = blame_load_failure(context, CPU, 30.0)
    assert blame is not None
    assert blame.culprit is culprit
    assert text in blame.evidence[0]
    assert str(tmp_path) not in blame.evidence[0]


def test_no_blame_without_reference_evaluator_or_sample(tmp_path: Path) -> None:
    context = make_subject(tmp_path, reference=make_reference(declared(tmp_path)))
    assert blame_load_failure(context, Device(name="r", runtime="reference"), 30.0) is None
    without_sample = make_subject(tmp_path, reference=make_reference())
    assert blame_load_failure(without_sample, CPU, 30.0) is None


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
VALUES = np.arange(1, 7, dtype=np.float32).reshape(2, 3)


def explain(folder: Path, actual: Array, mask: Array = MASK, fill: str = "mask") -> str:
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


def test_garbage_at_masked_positions_is_named(tmp_path: Path) -> None:
    evidence = explain(tmp_path, change(0, 0))
    assert evidence.startswith("right at all positions with 1 in 'm', wrong only at masked")
    assert "declare masked_by = 'm'" in evidence


def test_the_opposite_mask_is_recognized(tmp_path: Path) -> None:
    evidence = explain(tmp_path, change(0, 0), mask=1 - MASK, fill="padding")
    assert "right at all positions with 0 in 'm'" in evidence
    assert 'fill = { padding = "right" }' in evidence


def test_a_row_without_an_allowed_element_is_named(tmp_path: Path) -> None:
    assert "with 1 in 'm'" in explain(tmp_path, change(0, 1), mask=EMPTY_ROW, fill="ones")
    assert "with 0 in 'm'" in explain(tmp_path, change(0, 1), mask=1 - EMPTY_ROW, fill="zeros")


@pytest.mark.parametrize("fill", ["ones", "mask", "bernoulli"])
@pytest.mark.parametrize("mask", [MASK, EMPTY_ROW])
def test_wrong_values_elsewhere_are_not_excused(mask: Array, fill: str, tmp_path: Path) -> None:
    assert explain(tmp_path, change(1, 1), mask=mask, fill=fill) == ""


def test_zeros_in_complete_rows_are_no_mask(tmp_path: Path) -> None:
    assert explain(tmp_path, change(0, 0), fill="ones") == ""


def test_random_ones_are_no_mask(tmp_path: Path) -> None:
    assert explain(tmp_path, change(0, 0), fill="bernoulli") == ""


def test_a_mask_that_excludes_everything_proves_nothing(tmp_path: Path) -> None:
    assert explain(tmp_path, change(0, 0), mask=np.zeros_like(MASK)) == ""


def spin() -> None:
    while True:
        pass


def stop_inside() -> None:
    with pytest.raises(TimeLimitExceeded), limit_time(0.05):
        spin()
    spin()


def test_running_python_code_is_stopped() -> None:
    start = time.process_time()
    with pytest.raises(TimeLimitExceeded), limit_time(0.1):
        spin()
    assert time.process_time() - start < 2


def test_code_within_the_limit_is_not_stopped() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with limit_time(10):
        done = True
    assert done
    assert signal.getsignal(signal.SIGALRM) is before


def test_earliest_limit_counts() -> None:
    with pytest.raises(TimeLimitExceeded), limit_time(0.1), limit_time(10):
        spin()


def test_outer_limit_continues_after_the_inner_one() -> None:
    start = time.process_time()
    with pytest.raises(TimeLimitExceeded), limit_time(0.3):
        stop_inside()
    assert 0.25 < time.process_time() - start < 3


def test_other_threads_have_no_limit() -> None:
    result: list[bool] = []

    def work() -> None:
        with limit_time(0.01):
            time.sleep(0.05)
            result.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert result == [True]


def test_a_descendant_counts_and_a_loaded_machine_does_not() -> None:
    busy = [sys.executable, "-c", "while True: pass"]
    with pytest.raises(TimeLimitExceeded), limit_time(0.5):
        subprocess.run(busy, check=False)
    end = time.monotonic() + 2.5
    with limit_time(2.0):
        while time.monotonic() < end:
            time.sleep(0.02)
            sum(range(20_000))  # some CPU time, as a process that waits for a core
