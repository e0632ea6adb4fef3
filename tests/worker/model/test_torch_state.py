"""The states of PyTorch for the reference, the capture and the conversion."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from exporter.worker.process.setup import apply_state
from tests.worker.contracts import make_contract


@pytest.fixture(autouse=True)
def fused_path() -> Iterator[None]:
    yield
    torch.backends.mha.set_fastpath_enabled(True)


def read_state() -> tuple[bool, bool]:
    return torch.is_grad_enabled(), torch.backends.mha.get_fastpath_enabled()


def test_the_default_has_neither_gradients_nor_the_fused_path() -> None:
    with apply_state(make_contract("Affine")):
        assert read_state() == (False, False)
    assert read_state() == (True, True)


def test_the_plain_state_has_gradients_and_keeps_the_fused_path() -> None:
    spec = make_contract("Affine", export_state="plain")
    with torch.no_grad(), apply_state(spec):
        assert read_state() == (True, True)
    torch.backends.mha.set_fastpath_enabled(False)
    with apply_state(spec):
        assert read_state() == (True, False)


def test_an_error_restores_the_state() -> None:
    with pytest.raises(ValueError, match="wrong"), apply_state(make_contract("Affine")):
        raise ValueError("wrong")
    assert read_state() == (True, True)
