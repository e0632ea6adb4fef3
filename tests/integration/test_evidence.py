"""A measurement travels from one checkout to another one, and is stale after a change."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.integration.project import ROOT, run_exporter

SETTINGS = """
[tool.exporter]
defaults.devices = ["cpu", "far"]

[tool.exporter.devices.far]
runtime = "backend"
module = "far_runtime"

[tool.exporter.evidence]
far = { age = "30d" }
"""


def run(root: Path, *arguments: str, code: int = 0, **environment: str) -> str:
    done = run_exporter(root, *arguments, **environment, code=code)
    return done.stdout + ("" if "--json" in arguments else done.stderr)


def test_evidence_is_carried_between_two_checkouts(good: Path, tmp_path: Path) -> None:
    here, there = good, tmp_path / "there"
    (here / "pyproject.toml").write_text(SETTINGS)
    run(here, "export")
    run(here, "baseline")
    missing = run(here, "gate", code=1)
    assert "good/16..17/far: evidence missing: at most 30 days old -> none" in missing
    run(here, "publish", "--initial", "--device", "cpu", "dist")

    # Only this checkout has the runtime, the file and the settings.
    there.mkdir()
    shutil.copytree(here / "dist", there / "dist")
    shutil.copy(here / "pyproject.toml", there)
    (there / "far_runtime.py").write_text("from onnxruntime.backend import *\n")
    text = run(there, "verify", "dist", "--device", "far", "--json", PYTHONPATH=f"{ROOT}:{there}")
    (here / "far.json").write_text(text)

    added = run(here, "merge", "far.json")
    assert "good/17/far: pass on Linux" in added
    assert "May merge · 4 cells of 1 model: 4 as before" in run(here, "gate")
    page = (here / "reports" / "COMPATIBILITY.md").read_text()
    assert "| ✅&nbsp;16..17 | 🔷&nbsp;16..17 |" in page
    assert "2 proved, 2 not run here" in page
    assert "already" in run(here, "merge", "far.json", code=1)
    former = run(here, "evidence", "add", "far.json", code=1)
    assert "warning: `evidence add`: version 2 removes it; use `exporter merge FILE" in former
    assert "already" in former
    both = run(here, "merge", "far.json", "build", code=2)
    assert "far.json: is no build folder of a shard, as build is; merge the folders" in both

    source = here / "manifests" / "models.py"
    source.write_text(source.read_text().replace("Linear(4, 3)", "Linear(4, 3, bias=False)"))
    run(here, "export")
    stale = run(here, "gate", code=1)
    assert (
        "good/16..17/far: evidence missing: at most 30 days old -> stale: is about another" in stale
    )
    page = (here / "reports" / "COMPATIBILITY.md").read_text()
    table = page.partition("## Models")[2].partition("##")[0]
    assert "✅&nbsp;16..17 |" in table
    assert "🔷" not in table
