"""Variables that a model depends on: those that it reads, and those that choose its cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.processes.environment import hash_variable
from exporter.worker.dependencies.opened_files import VariableReads

CACHES = {"HF_HOME", "HF_HUB_CACHE", "TORCH_HOME", "XDG_CACHE_HOME"}


def test_a_file_in_a_cache_depends_on_the_variables_of_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    for name in CACHES - {"TORCH_HOME"}:
        monkeypatch.delenv(name, raising=False)
    reads, root = VariableReads(), tmp_path / "project"
    used = [f"{root}/weights.pt", f"{tmp_path}/torch.txt", f"{tmp_path}/home/weights.pt"]
    assert reads.read_states(used, root) == {}
    for path in ("torch/hub/weights.pt", "home/.cache/huggingface/weights.bin"):
        states = reads.read_states([*used, f"{tmp_path}/{path}"], root)
        assert states.keys() == CACHES
        assert states["TORCH_HOME"] == hash_variable("TORCH_HOME", f"{tmp_path}/torch")
        assert states["HF_HOME"] == "missing"
    # The copy of a project on a host of a cluster may be in a cache.
    assert reads.read_states([f"{tmp_path}/torch/project/net.py"], tmp_path / "torch/project") == {}
