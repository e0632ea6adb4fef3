"""A difference in rows without any allowed element is a note."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from exporter.checks import RUNTIME_CHECKS
from exporter.checks.protocol import CheckContext
from exporter.checks.sample_checks import NOTE_PREFIX, describe_masked_samples
from exporter.manifest import Fill, Input, Output
from exporter.records.record import Status
from tests.unit.checks.contexts import (
    ConstantSession,
    contract,
    make_reference,
    make_subject,
    write,
)

VALUES = np.float32([1, 2, 3])


def make_masked_context(folder: Path) -> CheckContext:
    item = Input(name="m", shape=(3,), at="args[0]", dtype="int64", fill=Fill(kind="ones"))
    spec = contract(inputs=(item,), outputs=(Output(name="y", shape=(3,)),), axes=())
    sample = write(folder, 0, [np.zeros(3, np.int64)], [VALUES])
    masked = sample.model_copy(update={"kind": "masked", "changed_input": "m"})
    return make_subject(folder, spec=spec, reference=make_reference(masked))


def test_equal_outputs_give_no_note(tmp_path: Path) -> None:
    session = ConstantSession(VALUES, names=("y",))
    assert describe_masked_samples(make_masked_context(tmp_path), session, "cpu") == ()


def test_a_difference_is_a_note_that_names_the_mask(tmp_path: Path) -> None:
    session = ConstantSession(VALUES + 1, names=("y",))
    (note,) = describe_masked_samples(make_masked_context(tmp_path), session, "cpu")
    assert note.startswith(f"{NOTE_PREFIX}PyTorch and the file differ if 'm' allows no element")


def test_no_check_compares_the_sample(tmp_path: Path) -> None:
    context = make_masked_context(tmp_path)
    session = ConstantSession(VALUES + 1, names=("y",))
    checks = [check for check in RUNTIME_CHECKS if check.name in ("axes", "cases", "values")]
    assert not any(check.applies(context) for check in checks)
    assert context.reference.promised_samples == ()
    assert Status.FAIL not in [check(context, session, "cpu").status for check in checks]
