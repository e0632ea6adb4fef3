"""Cells of toolchains are exported with other packages, beside those of the project.

The other packages are wheels that the test writes, so no index is needed.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from exporter.records.record import CellId, Status, read_run
from tests.integration.project import make_project, run_exporter
from tests.integration.wheels import SCALED_MODEL, write_wheel

SETTINGS = """[tool.exporter]
defaults.devices = ["cpu", "cpu@two"]

[tool.exporter.toolchains.two]
requirements = ["scale-of-test @ {wheel}"]
"""
EXPECTATION = 'expect = [{ device = "*@two", stage = "source", reason = "no scale" }]\n'


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with two models, of which the toolchain cannot run one."""
    folder = tmp_path_factory.mktemp("toolchains")
    wheel = write_wheel(folder, "2.0", "raise RuntimeError('no scale in version 2')")
    root = make_project(
        folder / "project",
        more_models=SCALED_MODEL,
        settings=SETTINGS.format(wheel=wheel.as_uri()),
        opsets="[17]",
        good="Good",
        scaled="Scaled",
    )
    run_exporter(root, "export", code=1)
    return root


def read_statuses(root: Path) -> dict[str, Status]:
    run = read_run(root / "build/results.json")
    return {f"{record.cell.model} {record.cell.device}": record.status for record in run.records}


@pytest.mark.campaign
def test_each_toolchain_has_its_own_result(exported: Path) -> None:
    passing = dict.fromkeys(("good cpu", "good cpu@two", "scaled cpu"), Status.PASS)
    assert read_statuses(exported) == {**passing, "scaled cpu@two": Status.ERROR}
    records = read_run(exported / "build/results.json").by_cell()
    artifact = records[CellId(model="good", opset=17, device="cpu@two")].artifact
    assert artifact is not None
    assert (exported / "build" / artifact.file).is_file()
    failed = records[CellId(model="scaled", opset=17, device="cpu@two")]
    assert "RuntimeError: no scale in version 2" in failed.message
    assert (exported / "build" / failed.log).is_file()
    tables = (exported / "reports/COMPATIBILITY.md").read_text()
    assert "| [good](models/good.md)&nbsp;🎲 | ✅&nbsp;17 | ✅&nbsp;17 |" in tables, tables
    scaled = r"\| \[scaled\]\(models/scaled.md\)&nbsp;🎲 \| ✅&nbsp;17 \| \S+&nbsp;17 \|"
    assert re.search(scaled, tables), tables


@pytest.mark.campaign
def test_commands_find_the_files_of_a_toolchain(exported: Path) -> None:
    command = run_exporter(exported, "plan", "*/*/*@two")
    assert command.stdout.splitlines()[0] == "0 cells to run, 2 to keep, 0 to skip"
    command = run_exporter(exported, "gc", "--dry-run")
    assert "nothing to remove" in command.stdout
    command = run_exporter(exported, "publish", "--initial", "scaled", "dist", code=0)


@pytest.mark.campaign
def test_toolchains_of_one_file_are_compared(exported: Path) -> None:
    results = "build/results.json"
    command = run_exporter(exported, "diff", results, f"{results}@two")
    lines = command.stdout.splitlines()
    assert (command.returncode, lines[-1]) == (1, "1 difference")
    assert lines[0] == "scaled/17/cpu: newly red: pass -> error at source"
    command = run_exporter(exported, "diff", results, f"{results}@too", code=3)
    assert command.stderr.endswith("no cell has the toolchain 'too'; did you mean 'two'?\n")
    command = run_exporter(exported, "diff", f"{results}@two", f"{results}@two")
    assert (command.returncode, command.stdout) == (0, "2 cells, no difference\n")


@pytest.mark.campaign
def test_an_expectation_may_concern_one_toolchain(exported: Path) -> None:
    manifest = exported / "manifests/tiny.toml"
    text = manifest.read_text()
    manifest.write_text(text + EXPECTATION)
    try:
        command = run_exporter(exported, "export", code=0)
        assert "exporting" not in command.stdout
        assert read_statuses(exported)["scaled cpu@two"] is Status.XFAIL
        assert run_exporter(exported, "baseline").returncode == 0
    finally:
        manifest.write_text(text)
    assert run_exporter(exported, "export").returncode == 1
    command = run_exporter(exported, "gate", code=1)
    assert command.stdout.startswith("scaled/17/cpu@two: newly red: xfail"), command.stdout
