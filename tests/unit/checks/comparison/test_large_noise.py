"""Errors of a file that are no larger than PyTorch's own, if that is too large for a bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exporter.checks.sample_checks import PARITY
from exporter.manifest import Output, Tolerance
from exporter.records.record import CheckResult, Status
from tests.unit.checks.contexts import (
    ConstantSession,
    contract,
    draw,
    make_reference,
    make_subject,
    value,
    write,
)


def check_large_noise(folder: Path, error: float, **changes: Any) -> CheckResult:
    """Return the result of a file with this error, if PyTorch's own error is 0.01 of the scale."""
    x = draw(16)
    y = x / np.abs(x).max()
    spec = contract(**changes)
    sample = write(folder, 0, [x], [y], exact=[y.astype(np.float64)], axes={"batch": 16})
    reference = make_reference(sample, large_noise=(0.01,))
    context = make_subject(folder, spec=spec, reference=reference)
    return PARITY(context, ConstantSession(y + np.float32(error)), "cpu")


def test_an_error_within_large_noise_is_inconclusive_with_the_figure(tmp_path: Path) -> None:
    result = check_large_noise(tmp_path, 0.05)
    assert result.status is Status.INCONCLUSIVE
    assert "PyTorch's own float32 error is 1.0e-02 of the scale" in result.message
    assert "declare `tolerance = { noise = 8 }`" in result.message
    assert "needs" in result.metrics


@pytest.mark.parametrize(
    ("error", "changes", "status"),
    [
        (1e-6, {}, Status.PASS),
        (0.2, {}, Status.FAIL),
        (0.05, {"tolerance": Tolerance(noise=8)}, Status.PASS),
        (0.2, {"tolerance": Tolerance(noise=8)}, Status.FAIL),
        (0.05, {"tolerance": Tolerance(atol=1e-3)}, Status.FAIL),
        (0.05, {"outputs": (value(Output, "y", "batch, 3", "float16"),)}, Status.FAIL),
    ],
)
def test_other_errors_have_a_verdict(
    error: float, changes: dict[str, Any], status: Status, tmp_path: Path
) -> None:
    """The last contract differs from PyTorch's dtype, which no noise explains."""
    assert check_large_noise(tmp_path, error, **changes).status is status


def test_a_nan_is_never_noise(tmp_path: Path) -> None:
    assert check_large_noise(tmp_path, np.nan).status is Status.FAIL
