"""`exporter baseline update` accepts selected cells and stores the reason."""

from __future__ import annotations

import io
import subprocess
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from unittest.mock import patch

import pytest
from click.testing import CliRunner

from exporter.api.gate_run import accept, prepare_acceptance
from exporter.cli.entry_point import exporter, run
from exporter.core.errors import ExporterError
from exporter.manifest import load_project
from exporter.pipeline import build_folder
from exporter.records.baseline import read_baseline
from exporter.records.record import Status
from tests.integration.project import format_entry, run_exporter, start_exporter
from tests.integration.results import MANIFEST, write_results
from tests.unit.factory import key_by_text


@pytest.fixture
def project(project: Path) -> Path:
    """Return a project with two accepted cells that are red now."""
    write_results(project, Status.FAIL)
    return project


def read_reasons(root: Path) -> dict[str, tuple[str, str]]:
    cells = read_baseline(root / "reports/baseline").cells
    return {str(each.cell): (str(each.status), each.reason) for each in cells}


def test_one_cell_is_accepted_and_the_gate_blocks_the_other(project: Path) -> None:
    command = run_exporter(
        project, "baseline", "update", "net/18", "--reason", "known, see 12", code=0
    )
    assert "net/18/cpu: newly red: pass -> fail" in command.stdout
    assert "net/17" not in command.stdout
    assert "accepted 1 cell, 1 of them red: " in command.stdout
    assert "this loss passes if an owner of the baseline approves the commit" in command.stdout
    assert read_reasons(project) == {
        "net/17/cpu": ("pass", ""),
        "net/18/cpu": ("fail", "known, see 12"),
    }
    gate = run_exporter(project, "gate")
    assert (gate.returncode, "net/17/cpu: newly red" in gate.stdout) == (1, True)
    assert "net/18" not in gate.stdout


def test_a_removed_cell_gets_its_reason_after_the_baseline_of_all(project: Path) -> None:
    (path,) = (project / "manifests").glob("*.toml")
    text = path.read_text(encoding="utf-8")
    assert "opsets = [17, 18]" in text
    path.write_text(text.replace("opsets = [17, 18]", "opsets = [18]"), encoding="utf-8")
    write_results(project, Status.PASS)
    for command in (
        ("baseline",),
        ("baseline", "update", "net/17/cpu", "--reason", "no user has 17"),
        ("baseline", "update", "net/17/*", "--reason", "no user has 17, see #1"),
        ("baseline",),
    ):
        run_exporter(project, *command, code=0)
    dropped = read_baseline(project / "reports/baseline").dropped
    assert key_by_text(dropped) == {"net/17/cpu": "no user has 17, see #1"}
    path.write_text(text, encoding="utf-8")
    write_results(project, Status.PASS)
    run_exporter(project, "baseline", code=0)
    assert read_baseline(project / "reports/baseline").dropped == {}


def test_updates_at_the_same_time_are_all_stored(project: Path) -> None:
    """Each one reads the baseline, and writes it with one more reason."""
    with build_folder.BuildFolder(project / "build").lock_committed_files():
        acceptance = prepare_acceptance(load_project(project))
        process = start_exporter(project, "baseline", "update", "net/17", "--reason", "one")
        with suppress(subprocess.TimeoutExpired):
            process.wait(3)
        (other,) = (cell for cell in acceptance.planned if cell.opset == 18)
        accept(acceptance, [other], "two")
    assert process.wait() == 0
    assert read_reasons(project) == {"net/17/cpu": ("fail", "one"), "net/18/cpu": ("fail", "two")}


@pytest.mark.parametrize(
    "command",
    [["baseline"], ["baseline", "update", "--reason", "x"], ["evidence", "add", "pyproject.toml"]],
)
def test_a_command_that_cannot_have_the_lock_says_so(
    project: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_folder, "_PATIENCE", 0.0)
    monkeypatch.chdir(project)
    with build_folder.BuildFolder(project / "build").lock_committed_files():
        result = CliRunner().invoke(exporter, command)
    assert isinstance(result.exception, ExporterError)
    assert str(result.exception).startswith("build: another command changes the baseline or the ")


def test_without_cells_all_findings_are_accepted_and_unchanged_cells_keep_their_reason(
    project: Path,
) -> None:
    assert run_exporter(project, "baseline", "update", "--reason", "why").returncode == 0
    assert set(read_reasons(project).values()) == {("fail", "why")}
    assert run_exporter(project, "gate").returncode == 0
    again = run_exporter(project, "baseline", "update", "--reason", "other")
    assert (again.returncode, "accepted already" in again.stdout) == (0, True)
    write_results(project, Status.FAIL, _18=Status.PASS)
    assert run_exporter(project, "baseline").returncode == 0
    assert read_reasons(project) == {"net/17/cpu": ("fail", "why"), "net/18/cpu": ("pass", "")}
    write_results(project, Status.PASS)
    better = run_exporter(project, "baseline", "update", "--reason", "fixed")
    assert (better.returncode, "pull request" in better.stdout) == (0, False)


def test_a_dropped_cell_keeps_its_reason_until_it_is_back(project: Path) -> None:
    (project / "manifests/net.toml").write_text(MANIFEST.replace("[17, 18]", "18"))
    write_results(project)
    assert run_exporter(project, "gate").returncode == 1
    run_exporter(project, "baseline", "update", "net/17", "--reason", "history", code=0)
    baseline = read_baseline(project / "reports/baseline")
    assert (key_by_text(baseline.dropped), [str(each.cell) for each in baseline.cells]) == (
        {"net/17/cpu": "history"},
        ["net/18/cpu"],
    )
    assert run_exporter(project, "gate").returncode == 0
    assert run_exporter(project, "baseline").returncode == 0
    assert read_baseline(project / "reports/baseline").dropped == baseline.dropped
    (project / "manifests/net.toml").write_text(MANIFEST)
    write_results(project)
    assert run_exporter(project, "baseline").returncode == 0
    assert not read_baseline(project / "reports/baseline").dropped


def test_a_removed_model_keeps_its_reason(project: Path) -> None:
    other = format_entry("other", "net.py:Net", opsets="[17]")
    (project / "manifests/net.toml").write_text(f"format = 1{other}")
    write_results(project)
    run_exporter(project, "baseline", "update", "net", "--reason", "replaced, see 7", code=0)
    run_exporter(project, "baseline", code=0)
    baseline = read_baseline(project / "reports/baseline")
    assert set(baseline.dropped.values()) == {"replaced, see 7"}
    run_exporter(project, "gate", code=0)
    run_exporter(project, "check", code=0)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nett", "--reason", "x"], 3, "no cell matches 'nett'; did you mean 'net'?"),
        (["net/9", "net/18", "--reason", "x"], 3, "no cell matches 'net/9'"),
        (["--reason", " "], 2, "--reason: expected one line of text"),
        (["--reason", "a\nb"], 2, "--reason: expected one line of text"),
        ([], 2, "Missing option '--reason'"),
    ],
)
def test_invalid_arguments_do_not_change_the_baseline(
    project: Path, arguments: list[str], code: int, message: str
) -> None:
    before = (project / "reports/baseline/net.json").read_bytes()
    command = run_exporter(project, "baseline", "update", *arguments)
    assert (command.returncode, message in command.stderr) == (code, True), command.stderr
    assert (project / "reports/baseline/net.json").read_bytes() == before


def test_a_cell_without_a_result_is_not_accepted(project: Path) -> None:
    (project / "manifests/net.toml").write_text(MANIFEST + "seed = 3\n")
    command = run_exporter(project, "baseline", "update", "net/18", "--reason", "x", code=1)
    assert "net/18/cpu: not accepted: its manifest entry changed" in command.stderr


def test_the_root_option_may_come_before_or_after_update(project: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    for options in (["--root", str(project), "update"], ["update", "--root", str(project)]):
        run_exporter(tmp_path / "elsewhere", "baseline", *options, "--reason", "x", code=0)


def review(root: Path, answers: str) -> tuple[int, str]:
    """Run the command in this process, with the answers as its input."""
    with (
        patch("sys.stdin", io.StringIO(answers)),
        redirect_stdout(io.StringIO()) as shown,
        redirect_stderr(io.StringIO()) as errors,
    ):
        code = run(["baseline", "review", "--root", str(root)])
    assert "Traceback" not in errors.getvalue()
    return code, shown.getvalue()


def test_a_review_accepts_one_change_and_rejects_another(project: Path) -> None:
    write_results(project, Status.FAIL, _18=Status.TIMEOUT)
    code, shown = review(project, "r\na\n\nknown, see 12\n")
    assert "change 2 of 2\nnet/18/cpu: newly red: pass -> timeout" in shown
    assert "code: E-timeout" in shown
    assert "rejected: net/17/cpu; fix it" in shown
    assert code == 1
    assert read_reasons(project) == {
        "net/17/cpu": ("pass", ""),
        "net/18/cpu": ("timeout", "known, see 12"),
    }


def test_equal_changes_are_one_and_reasons_are_offered_again(project: Path) -> None:
    code, shown = review(project, "a\nknown\n")
    assert "change 1 of 1\nnet/17..18/cpu: newly red: pass -> fail" in shown
    assert (code, read_reasons(project)["net/17/cpu"]) == (0, ("fail", "known"))
    write_results(project, Status.ERROR, _18=Status.TIMEOUT)
    assert review(project, "a\nworse\na\n\n")[0] == 0
    assert {reason for _, reason in read_reasons(project).values()} == {"worse"}


@pytest.mark.parametrize(("answers", "code"), [("s\n", 0), ("q\n", 0), ("", 130), ("a\n", 130)])
def test_a_review_that_accepts_nothing_writes_nothing(
    project: Path, answers: str, code: int
) -> None:
    before = (project / "reports/baseline/net.json").read_bytes()
    assert review(project, answers)[0] == code
    assert (project / "reports/baseline/net.json").read_bytes() == before


def test_a_change_without_a_result_is_skipped(project: Path) -> None:
    (project / "manifests/net.toml").write_text(MANIFEST.replace("[17, 18]", "[17, 18, 19]"))
    code, shown = review(project, "s\n" * 3)
    assert "skipped: a cell has no result" in shown
    assert code == 0
