"""`was` renames a model: its accepted state, reasons and policy stay, and no loss is hidden."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from exporter.core.errors import ExitCode
from exporter.records.record import Status
from tests.integration.project import format_entry, run_exporter, run_git
from tests.integration.results import MANIFEST, make_green_project, write_results

OTHER = format_entry("side", "net.py:Net", opsets="17")


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project with the models net and side, accepted with a reason, on a branch."""
    root = make_green_project(tmp_path_factory.mktemp("accepted"))
    (root / "manifests/net.toml").write_text(MANIFEST + OTHER)
    (root / ".gitignore").write_text("build/\n")
    write_results(root)
    run_exporter(root, "baseline", code=ExitCode.OK)
    run_exporter(root, "baseline", "update", "net/17/cpu", "--reason", "once", code=ExitCode.OK)
    run_git(root, "init", "-q", "-b", "main")
    commit(root)
    run_git(root, "checkout", "-qb", "topic")
    return root


@pytest.fixture
def branch(accepted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(accepted, tmp_path / "branch"))


def commit(root: Path) -> None:
    run_git(root, "add", "-A")
    run_git(root, "commit", "-qm", "change")


def rename(root: Path, was: str = '"net"', id: str = "fresh", entry: str = "") -> None:
    """Write the entry of net with another ID."""
    text = entry or MANIFEST
    text = re.sub(r"\[models\.net\]\n", f"[models.{id}]\nwas = {was}\n", text)
    (root / "manifests/net.toml").write_text(text + OTHER)


def run_gate(root: Path, *arguments: str) -> tuple[int, str]:
    ran = run_exporter(root, "gate", *arguments)
    return ran.returncode, ran.stdout + ran.stderr


def test_a_renamed_model_keeps_its_state_before_and_after_it_is_accepted(branch: Path) -> None:
    rename(branch)
    write_results(branch)
    for _ in range(2):
        for arguments in ((), ("--against", "main")):
            code, output = run_gate(branch, *arguments)
            assert (code, "3 as before" in output) == (ExitCode.OK, True), output
            assert "removed" not in output
        run_exporter(branch, "baseline", code=ExitCode.OK)
    files = {path.name for path in (branch / "reports/baseline").iterdir()}
    assert files == {"fresh.json", "side.json"}
    assert '"reason": "once"' in (branch / "reports/baseline/fresh.json").read_text()
    checked = run_exporter(branch, "check")
    note = r"manifests/net.toml:\d+: models.fresh.was: .*; remove `was` after the merge"
    assert re.search(note, checked.stdout)


def test_a_baseline_with_the_former_name_is_a_problem(branch: Path) -> None:
    rename(branch)
    write_results(branch)
    checked = run_exporter(branch, "check", code=ExitCode.RED)
    assert "fresh: was net in the baseline; run `exporter baseline`" in checked.stderr
    assert "net/17" not in checked.stderr


def test_without_was_a_renamed_model_is_a_removed_one(branch: Path) -> None:
    (branch / "manifests/net.toml").write_text(MANIFEST.replace(".net]", ".fresh]") + OTHER)
    write_results(branch)
    assert "net/17..18/cpu: promise removed" in run_gate(branch, "--against", "main")[1]


@pytest.mark.parametrize("is_accepted", [False, True])
@pytest.mark.parametrize(
    ("entry", "status", "loss"),
    [
        (MANIFEST, Status.FAIL, "newly red: pass -> fail"),
        (MANIFEST.replace("[17, 18]", "17"), Status.PASS, "fresh/18/cpu: promise removed"),
        (f"{MANIFEST}tolerance = {{ noise = 99 }}\n", Status.PASS, "contract relaxed"),
    ],
)
def test_a_loss_of_a_renamed_model_is_still_found(
    branch: Path, entry: str, status: Status, loss: str, *, is_accepted: bool
) -> None:
    rename(branch, entry=entry)
    write_results(branch, status)
    if is_accepted:
        run_exporter(branch, "baseline", code=ExitCode.OK)
        commit(branch)
    code, output = run_gate(branch, "--against", "main")
    assert loss in output
    assert code == ExitCode.RED, output


def test_a_rename_leaves_no_policy_and_no_owner(branch: Path) -> None:
    run_git(branch, "checkout", "-q", "main")
    strict = '[tool.exporter.gate]\nignore = ["newly_red"]\n'
    strict += '[tool.exporter.gate.models.net]\nblock = ["newly_red"]\n'
    settings = branch / "pyproject.toml"
    settings.write_text(strict)
    commit(branch)
    run_git(branch, "checkout", "-qb", "other")
    settings.write_text(strict.replace(".net]", ".fresh]"))
    rename(branch)
    write_results(branch, Status.FAIL)
    code, output = run_gate(branch, "--against", "main")
    assert (code, "fresh/17..18/cpu: newly red" in output) == (ExitCode.RED, True), output


def test_a_chain_of_renames_and_a_second_baseline(branch: Path) -> None:
    rename(branch, id="middle")
    write_results(branch)
    run_exporter(branch, "baseline", code=ExitCode.OK)
    commit(branch)
    rename(branch, was='["middle", "net"]')
    write_results(branch)
    assert "3 as before" in run_gate(branch)[1]
    assert "3 as before" in run_gate(branch, "--against", "main")[1]


def test_a_state_that_another_model_takes_is_a_removed_one(branch: Path) -> None:
    # `side` has a state of its own, so the state of `net` is not its former one.
    text = OTHER.replace("[models.side]\n", '[models.side]\nwas = "net"\n')
    (branch / "manifests/net.toml").write_text(f"format = 1{text}")
    write_results(branch)
    code, output = run_gate(branch, "--against", "main")
    assert (code, "net/17..18/cpu: promise removed" in output) == (ExitCode.RED, True), output


@pytest.mark.parametrize(
    ("was", "problem"),
    [
        ('"nte"', "models.fresh.was: the baseline has no model 'nte'; did you mean 'net'?"),
        ('"side"', '"side" is an entry, so it was not renamed'),
        ('["net", "other"]', '"other" can have one new ID; remove one `was`'),
        ("3", "models.fresh.was: expected"),
    ],
)
def test_a_wrong_former_name_is_a_problem_with_its_line(
    branch: Path, was: str, problem: str
) -> None:
    rename(branch, was)
    if "other" in was:
        entry = format_entry("third", "net.py:Net", opsets="17")
        text = entry.replace("[models.third]\n", '[models.third]\nwas = "other"\n')
        (branch / "manifests/third.toml").write_text(f"format = 1{text}")
    for command in (["check"], ["gate"], ["gate", "--against", "main"], ["baseline"]):
        if command[0] != "check" and "nte" in was:
            write_results(branch)
        ran = run_exporter(branch, *command)
        lines = [line for line in ran.stderr.splitlines() if problem in line]
        assert ran.returncode, command
        if command == ["check"] or "nte" in was:
            assert re.match(r"manifests/\w+\.toml:\d+: ", lines[0]), ran.stderr
