"""`exporter gate --against` in a real repository: what a branch cannot do to its own gate.

The results are made up, since git and the gate are what this is about: nothing is exported.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from exporter.records.record import Status
from tests.integration.project import run_exporter
from tests.integration.results import MANIFEST, make_green_project, write_results


def run_git(root: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    ran = subprocess.run(["git", *who, *arguments], cwd=root, capture_output=True, check=True)
    return ran.stdout.decode().strip()


@pytest.fixture(params=["", "models/vision"])
def branch(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A project, at the top of its repository or below, on a branch without a change so far."""
    root = tmp_path / "repository" / request.param
    make_green_project(root)
    (tmp_path / "repository" / ".gitignore").write_text("build/\n*.bin\n")
    assert run_exporter(root, "baseline").returncode == 0
    run_git(tmp_path / "repository", "init", "-q", "-b", "main")
    run_git(root, "add", ":/")
    run_git(root, "commit", "-qm", "accepted")
    run_git(root, "checkout", "-qb", "topic")
    return root


def against(root: Path, revision: str = "main", **environment: str) -> tuple[int, str, str]:
    ran = run_exporter(root, "gate", "--against", revision, **environment)
    assert "Traceback" not in ran.stderr
    return ran.returncode, ran.stdout, ran.stderr


def test_a_branch_that_changes_nothing_passes(branch: Path) -> None:
    code, said, heard = against(branch)
    assert (code, "2 cells as accepted" in said) == (0, True), said + heard
    assert f"compared with main ({run_git(branch, 'rev-parse', 'main')[:12]})" in heard
    assert run_git(branch, "status", "--porcelain") == ""


def test_a_branch_that_accepts_its_own_loss_is_stopped(branch: Path) -> None:
    write_results(branch, Status.FAIL)
    assert run_exporter(branch, "baseline").returncode == 0
    run_git(branch, "commit", "-qam", "all is well")
    assert run_exporter(branch, "gate").returncode == 0
    code, said, _ = against(branch)
    assert (code, "net/17..18/cpu: newly red: pass -> fail" in said) == (1, True), said


def test_a_finding_names_the_commit_that_was_green(branch: Path, tmp_path: Path) -> None:
    accepted, day = run_git(branch, "log", "-1", "--format=%H %cs").split()
    run_git(branch, "commit", "-q", "--allow-empty", "-m", "later")
    write_results(branch, Status.FAIL)
    green = f"last green in {accepted[:12]} of {day}"
    assert green in against(branch)[1]
    assert green in run_exporter(branch, "gate").stdout
    # One that nobody committed has no commit, and neither has one whose history was cut off.
    baseline = branch / "reports/baseline.json"
    baseline.write_text(baseline.read_text() + "\n")
    assert "last green" not in run_exporter(branch, "gate").stdout
    run_git(branch, "checkout", "-q", "--", "reports/baseline.json")
    cut = tmp_path / "cut"
    run_git(tmp_path, "clone", "-q", "--depth", "1", f"file://{tmp_path / 'repository'}", str(cut))
    inner = cut / branch.relative_to(tmp_path / "repository")
    write_results(inner, Status.FAIL)
    assert "last green" not in run_exporter(inner, "gate").stdout
    head = run_git(inner, "rev-parse", "HEAD")
    assert f"last green in {head[:12]} of {day}" in against(inner, "HEAD")[1]


def test_a_branch_that_ignores_its_losses_is_stopped(branch: Path) -> None:
    (branch / "pyproject.toml").write_text("[tool.exporter.gate]\nnewly_red = 'ignore'\n")
    write_results(branch, Status.FAIL)
    assert run_exporter(branch, "gate").returncode == 0
    code, said, _ = against(branch)
    assert code == 1
    assert "newly red: pass -> fail" in said
    assert "contract relaxed: gate.newly_red = block -> gate.newly_red = ignore" in said


def test_a_branch_that_skips_or_loosens_or_drops_is_stopped(branch: Path) -> None:
    manifest = branch / "manifests/net.toml"
    loose = MANIFEST + "tolerance = { noise = 99 }\nskip = [{ opset = 17, reason = 'slow' }]\n"
    manifest.write_text(loose)
    write_results(branch)
    assert run_exporter(branch, "baseline").returncode == 0
    code, said, _ = against(branch)
    assert code == 1
    assert "net/17/cpu: newly skipped: pass -> skip" in said
    assert "contract relaxed: tolerance of y: noise = 8 -> tolerance of y: noise = 99" in said
    manifest.write_text(MANIFEST.replace("[17, 18]", "18"))
    write_results(branch)
    assert run_exporter(branch, "baseline").returncode == 0
    code, said, _ = against(branch)
    assert (code, "net/17/cpu: missing: pass -> no result" in said) == (1, True), said


def test_what_main_did_meanwhile_is_not_the_branchs(branch: Path) -> None:
    run_git(branch, "checkout", "-q", "main")
    (branch / "manifests/net.toml").write_text(MANIFEST.replace("[17, 18]", "[17, 18, 19]"))
    (branch / "reports/baseline.json").write_text("damaged")
    run_git(branch, "commit", "-qam", "more")
    run_git(branch, "checkout", "-q", "topic")
    write_results(branch)
    assert against(branch)[0] == 0


def test_new_cells_pass_once_the_branch_has_accepted_them(branch: Path) -> None:
    (branch / "manifests/net.toml").write_text(MANIFEST.replace("[17, 18]", "[17, 18, 19]"))
    write_results(branch)
    code, said, _ = against(branch)
    assert (code, "net/19/cpu: new cell, green" in said) == (1, True)
    assert run_exporter(branch, "baseline").returncode == 0
    assert against(branch)[0] == 0


def test_what_git_ignores_may_be_named_by_the_revisions_manifests(branch: Path) -> None:
    run_git(branch, "checkout", "-q", "main")
    (branch / "manifests/weights.bin").write_text("")
    (branch / "manifests/net.toml").write_text(MANIFEST + 'weights = "weights.safetensors"\n')
    (branch / "manifests/weights.safetensors").write_text("")
    (branch / ".gitignore").write_text("*.safetensors\n")
    write_results(branch)
    assert run_exporter(branch, "baseline").returncode == 0
    run_git(branch, "add", ":/")
    run_git(branch, "commit", "-qm", "weights")
    assert "safetensors" not in run_git(branch, "ls-files")
    code, said, heard = against(branch)
    assert code == 0, said + heard


@pytest.mark.parametrize(
    ("revision", "code", "message"),
    [
        ("--output=x", 2, "is not a revision"),
        ("", 2, "is not a revision"),
        ("nowhere", 2, "git has no commit 'nowhere'"),
        ("main:manifests", 2, "git has no commit"),
    ],
)
def test_what_is_no_revision_is_told(branch: Path, revision: str, code: int, message: str) -> None:
    ran = run_exporter(branch, "gate", f"--against={revision}")
    assert (ran.returncode, message in ran.stderr) == (code, True), ran.stderr


def test_revisions_without_baseline_history_or_readable_manifests(branch: Path) -> None:
    run_git(branch, "checkout", "-q", "--orphan", "alone")
    run_git(branch, "rm", "-qrf", "--cached", ":/")
    run_git(branch, "add", "manifests", "pyproject.toml")
    run_git(branch, "commit", "-qm", "alone")
    code, _, heard = against(branch)
    assert (code, "no common commit" in heard, "fetch-depth: 0" in heard) == (4, True, True)
    code, _, heard = against(branch, "alone")
    assert (code, "has no reports/baseline.json" in heard) == (1, True)
    (branch / "manifests/net.toml").write_text(MANIFEST.replace("net.py", "nut.py"))
    run_git(branch, "commit", "-qam", "broken")
    (branch / "manifests/net.toml").write_text(MANIFEST)
    code, _, heard = against(branch, "alone")
    assert (code, "net.toml:3: models.net.source" in heard) == (5, True), heard


def test_without_git_or_a_repository(branch: Path, tmp_path: Path) -> None:
    code, _, heard = against(branch, PATH="")
    assert (code, "git is not installed" in heard) == (4, True)
    code, _, heard = against(branch, GIT_CEILING_DIRECTORIES=str(tmp_path), GIT_DIR="nowhere")
    assert (code, "not a git repository" in heard) == (4, True)
