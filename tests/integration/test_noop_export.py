"""If no file changed, an export prints the last summary; a changed file starts a full export."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.pipeline.noop_snapshot import load_snapshot
from tests.integration.project import ROOT, run_exporter, run_python

#: The command in a process that cannot import pydantic, so manifests and records cannot load.
BLOCKED_COMMAND = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pydantic", "jinja2", "rich", "torch"):
            raise RuntimeError(f"{name} is blocked")

sys.meta_path.insert(0, Blocker())
from exporter.cli import main
main()
"""


def run_light(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # The variables of torch are inputs; tests that ran before may have set some.
    return run_python(root, "-c", BLOCKED_COMMAND, *arguments, PATH="", COLUMNS="")


@pytest.fixture(scope="module")
def exported(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a copy of an exported project for each change."""
    folder = tmp_path_factory.mktemp("untouched")
    for name in ("plain", "with options", *CHANGES):
        shutil.copytree(tiny, folder / name)
    return folder


def test_the_first_export_writes_the_summary_of_the_next_ones(tiny: Path, exported: Path) -> None:
    first = (tiny / "build/untouched.json").read_text()
    project = exported / "with options"
    run_exporter(project, "export", "--timings", code=1)
    assert not is_noted(project)
    run_exporter(project, "export", code=1)
    second = (project / "build/untouched.json").read_text()
    assert json.loads(first)["summary"] == json.loads(second)["summary"]


def is_noted(project: Path) -> bool:
    """Return whether an export of this place wrote its snapshot: a copy has other stamps."""
    return load_snapshot(project) is not None


def test_a_noop_export_prints_the_same_summary_without_heavy_imports(exported: Path) -> None:
    project = exported / "plain"
    full = run_exporter(project, "export")
    noop = run_light(project, "export", "--explain")
    assert noop.returncode == 1, noop.stderr
    seconds = re.compile(r" in \d+\.\d s$", re.MULTILINE)
    assert seconds.split(noop.stdout) == seconds.split(full.stdout)
    assert noop.stdout.splitlines()[-1].startswith("next: `exporter guide E-")
    assert len(seconds.findall(noop.stdout)) == 1
    assert "4 cells: 2 pass, 2 error" in noop.stdout
    for options in (["--force"], ["--thorough"], ["good"], ["--shard", "1/2"], ["--dry-run"]):
        assert "is blocked" in run_light(project, "export", *options).stderr
    edit(project / "manifests/models.py")
    assert "is blocked" in run_light(project, "export").stderr


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def make_file(path: Path) -> None:
    path.parent.mkdir()
    path.touch()


def edit(path: Path) -> None:
    path.write_text(path.read_text() + "\n# more\n")


CHANGES: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "file": ("build/good/17.onnx", flip, "good/17/cpu restore: from the store: "),
    "record": (
        "build/good/records/17.cpu.json",
        Path.unlink,
        "good/17/cpu restore: from the store: ",
    ),
    "comment": ("manifests/models.py", edit, ""),
    "source": (
        "manifests/models.py",
        lambda path: path.write_text(f"{path.read_text()}more = 1\n"),
        "good/16..17/cpu run: manifests/models.py changed",
    ),
    "new module": (
        "manifests/onnxruntime.py",
        Path.touch,
        "good/16..17/cpu run: manifests/onnxruntime.py was added",
    ),
    "manifest": ("manifests/good.toml", edit, ""),
    "new manifest": ("manifests/more.toml", lambda path: path.write_text("format = 2"), ""),
    "results": ("build/results.json", Path.unlink, ""),
    "page": ("reports/models/good.md", Path.unlink, ""),
    "baseline": ("reports/baseline/good.json", make_file, ""),
    "settings": ("pyproject.toml", edit, ""),
    "killed run": ("build/.work", Path.mkdir, ""),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_file_starts_a_full_export(
    exported: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = exported / name
    assert run_exporter(project, "export").returncode == 1
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # as in the export
    assert load_snapshot(project) is not None
    file, change, expected = CHANGES[name]
    change(project / file)
    assert load_snapshot(project) is None
    if expected:
        assert expected in "\n".join(list_planned_reasons(project))


def list_planned_reasons(project: Path) -> list[str]:
    lines = run_exporter(project, "plan").stdout.splitlines()
    rows = [line.split() for line in lines]
    changed = [row for row in rows if row[1:2] in (["run"], ["restore"])]
    return [f"{row[0]} {row[1]}: {' '.join(row[4:])}" for row in changed]
