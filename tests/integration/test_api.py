"""The example of docs/api.md runs in a project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from exporter import api
from exporter.records.record import Status
from tests.integration.project import ROOT, make_project
from tests.integration.test_gate_output import write_uniform_results


def read_example() -> str:
    match = re.search(
        r"## Example\n.*?```python\n(.*?)```", (ROOT / "docs/api.md").read_text(), re.DOTALL
    )
    assert match
    return match[1]


def test_the_example_exports_accepts_and_gates(tmp_path: Path) -> None:
    root = make_project(tmp_path, good="Good", bad="Raises")
    process = subprocess.run(
        [sys.executable, "-c", read_example()],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    lines = process.stdout.splitlines()
    assert lines[0] == "2 cells to run"
    assert sorted(lines[1:3]) == ["good/16/cpu pass", "good/17/cpu pass"]
    assert lines[3] == "green"
    # One cell is accepted, so the other cells have findings.
    assert {line.split()[0] for line in lines[4:]} >= {"good/16/cpu"}
    assert "good/17/cpu" not in {line.split()[0] for line in lines[4:]}
    assert (root / "reports/COMPATIBILITY.md").is_file()


def test_an_unknown_cell_is_not_accepted(tmp_path: Path) -> None:
    root = make_project(tmp_path, good="Good")
    write_uniform_results(root, Status.PASS)
    acceptance = api.prepare_acceptance(api.load_project(root))
    with pytest.raises(KeyError, match="good/99/cpu: is in neither the manifests, the results"):
        api.accept(acceptance, cells={api.CellId(model="good", opset=99, device="cpu")})
    assert not (root / "reports/baseline.json").exists()


def test_all_names_of_the_interface_exist() -> None:
    assert all(hasattr(api, name) for name in api.__all__)
    documented = set(re.findall(r"^\| `(\w+)\(", (ROOT / "docs/api.md").read_text(), re.MULTILINE))
    methods = {name for name in documented if name.startswith("on_")}
    assert len(methods) == 5
    assert documented - methods <= set(api.__all__)
