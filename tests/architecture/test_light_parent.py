"""The parent works if none of the worker's packages can be imported."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.records.record import RunRecord
from tests.integration.project import format_entry, write_project

ROOT = Path(__file__).parents[2]
HEAVY = ("numpy", "onnx", "onnxruntime", "onnxscript", "torch")
BLOCKED_MAIN = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY!r}:
            raise ImportError(f"{{name}} is blocked")

sys.meta_path.insert(0, Blocker())
from exporter.cli import main
main()
"""


def run_blocked(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCKED_MAIN, *arguments],
        cwd=root,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Create a project with its own model and one of a package that is not installed."""
    tiny = format_entry("tiny", "tiny.py:Tiny", opsets=18)
    lstm = format_entry("lstm", "torch.nn:LSTM", opsets=18)
    files = {"tiny.py": "class Tiny: ...\n", "tiny.toml": f"format = 1\n{tiny}{lstm}"}
    write_project(tmp_path, files)
    (tmp_path / "build").mkdir()
    empty = RunRecord(tools={}, records=())
    (tmp_path / "build" / "results.json").write_text(empty.to_json())
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code", "shown"),
    [
        (["list"], 0, ("tiny", "lstm")),
        (["plan"], 0, ("tiny/18/cpu", "lstm/18/cpu")),
        (["check"], 0, ("2 models, 2 cells: 0 problems",)),
        (["explain", "lstm/18/cpu"], 0, ("torch.nn:LSTM",)),
        (["report"], 0, ("COMPATIBILITY.md",)),
        (["gate"], 1, ("no baseline yet",)),
        (["export", "--dry-run"], 0, ("tiny/18/cpu", "lstm/18/cpu")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_commands_need_none_of_the_heavy_packages(
    project: Path, arguments: list[str], code: int, shown: tuple[str, ...]
) -> None:
    ran = run_blocked(project, *arguments)
    assert not [part for part in shown if part not in ran.stdout + ran.stderr]
    assert ran.returncode == code
    assert "Traceback" not in ran.stderr


def test_the_blocker_blocks() -> None:
    program = BLOCKED_MAIN.replace("from exporter.cli import main\nmain()", "import numpy")
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert ran.returncode == 1
    assert b"numpy is blocked" in ran.stderr


def test_the_hook_checks_this_repository(tmp_path: Path) -> None:
    """The environment of the pre-commit hook has only the dependencies of the package."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name in ("manifests", "reports"):
        shutil.copytree(ROOT / name, tmp_path / name)
    ran = run_blocked(tmp_path, "check")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 problems" in ran.stdout


def test_an_export_without_changes_imports_no_manifest() -> None:
    code = "import sys, exporter.cli.commands.export; print('pydantic' in sys.modules)"
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    command = [sys.executable, "-c", code]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert process.stdout == "False\n"
