"""The tokens of a rollout."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from exporter.checks import rollout as check
from exporter.records.record import Status


@pytest.mark.parametrize(
    ("logits", "problem"),
    [
        ([0.0, 3.0, 1.0], ""),
        ([0.0, np.nan, 1.0], "the file selects token 1 in place of 1"),
        ([4.0, 3.0, 1.0], "the file selects token 0 in place of 1"),
    ],
    ids=["equal", "nan at the token", "another token"],
)
def test_a_wrong_token_is_described(
    monkeypatch: pytest.MonkeyPatch, logits: list[float], problem: str
) -> None:
    monkeypatch.setattr(check, "choose_limit", lambda *_: (None, ""))
    spec = SimpleNamespace(
        inputs=[SimpleNamespace(name="ids", dtype="int64", shape=("batch",))],
        outputs=[SimpleNamespace(name="logits", dtype="float32")],
        rollout=SimpleNamespace(feeds={"logits": "ids"}),
        tokens=None,
        generate=None,
    )
    context: Any = SimpleNamespace(spec=spec)
    data: Any = SimpleNamespace(outputs=[np.array([[0.0, 3.0, 1.0]])])
    values: Any = [np.array([logits])]
    found = check._Rollout(context, "cpu")._feed(context, values, data, None, is_prompt=False)
    assert found.startswith(problem)
    assert bool(found) is bool(problem)


@pytest.mark.parametrize(
    ("least", "selected", "status", "message"),
    [
        (0.75, [1, 2, 3, 0], Status.PASS, ""),
        (0.76, [1, 2, 3, 0], Status.FAIL, "3 of 4 tokens are PyTorch's, a share of 0.75; at least"),
        (1.0, [1, 2, 3, 3], Status.PASS, ""),
        (0.5, [3, 3, 3, 3], Status.INCONCLUSIVE, "always selects token 3 has 2 of 4 right"),
    ],
)
def test_a_share_of_tokens(least: float, selected: list[int], status: Status, message: str) -> None:
    right = [np.array([[token]]) for token in (1, 2, 3, 3)]
    found = check._judge_tokens(least, [np.array([[token]]) for token in selected], right)
    assert found[0] is status
    assert message in found[1]
    assert bool(message) is bool(found[1])
