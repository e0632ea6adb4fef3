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


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=64, n_positions=64, n_embd=16, n_layer=2, n_head=2, bos_token_id=0,
        eos_token_id=0, pad_token_id=0,
    )
    model = transformers.GPT2LMHeadModel(config)
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
    (tmp_path / "manifests/nets.toml").write_text("format = 1\n" + "\n".join(entries))
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
    checks = {each.check for each in cells["gpt2-decode/18/cpu"].checks}
    assert "rollout" in checks
