"""An invalid entry and an unreadable file do not affect the other entries of the project."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from exporter.records.baseline import read_baseline
from exporter.records.record import Stage, Status
from tests.integration.project import make_project, read_cells, run_exporter

_MANIFEST = "manifests/tiny.toml"
_OTHER = "manifests/other.toml"


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a project whose results are accepted; then one entry and one file are broken."""
    root = make_project(tmp_path_factory.mktemp("invalid") / "project", good="Good", bad="Good")
    text = (root / _MANIFEST).read_text(encoding="utf-8")
    other = text.replace("models.good", "models.lost").partition("[models.bad]")[0]
    (root / _OTHER).write_text(other, encoding="utf-8")
    assert run_exporter(root, "export").returncode == 0
    assert run_exporter(root, "baseline").returncode == 0
    head, mark, entry = text.partition("[models.bad]\n")
    broken = f"{head}{mark}mode = 'fast'\nthorouh = true\n{entry}"
    (root / _MANIFEST).write_text(broken, encoding="utf-8")
    (root / _OTHER).write_text(other.replace("[models.lost]", "[models.lost"), encoding="utf-8")
    command = run_exporter(root, "export", code=1)
    assert "manifests/other.toml:" in command.stderr
    return root


def test_only_the_cells_of_the_invalid_entry_are_red(accepted: Path) -> None:
    cells = read_cells(accepted)
    assert {name.partition("/")[0] for name in cells} == {"good", "bad"}
    assert {(each.cell.model, each.status) for each in cells.values()} == {
        ("good", Status.PASS),
        ("bad", Status.ERROR),
    }
    record = next(each for each in cells.values() if each.cell.model == "bad")
    assert record.stage is Stage.SOURCE
    assert record.message.startswith("manifests/tiny.toml:")
    assert "models.bad.mode" in record.message
    assert "models.bad.thorouh: unknown key; did you mean 'thorough'?" in record.detail


def test_reports_show_the_invalid_entry_and_the_unreadable_file(accepted: Path) -> None:
    page = (accepted / "reports/COMPATIBILITY.md").read_text(encoding="utf-8")
    assert "Unreadable manifests" in page
    assert "manifests/other.toml" in page
    assert "error at source" in page
    run_exporter(accepted, "report", "--site", "site")
    browser_page = (accepted / "site/index.html").read_text(encoding="utf-8")
    assert '<h2 id="problems-title">Unreadable manifests</h2>' in browser_page
    assert "<li>manifests/other.toml" in browser_page
    suites = ET.parse(accepted / "site/junit.xml").getroot()
    errors = {
        case.get("name") for case in suites.iter("testcase") if case.find("error") is not None
    }
    assert any(str(name).startswith("manifests/other.toml") for name in errors)
    assert any(str(name).startswith("bad/") for name in errors)
    assert not any(str(name).startswith("good/") for name in errors)


def test_the_gate_fails_and_the_baseline_keeps_the_cells_of_the_file(accepted: Path) -> None:
    before = read_baseline(accepted / "reports/baseline")
    gate = run_exporter(accepted, "gate", code=1)
    assert "newly red" in gate.stdout
    assert "lost/16..17/cpu: promise removed" in gate.stdout
    assert "the models of a manifest file are unknown" in gate.stdout
    for command in (("baseline",), ("baseline", "update", "--reason", "test"), ("gc",)):
        refused = run_exporter(accepted, *command, code=2)
        assert "manifests/other.toml" in refused.stderr
    assert read_baseline(accepted / "reports/baseline") == before
    assert (accepted / "build/lost").is_dir()


@pytest.mark.parametrize("command", ["list", "plan", "report", "gate", "doctor"])
def test_other_commands_run(command: str, accepted: Path) -> None:
    ended = run_exporter(accepted, command)
    assert ended.returncode in (0, 1), ended.stderr
    assert "Traceback" not in ended.stderr
    assert "expect =" not in ended.stdout, "an expectation must not hide an invalid entry"


def test_check_reports_every_problem_and_explain_those_of_the_entry(accepted: Path) -> None:
    check = run_exporter(accepted, "check", code=2)
    assert all(key in check.stderr for key in ("models.bad.mode", "thorouh", "other.toml"))
    explain = run_exporter(accepted, "explain", "bad/17/cpu", code=0)
    assert "models.bad.mode" in explain.stderr


def test_a_repaired_entry_is_built_again(accepted: Path) -> None:
    for name in (_MANIFEST, _OTHER):
        text = (accepted / name).read_text(encoding="utf-8")
        text = text.replace("mode = 'fast'\nthorouh = true\n", "")
        (accepted / name).write_text(text.replace("[models.lost\n", "[models.lost]\n"), "utf-8")
    assert run_exporter(accepted, "export").returncode == 0
    assert run_exporter(accepted, "gate").returncode == 0


def test_all_accepted_cells_of_an_entry_without_valid_opsets_are_red(accepted: Path) -> None:
    path = accepted / _MANIFEST
    text = path.read_text(encoding="utf-8")
    head, mark, entry = text.partition("[models.bad]\n")
    path.write_text(head + mark + entry.replace("[16, 17]", "[40, 42]"), encoding="utf-8")
    run_exporter(accepted, "export", code=1)
    gate = run_exporter(accepted, "gate", code=1)
    assert "bad/16..17/cpu: newly red: pass -> error at source" in gate.stdout
    assert "opsets 40 and 42 are outside" in gate.stdout
    assert "promise removed" not in gate.stdout
    assert gate.stdout.endswith("next: correct the entry: `exporter check` lists its problems\n")
    path.write_text(text, encoding="utf-8")
    run_exporter(accepted, "export", code=0)
    run_exporter(accepted, "gate", code=0)
