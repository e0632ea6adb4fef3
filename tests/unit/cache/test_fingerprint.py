"""The fingerprint contains each setting that changes a result."""

from __future__ import annotations

import pytest

from exporter.cache.fingerprint import read_tool_parts
from exporter.processes.environment import TORCH_PRIVATE


def test_the_switch_of_private_functions_is_a_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TORCH_PRIVATE, raising=False)
    before = read_tool_parts.__wrapped__()
    monkeypatch.setenv(TORCH_PRIVATE, "none")
    after = read_tool_parts.__wrapped__()
    assert "tool.torch_private" not in before
    assert after == {**before, "tool.torch_private": "none"}
