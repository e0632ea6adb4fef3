"""The example of the README works without a change."""

from __future__ import annotations

import re
from pathlib import Path

from exporter.records.record import Status
from tests.integration.project import ROOT, read_cells, run_exporter


def read_block(language: str) -> str:
    """Return the first code block of the README in the language."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    match = re.search(rf"^```{language}\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    assert match
    return match.group(1)


def test_the_example_is_green_with_both_exporters(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.exporter]\n")
    (tmp_path / "manifests" / "models").mkdir(parents=True)
    (tmp_path / "manifests" / "models" / "mine.py").write_text(read_block("python"))
    (tmp_path / "manifests" / "mine.toml").write_text(read_block("toml"))
    command = run_exporter(tmp_path, "export", "classifier", "--opset", "9", "--opset", "21")
    assert command.returncode == 0, command.stdout + command.stderr
    records = read_cells(tmp_path)
    assert {name: record.status for name, record in records.items()} == {
        "classifier/9/cpu": Status.PASS,
        "classifier/21/cpu": Status.PASS,
    }
