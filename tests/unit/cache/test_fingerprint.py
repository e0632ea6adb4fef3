"""The fingerprint contains each setting that changes a result."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.cache.states import read_package_state, read_tool_parts
from exporter.processes.environment import TORCH_PRIVATE


def test_the_switch_of_private_functions_is_a_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TORCH_PRIVATE, raising=False)
    before = read_tool_parts.__wrapped__()
    monkeypatch.setenv(TORCH_PRIVATE, "none")
    after = read_tool_parts.__wrapped__()
    assert "tool.torch_private" not in before
    assert after == {**before, "tool.torch_private": "none"}


def test_a_package_of_a_toolchain_replaces_the_current_one(tmp_path: Path) -> None:
    info = tmp_path / "pydantic-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: pydantic\nVersion: 1.0\n")
    assert read_package_state("pydantic", str(tmp_path)).startswith("1.0 ")
    assert read_package_state("pytest", str(tmp_path)) == read_package_state("pytest") != ""
    assert read_package_state("no-such-distribution", str(tmp_path)) == ""
