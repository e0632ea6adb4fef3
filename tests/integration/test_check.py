"""`exporter check`: silent while tables and manifests agree, and precise where they do not."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.records.record import Status
from tests.integration.project import ROOT, run_exporter
from tests.integration.test_gate_output import write_uniform_results

MANIFEST = """format = 1
[models.net]
source = "net.py:Net"
inputs = [{ name = "x", shape = ["batch", 4] }]
outputs = [{ name = "y", shape = ["batch", 3] }]
opsets = [17, 18]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """One model, with results, tables and a baseline."""
    (tmp_path / "manifests").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.exporter]\n")
    (tmp_path / "manifests/net.py").write_text("class Net: ...\n")
    (tmp_path / "manifests/net.toml").write_text(MANIFEST)
    write_uniform_results(tmp_path, Status.PASS)
    for name in ("baseline", "report"):
        assert run_exporter(tmp_path, name).returncode == 0
    return tmp_path


def change(project: Path, before: str, after: str) -> None:
    path = project / "manifests/net.toml"
    path.write_text(path.read_text().replace(before, after))


def checked(project: Path) -> tuple[int, str]:
    ran = run_exporter(project, "check")
    assert "Traceback" not in ran.stderr
    return ran.returncode, ran.stderr


def test_what_agrees_is_silent(project: Path) -> None:
    assert checked(project) == (0, "")


SEEN = """
import sys
from exporter.cli.entry_point import run
code = run(["check"])
print(code, "jinja2" in sys.modules)
"""


def test_pages_are_made_again_only_where_something_changed(project: Path) -> None:
    def seen() -> list[str]:
        ran = subprocess.run(
            [sys.executable, "-c", SEEN],
            cwd=project,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        return ran.stdout.split()[-2:]

    assert seen() == ["0", "False"]
    change(project, "opsets", 'description = "A net"\nopsets')
    assert seen() == ["1", "True"]


def test_a_thousand_cells_are_checked_in_a_second(tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.exporter]\n")
    (tmp_path / "manifests/net.py").write_text("class Net: ...\n")
    entry = MANIFEST.partition("\n")[2].replace("[17, 18]", '"7..26"')
    entries = (entry.replace("models.net", f"models.net{index}") for index in range(50))
    (tmp_path / "manifests/net.toml").write_text("format = 1\n" + "".join(entries))
    write_uniform_results(tmp_path, Status.PASS)
    for name in ("baseline", "report"):
        assert run_exporter(tmp_path, name).returncode == 0
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = run_exporter(tmp_path, "check")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (ran.returncode, ran.stdout) == (0, "50 models, 1000 cells: 0 problems\n"), ran.stderr
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent < 1.5, "half a second where nothing else runs"


def test_a_wrong_manifest_is_said(project: Path) -> None:
    change(project, "source", "sauce")
    code, said = checked(project)
    assert code == 2
    assert "manifests/net.toml:3: models.net" in said


def test_a_changed_entry_makes_the_tables_stale(project: Path) -> None:
    change(project, '["batch", 4]', '["batch", 5]')
    code, said = checked(project)
    assert code == 1
    assert "net/17..18/cpu: the tables are stale: its manifest entry changed since" in said


def test_an_opset_more_is_not_accepted_and_one_less_is_gone(project: Path) -> None:
    change(project, "[17, 18]", "[18, 19]")
    code, said = checked(project)
    assert code == 1
    assert "net/19/cpu is not in the baseline; run `exporter export`" in said
    assert "net/17/cpu is in the baseline but in no manifest" in said


def test_a_description_changes_a_page_alone(project: Path) -> None:
    change(project, "opsets", 'description = "A net"\nopsets')
    code, said = checked(project)
    assert code == 1
    assert "reports/models/net.md is stale; run `exporter report`" in said
    assert run_exporter(project, "report").returncode == 0
    assert checked(project) == (0, "")


def test_tables_from_elsewhere_are_not_judged_by_the_results_here(project: Path) -> None:
    change(project, '["batch", 4]', '["batch", 5]')
    page = project / "reports/COMPATIBILITY.md"
    page.write_text(page.read_text() + "\nFrom another machine.\n")
    assert checked(project) == (0, "")
    (project / "reports/baseline.json").write_text("{}")
    assert checked(project)[0] == 5


def test_a_new_project_has_nothing_to_compare(project: Path) -> None:
    (project / "reports/baseline.json").unlink()
    (project / "build/results.json").unlink()
    assert checked(project) == (0, "")
