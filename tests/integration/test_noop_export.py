"""Where nothing was touched an export only says so again; whatever is touched is looked at."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.project import ROOT, make_project, run_exporter

#: The command where pydantic, and with it manifests and records, cannot be loaded.
LIGHT = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pydantic", "jinja2", "rich", "torch"):
            raise RuntimeError(f"{name} was asked for")

sys.meta_path.insert(0, Blocker())
from exporter.cli import main
main()
"""
TICK = 2.1


def light(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LIGHT, *arguments],
        cwd=root,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Projects with a green model and a red one, one for each touch; all were made a while ago."""
    place = tmp_path_factory.mktemp("untouched")
    root = make_project(place / "plain", good="Good", bad="Raises")
    assert run_exporter(root, "export").returncode == 1
    for name in TOUCHED:
        shutil.copytree(root, place / name)
    time.sleep(TICK)
    return place


def test_the_same_is_said_and_nothing_is_loaded(exported: Path) -> None:
    project = exported / "plain"
    closely = run_exporter(project, "export")
    again = light(project, "export", "--explain")
    assert again.returncode == 1, again.stderr
    assert again.stdout == closely.stdout
    assert "4 cells: 2 pass, 2 error" in again.stdout
    for words in (["--force"], ["--thorough"], ["good"], ["--shard", "1/2"], ["--dry-run"]):
        assert "was asked for" in light(project, "export", *words).stderr


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def edit(path: Path) -> None:
    path.write_text(path.read_text() + "\n# more\n")


TOUCHED: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "file": ("build/good/17.onnx", flip, "good/17/cpu restore: from the store: "),
    "record": (
        "build/good/records/17.cpu.json",
        Path.unlink,
        "good/17/cpu restore: from the store: ",
    ),
    "source": ("manifests/models.py", edit, "good/16/cpu run: manifests/models.py changed"),
    "neighbour": ("manifests/new.py", Path.touch, "good/16/cpu run: manifests has other modules"),
    "manifest": ("manifests/tiny.toml", edit, ""),
    "new manifest": ("manifests/more.toml", lambda path: path.write_text("format = 2"), ""),
    "results": ("build/results.json", Path.unlink, ""),
    "page": ("reports/models/good.md", Path.unlink, ""),
    "baseline": ("reports/baseline.json", Path.touch, ""),
    "settings": ("pyproject.toml", edit, ""),
    "killed run": ("build/.work", Path.mkdir, ""),
}


@pytest.mark.parametrize("name", TOUCHED)
def test_what_is_touched_is_looked_at(exported: Path, name: str) -> None:
    project = exported / name
    assert run_exporter(project, "export").returncode == 1
    assert light(project, "export").returncode == 1
    file, touch, expected = TOUCHED[name]
    touch(project / file)
    assert "was asked for" in light(project, "export").stderr
    if expected:
        assert expected in "\n".join(planned_reasons(project))


def planned_reasons(project: Path) -> list[str]:
    lines = run_exporter(project, "plan").stdout.splitlines()
    rows = [line.split() for line in lines]
    moved = [row for row in rows if row[1:2] in (["run"], ["restore"])]
    return [f"{row[0]} {row[1]}: {' '.join(row[4:])}" for row in moved]
