"""`exporter gate --against` blocks branches that weaken their own gate.

The tests use real git repositories and invented results, because they need no export.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from exporter.records.record import Status
from tests.integration.project import run_exporter, run_git
from tests.integration.results import MANIFEST, make_green_project, write_results

#: The folder of a project in its repository matters to paths that git prints and resolves.
in_both_places = pytest.mark.parametrize("accepted", ["", "models/vision"], indirect=True)


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Return a project in the root or a folder of its repository, on an unchanged branch."""
    folder = tmp_path_factory.mktemp("accepted")
    root = folder / "repository" / getattr(request, "param", "models/vision")
    make_green_project(root)
    (folder / "repository" / ".gitignore").write_text("build/\n*.bin\n")
    assert run_exporter(root, "baseline").returncode == 0
    run_git(folder / "repository", "init", "-q", "-b", "main")
    commit(root, "accepted")
    run_git(root, "checkout", "-qb", "topic")
    return root


@pytest.fixture
def branch(accepted: Path, tmp_path: Path) -> Path:
    """Return a copy of the project and its repository."""
    repository = next(path for path in (accepted, *accepted.parents) if path.name == "repository")
    shutil.copytree(repository, tmp_path / "repository")
    return tmp_path / "repository" / accepted.relative_to(repository)


def commit(root: Path, message: str) -> None:
    run_git(root, "add", ":/")
    run_git(root, "commit", "-qm", message)


def accept(root: Path, status: Status = Status.PASS) -> None:
    """Write results for the current manifests and accept them."""
    write_results(root, status)
    assert run_exporter(root, "baseline").returncode == 0


def run_gate(root: Path, revision: str = "main", **environment: str) -> tuple[int, str, str]:
    process = run_exporter(root, "gate", "--against", revision, **environment)
    assert "Traceback" not in process.stderr
    return process.returncode, process.stdout, process.stderr


@in_both_places
def test_an_unchanged_branch_passes(branch: Path) -> None:
    code, output, errors = run_gate(branch)
    assert (code, "2 as before" in output) == (0, True), output + errors
    assert f"compared with main ({run_git(branch, 'rev-parse', 'main')[:12]})" in errors
    assert run_git(branch, "status", "--porcelain") == ""


def test_a_branch_that_accepts_its_own_failure_is_blocked(branch: Path) -> None:
    accept(branch, Status.FAIL)
    run_git(branch, "commit", "-qam", "all is well")
    assert run_exporter(branch, "gate").returncode == 0
    code, output, _ = run_gate(branch)
    assert (code, "net/17..18/cpu: newly red: pass -> fail" in output) == (1, True), output


def test_unknown_approvals_are_a_warning_if_something_blocks(branch: Path) -> None:
    job = {"CI_MERGE_REQUEST_IID": "3"}
    host = ("gate", "--against", "main", "--approvals", "host")
    warning = "warning: GitLab: the approvals are unknown: GITLAB_TOKEN is not set; set"
    assert warning not in run_exporter(branch, *host, code=0, **job).stderr
    write_results(branch, Status.FAIL)
    assert warning in run_exporter(branch, *host, code=1, **job).stderr


def test_a_finding_contains_the_last_green_commit(branch: Path, tmp_path: Path) -> None:
    accepted, day = run_git(branch, "log", "-1", "--format=%H %cs").split()
    run_git(branch, "commit", "-q", "--allow-empty", "-m", "later")
    write_results(branch, Status.FAIL)
    green = f"last green in {accepted[:12]} of {day}"
    assert green in run_gate(branch)[1]
    assert green in run_exporter(branch, "gate").stdout
    # An uncommitted baseline and a shallow clone have no last green commit.
    baseline = branch / "reports/baseline/net.json"
    baseline.write_text(baseline.read_text() + "\n")
    assert "last green" not in run_exporter(branch, "gate").stdout
    run_git(branch, "checkout", "-q", "--", "reports/baseline")
    shallow = tmp_path / "cut"
    run_git(
        tmp_path, "clone", "-q", "--depth", "1", f"file://{tmp_path / 'repository'}", str(shallow)
    )
    shallow_project = shallow / branch.relative_to(tmp_path / "repository")
    write_results(shallow_project, Status.FAIL)
    assert "last green" not in run_exporter(shallow_project, "gate").stdout
    head = run_git(shallow_project, "rev-parse", "HEAD")
    assert f"last green in {head[:12]} of {day}" in run_gate(shallow_project, "HEAD")[1]


def test_a_branch_that_ignores_its_failures_is_blocked(branch: Path) -> None:
    (branch / "pyproject.toml").write_text("[tool.exporter.gate]\nignore = [\n  'newly_red',\n]\n")
    write_results(branch, Status.FAIL)
    assert run_exporter(branch, "gate").returncode == 0
    code, output, errors = run_gate(branch)
    assert code == 1, errors
    assert "newly red: pass -> fail" in output
    looser = 'contract relaxed: gate.block = ["newly_red"] -> gate.ignore = ["newly_red"]'
    assert f"pyproject.toml:3: {looser}" in output
    assert output.count("contract relaxed: ") == 1


def test_a_changed_model_is_the_cause_of_its_failure(branch: Path) -> None:
    (branch / "manifests/net.py").write_text("class Net:\n    slices = True\n")
    write_results(branch, Status.FAIL, sources=("manifests/net.py",))
    job = {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(branch)}
    for arguments in (("gate", "--against", "main"), ("gate",)):
        output = run_exporter(branch, *arguments, **job).stdout
        assert "    the model changed: manifests/net.py:1-2\n" in output
        assert "        +    slices = True" in output
        assert "file=manifests/net.py,line=1::pass -> fail at parity. the model changed" in output
        page = (branch / "build/gate.md").read_text()
        assert "the model changed: manifests/net.py:1-2; edited at `manifests/net.py:1`" in page
        assert "```diff\n" in page
    # The same failure without an edit of the model has another cause.
    run_git(branch, "checkout", "-q", "--", "manifests/net.py")
    write_results(branch, Status.FAIL, sources=("manifests/net.py",), tools={"torch": "2.14.0"})
    output = run_gate(branch)[1]
    assert "    the tools changed: torch 2.13.0 to 2.14.0\n" in output
    assert "the model changed" not in output


def test_a_branch_that_skips_or_loosens_or_drops_cells_is_blocked(branch: Path) -> None:
    manifest = branch / "manifests/net.toml"
    loosened = MANIFEST + "tolerance = { noise = 99 }\nskip = [{ opset = 17, reason = 'slow' }]\n"
    manifest.write_text(loosened)
    accept(branch)
    job = {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(branch)}
    code, output, _ = run_gate(branch, **job)
    assert code == 1
    assert "net/17/cpu: newly skipped: pass -> skip" in output
    (annotation,) = [line for line in output.splitlines() if line.startswith("::error ")]
    edited = len(MANIFEST.splitlines()) + 1
    assert f",file=manifests/net.toml,line={edited}::" in annotation
    assert "contract relaxed: tolerance of y: noise = 8 by default -> noise = 99" in output
    manifest.write_text(MANIFEST.replace("[17, 18]", "18"))
    accept(branch)
    code, output, _ = run_gate(branch)
    assert (code, "net/17/cpu: promise removed: pass -> no result" in output) == (1, True), output


def test_later_changes_of_main_do_not_affect_the_branch(branch: Path) -> None:
    run_git(branch, "checkout", "-q", "main")
    (branch / "manifests/net.toml").write_text(MANIFEST.replace("[17, 18]", "[17, 18, 19]"))
    (branch / "reports/baseline/net.json").write_text("damaged")
    run_git(branch, "commit", "-qam", "more")
    run_git(branch, "checkout", "-q", "topic")
    write_results(branch)
    assert run_gate(branch)[0] == 0


ALLOWED = '[tool.exporter.gate]\nwarn = ["accepted_here"]\n'


@in_both_places
def test_the_policy_at_the_tip_judges_a_branch_from_an_older_commit(branch: Path) -> None:
    settings = branch / "pyproject.toml"
    strict = settings.read_text()
    (branch / "manifests/net.toml").write_text(MANIFEST.replace("[17, 18]", "18"))
    write_results(branch)
    reason = ("baseline", "update", "net/17/*", "--reason", "no user has 17")
    run_exporter(branch, *reason, code=0)
    commit(branch, "drop 17")
    assert run_gate(branch)[0] == 1
    # A maintainer allows it, also for a branch that began before.
    run_git(branch, "checkout", "-q", "main")
    settings.write_text(strict + ALLOWED)
    commit(branch, "allow it")
    run_git(branch, "checkout", "-q", "topic")
    code, output, errors = run_gate(branch)
    assert (code, "contract relaxed" in output) == (0, False), output + errors
    # The permission ended: a branch from that commit does not have it any more.
    run_git(branch, "rebase", "-q", "main")
    run_git(branch, "checkout", "-q", "main")
    settings.write_text(strict)
    commit(branch, "the permission ends")
    run_git(branch, "checkout", "-q", "topic")
    code, output, _ = run_gate(branch)
    assert (code, "contract relaxed" in output) == (1, False), output
    # A stricter policy that the branch does not have yet is no change of the branch.
    run_git(branch, "checkout", "-q", "main")
    settings.write_text(strict + '[tool.exporter.gate]\nblock = ["accepted_here"]\n')
    commit(branch, "no loss at all")
    run_git(branch, "checkout", "-q", "topic")
    code, output, _ = run_gate(branch)
    assert (code, "contract relaxed" in output) == (1, False), output
    assert "the policy of main lets no branch accept a loss" in output
    run_git(branch, "checkout", "-q", "main")
    settings.write_text("[tool.exporter.gate]\nblock = 1\n")
    commit(branch, "broken")
    run_git(branch, "checkout", "-q", "topic")
    code, _, errors = run_gate(branch)
    assert (code, "main: pyproject.toml:2" in errors) == (5, True), errors


def test_new_cells_pass_if_the_branch_has_accepted_them(branch: Path) -> None:
    (branch / "manifests/net.toml").write_text(MANIFEST.replace("[17, 18]", "[17, 18, 19]"))
    write_results(branch)
    code, output, _ = run_gate(branch)
    assert (code, "net/19/cpu: new cell, green" in output) == (1, True)
    assert run_exporter(branch, "baseline").returncode == 0
    code, output, _ = run_gate(branch)
    stale = "reports/COMPATIBILITY.md of the last commit has other results"
    assert (code, stale in output) == (0, True)
    commit(branch, "pages")
    assert stale not in run_gate(branch)[1]


def test_manifests_of_the_revision_may_name_ignored_files(branch: Path) -> None:
    run_git(branch, "checkout", "-q", "main")
    (branch / "manifests/weights.bin").write_text("")
    (branch / "manifests/net.toml").write_text(MANIFEST + 'weights = "weights.safetensors"\n')
    (branch / "manifests/weights.safetensors").write_text("")
    (branch / ".gitignore").write_text("*.safetensors\n")
    accept(branch)
    commit(branch, "weights")
    assert "safetensors" not in run_git(branch, "ls-files")
    code, output, errors = run_gate(branch)
    assert code == 0, output + errors


WITH_WEIGHTS = MANIFEST + 'weights = "weights.bin"\ntolerance = { atol = 1e-6 }\n'


def test_a_file_that_the_model_reads_has_a_note_when_git_ignores_it(branch: Path) -> None:
    for name in ("own.bin", "version.py", "kept.json"):
        (branch / "manifests" / name).touch()
    (branch / ".gitignore").write_text("*.bin\nversion.py\n")
    sources = [f"manifests/{name}" for name in ("own.bin", "version.py", "kept.json")]
    write_results(branch, sources=sources)
    note = "note: manifests/own.bin: git ignores it, so CI does not have it for 1 model (net); see"
    for command in ("baseline", "gate"):
        errors = run_exporter(branch, command).stderr
        assert note in errors
        assert errors.count("git ignores it") == 1
    assert "git ignores it" not in run_exporter(branch, "gate", CI="true").stderr


def test_weights_that_neither_the_revision_nor_the_branch_has_are_no_problem_of_the_revision(
    branch: Path,
) -> None:
    """The other models are compared, and no model without its weights becomes green."""
    run_git(branch, "checkout", "-q", "main")
    other = MANIFEST.partition("[models.net]")[2]
    text = WITH_WEIGHTS + f"\n[models.other]{other}"
    (branch / "manifests/net.toml").write_text(text)
    weights = branch / "manifests/weights.bin"
    weights.touch()
    accept(branch)
    commit(branch, "weights")
    notes = [
        run_exporter(branch, "check").stdout,
        run_exporter(branch, "baseline").stderr,
        run_exporter(branch, "doctor").stdout,
        run_exporter(branch, "gate").stderr,
    ]
    note = "manifests/weights.bin: git ignores it, so CI does not have it for 1 model (net);"
    assert [note in text for text in notes] == [True] * 4
    # In CI, a step fetched the file.
    assert note not in run_exporter(branch, "check", CI="true").stdout
    run_git(branch, "checkout", "-q", "topic")
    run_git(branch, "reset", "-q", "--hard", "main")
    # The branch has the results of a green export, and then no weights: they are no results.
    weights.unlink()
    code, output, errors = run_gate(branch)
    assert code == 1, output + errors
    assert "net/17..18/cpu" in output
    assert "other/" not in output
    assert "has other results" not in output, "nobody should commit the pages of this machine"
    sentence = "manifests/weights.bin: does not exist here, and git ignores it: 1 model (net)"
    assert sentence in errors
    message = "git ignores it, so fetch it first: see `exporter guide weights`"
    assert message in run_exporter(branch, "check").stderr
    for edited, blocked, finding in (
        # An entry that no longer needs the file is compared with that of the revision.
        (text.replace('weights = "weights.bin"\n', ""), 1, "relaxed: weights: weights.bin -> "),
        (
            text.replace('weights = "weights.bin"', 'weights = "other.bin"'),
            0,  # listed, as it is with the files
            "contract changed: weights: weights.bin -> other.bin",
        ),
        (
            text.replace('weights = "weights.bin"\ntolerance = { atol = 1e-6 }\n', ""),
            1,
            "relaxed: tolerance",
        ),
    ):
        (branch / "manifests/other.bin").touch()
        (branch / "manifests/net.toml").write_text(edited)
        accept(branch)
        code, output, errors = run_gate(branch)
        assert (code, finding in output) == (blocked, True), output + errors


@pytest.mark.parametrize(
    ("revision", "code", "message"),
    [
        ("--output=x", 2, "is not a revision"),
        ("", 2, "is not a revision"),
        ("nowhere", 2, "git has no commit 'nowhere'"),
        ("main:manifests", 2, "git has no commit"),
    ],
)
def test_an_invalid_revision_is_an_error(
    branch: Path, revision: str, code: int, message: str
) -> None:
    process = run_exporter(branch, "gate", f"--against={revision}")
    assert (process.returncode, message in process.stderr) == (code, True), process.stderr


def test_a_revision_without_baseline_history_or_valid_manifests_is_an_error(branch: Path) -> None:
    run_git(branch, "checkout", "-q", "--orphan", "unrelated")
    run_git(branch, "rm", "-qrf", "--cached", ":/")
    run_git(branch, "add", "manifests", "pyproject.toml")
    run_git(branch, "commit", "-qm", "unrelated")
    code, _, errors = run_gate(branch)
    assert (code, "no common commit" in errors, "fetch-depth: 0" in errors) == (4, True, True)
    shutil.rmtree(branch / "reports/baseline")
    code, _, errors = run_gate(branch, "unrelated")
    assert (code, "has no reports/baseline;" in errors) == (1, True)
    (branch / "manifests/net.toml").write_text(MANIFEST.replace("format = 1", "format = ["))
    run_git(branch, "commit", "-qam", "broken")
    (branch / "manifests/net.toml").write_text(MANIFEST)
    code, _, errors = run_gate(branch, "unrelated")
    assert (code, "manifests/net.toml:" in errors) == (5, True), errors


@pytest.mark.parametrize("status", [Status.PASS, Status.FAIL])
def test_the_first_baseline_of_a_project_has_only_new_cells(branch: Path, status: Status) -> None:
    run_git(branch, "checkout", "-q", "main")
    run_git(branch, "rm", "-qr", "reports/baseline")
    commit(branch, "no baseline")
    run_git(branch, "checkout", "-qb", "first")
    accept(branch, status)
    commit(branch, "the first baseline")
    code, output, errors = run_gate(branch)
    is_red = status is Status.FAIL
    assert (code, "2 new" in output) == (int(is_red), True), output + errors
    assert ("new cell, red" in output) == is_red, output


def test_a_project_in_a_new_folder_has_only_new_cells(branch: Path) -> None:
    fresh = branch.with_name("fresh")
    make_green_project(fresh)
    (fresh / "manifests/net.toml").write_text(MANIFEST.replace("models.net", "models.fresh"))
    write_results(fresh)
    run_exporter(fresh, "baseline", code=0)
    commit(branch, "a second project")
    code, output, errors = run_gate(fresh)
    assert (code, "2 new" in output) == (0, True), output + errors


def test_a_project_that_moved_is_an_error(branch: Path) -> None:
    moved = branch.with_name("moved")
    run_git(branch.parent, "mv", branch.name, moved.name)
    commit(moved, "moved")
    code, _, errors = run_gate(moved)
    assert code == 2
    assert "has no folder 'models/moved/', and models/vision/reports/baseline/net.json" in errors


def test_the_gate_fails_without_git_or_a_repository(branch: Path, tmp_path: Path) -> None:
    code, _, errors = run_gate(branch, PATH="")
    assert (code, "git is not installed" in errors) == (4, True)
    code, _, errors = run_gate(branch, GIT_CEILING_DIRECTORIES=str(tmp_path), GIT_DIR="nowhere")
    assert (code, "not a git repository" in errors) == (4, True)
    shutil.copytree(branch, tmp_path / "plain", ignore=shutil.ignore_patterns(".git"))
    code, _, errors = run_gate(tmp_path / "plain")
    expected = "--against: the folder is not in a git repository; run the command in one\n"
    assert (code, errors) == (4, expected)


def test_an_edited_entry_is_a_finding_until_it_is_accepted_and_then_listed(branch: Path) -> None:
    path = branch / "manifests/net.toml"
    path.write_text(path.read_text().replace('["batch", 4]', "[1, 4]"))
    write_results(branch)
    changed = "contract changed: input x: shape = batch, 4 -> shape = 1, 4"
    plain = run_exporter(branch, "gate")
    assert (plain.returncode, f"net/17..18/cpu: {changed}" in plain.stdout) == (1, True)
    accept(branch)
    assert "2 as before" in run_exporter(branch, "gate").stdout
    words = run_git(branch, "diff", "--", "reports/baseline")
    assert '-    "input x": {"shape": ["batch", 4],' in words
    assert '+    "input x": {"shape": [1, 4],' in words
    code, output, _ = run_gate(branch)
    assert (code, "contract relaxed: shape of x: batch, 4 -> 1, 4" in output) == (
        1,
        True,
    )
    assert f"net/17..18/cpu: {changed}" in output.partition("accepted in this branch")[2]
    assert "**Accepted in this branch**" in (branch / "build/comment.md").read_text()
    document = json.loads(run_exporter(branch, "gate", "--against", "main", "--json").stdout)
    assert {each["kind"] for each in document["accepted"]} == {"contract changed"}
    # A model that was invalid at its acceptance has no contract to compare.
    accepted = (branch / "reports/baseline/net.json").read_text()
    old = re.sub(r' *"(contract|weights)": ({.*?\n  }|""),\n', "", accepted, flags=re.DOTALL)
    (branch / "reports/baseline/net.json").write_text(old)
    plain = run_exporter(branch, "gate")
    assert (plain.returncode, "the baseline has no contract of" in plain.stderr) == (0, True)


def test_a_data_file_with_another_content_is_shown(branch: Path) -> None:
    path = branch / "manifests/net.toml"
    path.write_text(path.read_text() + 'depends = ["data/*.txt"]\n')
    data = branch / "manifests/data/a.txt"
    data.parent.mkdir()
    data.write_text("one")
    write_results(branch, Status.PASS)
    commit(branch, "data")
    assert "redefined: content" not in run_gate(branch, "HEAD")[1]
    data.write_text("two")
    output = run_gate(branch, "HEAD")[1]
    assert "model redefined: content of manifests/data/a.txt: " in output


_INPUTS = """import helpers

class Net:
    depth = 3

def fill(shape, dtype, generator):
    return helpers.draw(shape)
"""


def test_the_code_of_a_function_that_creates_inputs_is_compared(branch: Path) -> None:
    code, manifest = branch / "manifests/net.py", branch / "manifests/net.toml"
    helpers = branch / "helpers.py"
    code.write_text(_INPUTS)
    helpers.write_text("def draw(shape): ...\n")
    shape = 'shape = ["batch", 4]'
    manifest.write_text(MANIFEST.replace(shape, f'{shape}, fill = {{ python = "net.py:fill" }}'))
    accept(branch)
    commit(branch, "a function")
    code.write_text(_INPUTS.replace("depth = 3", "depth = 4"))
    assert run_gate(branch, "HEAD")[0] == 0
    finding = "net/17..18/cpu: contract relaxed: code of net.py:fill: "
    helpers.write_text("def draw(shape): return None\n")
    status, output, _ = run_gate(branch, "HEAD")
    assert (status, finding in output) == (1, True), output


@in_both_places
def test_a_data_file_behind_a_link_out_of_the_project_is_compared(branch: Path) -> None:
    shared = branch.parent / "shared"
    path = branch / "manifests/net.toml"
    path.write_text(path.read_text() + 'weights = "w.pt"\n')
    shared.mkdir()
    (shared / "w.pt").write_text("one")
    (branch / "manifests/w.pt").symlink_to("../../shared/w.pt")
    write_results(branch, Status.PASS)
    commit(branch, "data")
    assert "retrained: " not in run_gate(branch, "HEAD")[1]
    (shared / "w.pt").write_text("two")
    # git has the content of files in the repository only.
    is_inside = shared.is_relative_to(find_repository(branch))
    finding = "retrained: weights file manifests/w.pt: "
    assert (finding in run_gate(branch, "HEAD")[1]) is is_inside


@in_both_places
def test_manifests_in_a_submodule_are_compared(branch: Path, tmp_path: Path) -> None:
    module = tmp_path / "module"
    shutil.copytree(branch / "manifests", module)
    run_git(module, "init", "-q", "-b", "main")
    commit(module, "manifests")
    run_git(branch, "rm", "-rq", "manifests")
    allow = ("-c", "protocol.file.allow=always")
    run_git(branch, *allow, "submodule", "--quiet", "add", str(module), "manifests")
    run_git(branch, "commit", "-qm", "a submodule")
    code, output, errors = run_gate(branch, "HEAD")
    assert (code, "2 as before" in output) == (0, True), output + errors
    path = branch / "manifests/net.toml"
    path.write_text(path.read_text() + 'mode = "train"\n')
    write_results(branch, Status.PASS)
    code, output, _ = run_gate(branch, "HEAD")
    assert (code, "mode: eval -> train" in output) == (1, True), output


def find_repository(root: Path) -> Path:
    return Path(run_git(root, "rev-parse", "--show-toplevel"))


@pytest.mark.parametrize("is_folder", [False, True])
def test_manifests_behind_a_link_in_the_repository_are_compared(
    branch: Path, is_folder: bool
) -> None:
    shared = find_repository(branch) / "shared/nets"
    manifest = shared / "net.toml"
    path = branch / "manifests"
    if is_folder:
        shared.parent.mkdir()
        path.rename(shared)
    else:
        shutil.copytree(path, shared)
        path = path / "net.toml"
        path.unlink()
    target = shared if is_folder else manifest
    path.symlink_to(os.path.relpath(target, path.parent))
    write_results(branch)
    commit(branch, "a link")
    code, output, errors = run_gate(branch, "HEAD")
    assert (code, "2 as before" in output) == (0, True), output + errors
    manifest.write_text(manifest.read_text() + 'mode = "train"\n')
    write_results(branch)
    code, output, _ = run_gate(branch, "HEAD")
    assert (code, "mode: eval -> train" in output) == (1, True), output


@in_both_places
@pytest.mark.parametrize("is_absolute", [False, True])
def test_a_manifest_behind_a_link_out_of_the_repository_is_a_finding(
    branch: Path, tmp_path: Path, is_absolute: bool
) -> None:
    path, outer = branch / "manifests/net.toml", tmp_path / "outer/net.toml"
    outer.parent.mkdir()
    other = path.read_text().replace("models.net", "models.other")
    (branch / "manifests/other.toml").write_text(other)
    accept(branch)
    path.rename(outer)
    path.symlink_to(outer if is_absolute else os.path.relpath(outer, path.parent))
    commit(branch, "a link")
    code, _, errors = run_gate(branch, "HEAD")
    refusal = "manifests/net.toml: cannot be read: is a symlink to a file that is no TOML file of"
    assert (code, refusal in errors) == (1, True), errors
    path.unlink()
    path.write_text(outer.read_text() + 'mode = "train"\n')
    write_results(branch)
    code, output, errors = run_gate(branch, "HEAD")
    assert code == 1, output + errors
    assert "net/17..18/cpu: contract relaxed: no entry at the revision -> promised" in output
    assert "other/" not in output
    # Without any readable manifest at the revision, nothing can be compared.
    content = path.read_text()
    path.unlink()
    path.symlink_to(outer)
    run_git(branch, "rm", "-q", "manifests/other.toml")
    run_git(branch, "commit", "-qam", "only the link")
    path.unlink()
    path.write_text(content)
    write_results(branch)
    code, _, errors = run_gate(branch, "HEAD")
    assert code == 5
    assert "manifests/net.toml: is a link out of the repository" in errors


def test_a_link_without_a_target_is_omitted(branch: Path) -> None:
    for name, target in (("circle.toml", "circle.toml"), ("lost.toml", "nowhere.toml")):
        (branch / "manifests" / name).symlink_to(target)
    commit(branch, "links")
    for name in ("circle.toml", "lost.toml"):
        (branch / "manifests" / name).unlink()
    code, output, errors = run_gate(branch, "HEAD")
    assert (code, "2 as before" in output) == (0, True), output + errors


def test_an_entry_that_the_revision_does_not_contain_is_a_finding(
    branch: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "moved.toml"
    path = branch / "manifests/net.toml"
    path.rename(moved)
    (branch / "manifests/other.toml").write_text(
        moved.read_text().replace("models.net", "models.o")
    )
    commit(branch, "the entry is elsewhere, the baseline has its cells")
    moved.rename(path)
    write_results(branch, Status.PASS)
    code, output, _ = run_gate(branch, "HEAD")
    assert code == 1
    assert "net/17..18/cpu: contract relaxed: no entry at the revision -> promised" in output
