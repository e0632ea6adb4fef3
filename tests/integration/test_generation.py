"""The entries of docs/recipes.md: they load without transformers, and they are green with it."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from exporter.records.record import Status
from tests.integration.project import read_cells, run_exporter

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
NETS = """
import torch
import transformers


def llama():
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0,
    )
    return scale(transformers.LlamaForCausalLM(config))


def bert():
    config = transformers.BertConfig(
        vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64,
    )
    return scale(transformers.BertModel(config))


def sentences():
    return {"input_ids": torch.randint(64, (2, 5)), "attention_mask": torch.ones(2, 5).long()}


def scale(model):
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return model
"""


def read_section() -> str:
    return (
        PAGE.read_text(encoding="utf-8")
        .partition("## Models that generate")[2]
        .partition("\n## ")[0]
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    entries = re.findall(r"```toml\n(.*?)```", read_section(), re.DOTALL)
    (tmp_path / "manifests").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.exporter]\n")
    (tmp_path / "manifests/nets.py").write_text(NETS)
    entry, interface, component = entries
    (tmp_path / "manifests/nets.toml").write_text(f"format = 1\n{entry}\n{component}")
    (tmp_path / "manifests/llama.interface.toml").write_text(interface)
    return tmp_path


def test_the_entries_are_planned_without_transformers(project: Path) -> None:
    plan = run_exporter(project, "plan")
    assert plan.returncode == 0, plan.stderr
    assert plan.stdout.count("transformers (export)") == 2


def test_the_entries_are_green_with_transformers(project: Path) -> None:
    export = run_exporter(project, "export")
    cells = read_cells(project)
    if find_spec("transformers") is None:
        assert export.returncode == 1
        assert export.stdout.count("the package is not installed; install") == 2, export.stdout
        pytest.skip("transformers is not installed; run `nox -s zoo -- --components`")
    assert {record.status for record in cells.values()} == {Status.PASS}, export.stdout
    checks = {each.check: each for each in cells["llama/18/cpu"].checks}
    assert checks["rollout"].metrics["steps"] == 3 * 32


def test_add_writes_the_entry_and_the_interface(project: Path) -> None:
    if find_spec("transformers") is None:
        pytest.skip("transformers is not installed; run `nox -s zoo -- --components`")
    written = (project / "manifests/llama.interface.toml").read_text()
    for path in (project / "manifests").glob("*.toml"):
        path.unlink()
    added = run_exporter(project, "add", "manifests/nets.py:llama", "--yes")
    assert "llama/18/cpu: pass" in added.stdout, added.stdout + added.stderr
    assert (project / "manifests/llama.interface.toml").read_text() == written
    entry = (project / "manifests/llama.toml").read_text().splitlines()
    assert "generate = { steps = 32 }" in entry
    assert "axes.total = { max = 64 }" in entry
    assert run_exporter(project, "add", "manifests/nets.py:bert").stderr.endswith(
        "BertModel does not generate; add --input x=2x3, or use the component 'model'\n"
    )
