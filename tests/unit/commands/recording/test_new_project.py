from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import tomli
import yaml

from exporter.commands.recording import new_project
from exporter.commands.recording.file_changes import apply_changes
from exporter.commands.recording.new_project import NewProject, prepare_project
from exporter.core.errors import ExporterError
from exporter.manifest import load_project
from tests.integration.project import run_git

ROOT = Path(__file__).parents[4]

PYPROJECT = """\
# the project
[project]
name = "x"   # a name

[tool.ruff]
line-length = 90
"""
PRE_COMMIT = """\
repos:
  - repo: https://example.org/a
    rev: v1
    hooks:
      - id: a
ci:
  skip: [a]
"""


def prepare(root: Path) -> NewProject:
    return prepare_project(root, ci="github", pre_commit=True)


def list_actions(project: NewProject) -> dict[str, str]:
    return {change.path.name: change.action for change in project.changes}


def test_an_empty_folder_becomes_a_valid_project(tmp_path: Path) -> None:
    apply_changes(prepare(tmp_path).changes)
    assert [model.id for model in load_project(tmp_path).models] == ["example"]
    assert (tmp_path / ".gitignore").read_text() == "build/\n"
    workflow = yaml.safe_load((tmp_path / ".github/workflows/onnx.yml").read_text())
    checkout, action, site, upload = workflow["jobs"]["onnx"]["steps"]
    assert site["run"].split()[-1] == upload["with"]["path"] == "build/site"
    assert site["if"] == upload["if"] == workflow["jobs"]["pages"]["if"]
    assert "github.ref == 'refs/heads/main' && vars.ONNX_PAGES == 'on'" in site["if"]
    assert checkout["with"] == {"fetch-depth": 0, "persist-credentials": False}
    assert action["uses"] == "OWNER/onnx-exporter-matrix@COMMIT"
    assert action["with"]["packages"].endswith("https://download.pytorch.org/whl/cpu")
    inputs = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
    assert action["with"].keys() <= inputs.keys()
    tables = workflow["jobs"]["tables"]
    assert "vars.ONNX_TABLES == 'on'" in tables["if"]
    assert tables["permissions"] == {"contents": "write", "pull-requests": "write"}
    _, export, commit = tables["steps"]
    assert export["with"] == {**action["with"], "steps": "export"}
    text = (ROOT / "docs/ci.md").read_text().partition("## The tables of main")[2]
    block = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    assert commit["run"] == block["jobs"]["tables"]["steps"][-1]["run"]


def test_existing_files_keep_their_content_and_a_second_call_changes_nothing(
    tmp_path: Path,
) -> None:
    files = {
        "pyproject.toml": PYPROJECT,
        ".gitignore": "*.pyc",
        "noxfile.py": "import nox\n",
        ".pre-commit-config.yaml": PRE_COMMIT,
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    apply_changes(prepare(tmp_path).changes)
    assert (tmp_path / "pyproject.toml").read_text().startswith(PYPROJECT)
    assert (tmp_path / ".gitignore").read_text() == "*.pyc\nbuild/\n"
    assert (
        'session.install("onnx-exporter-matrix[export]", "-e", ".")'
        in (tmp_path / "noxfile.py").read_text()
    )
    hooks = yaml.safe_load((tmp_path / ".pre-commit-config.yaml").read_text())
    assert [repo["hooks"][0]["id"] for repo in hooks["repos"]] == ["a", "exporter-check"]
    assert hooks["ci"] == {"skip": ["a"]}
    assert {*list_actions(prepare(tmp_path)).values()} == {"unchanged"}


@pytest.mark.parametrize(
    ("origin", "action", "requirement"),
    [
        (("https://github.com/acme/tool.git", "abc"), "acme/tool@abc",
         "onnx-exporter-matrix[export] @ git+https://github.com/acme/tool.git@abc"),
        (("ssh://git@github.com/acme/tool", "abc"), "acme/tool@abc",
         "onnx-exporter-matrix[export] @ git+ssh://git@github.com/acme/tool@abc"),
        (("https://git.acme.org/tool", "abc"), "OWNER/onnx-exporter-matrix@COMMIT",
         "onnx-exporter-matrix[export] @ git+https://git.acme.org/tool@abc"),
        (("file:///home/me/tool", ""), "OWNER/onnx-exporter-matrix@COMMIT",
         "onnx-exporter-matrix[export]"),
    ],
)  # fmt: skip
def test_the_workflow_and_the_session_install_from_the_origin(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    origin: tuple[str, str],
    action: str,
    requirement: str,
) -> None:
    monkeypatch.setattr("exporter.core.text.find_origin", lambda: origin)
    monkeypatch.setattr("exporter.commands.recording.new_project.find_origin", lambda: origin)
    (tmp_path / "noxfile.py").write_text("import nox\n")
    apply_changes(prepare(tmp_path).changes)
    assert f"uses: {action}\n" in (tmp_path / ".github/workflows/onnx.yml").read_text()
    assert f'session.install("{requirement}")' in (tmp_path / "noxfile.py").read_text()


def test_a_project_with_manifests_gets_no_example(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.exporter]\nmanifests = "contracts"\n')
    (tmp_path / "contracts").mkdir()
    (tmp_path / "contracts" / "own.toml").touch()
    actions = list_actions(prepare(tmp_path))
    assert actions["pyproject.toml"] == "unchanged"
    assert "example.toml" not in actions


@pytest.mark.parametrize("value", ["3", "[]", "[3]", "['', 3]"])
def test_wrong_folders_of_manifests_are_left_to_other_commands(tmp_path: Path, value: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.exporter]\nmanifests = {value}\n")
    assert list_actions(prepare(tmp_path))["pyproject.toml"] == "unchanged"


@pytest.mark.parametrize("full", ["manifests", "team_b/manifests"])
def test_a_manifest_in_one_of_several_folders_is_one(tmp_path: Path, full: str) -> None:
    settings = "[tool.exporter]\nmanifests = ['manifests', 'team_b/manifests']\n"
    (tmp_path / "pyproject.toml").write_text(settings)
    assert "example.toml" in list_actions(prepare(tmp_path))
    (tmp_path / full).mkdir(parents=True)
    (tmp_path / full / "net.toml").write_text("format = 1\n")
    assert "example.toml" not in list_actions(prepare(tmp_path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[project\n", r"pyproject.toml:1: .* correct the file first"),
        ("[tool]\nexporter = 1\n", "tool.exporter is no table; rename it"),
        ("tool = { a = 1 }\n", r"cannot be appended; write `tool` as \[tool.NAME\]"),
    ],
)
def test_an_invalid_pyproject_has_a_message(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(ExporterError, match=message):
        prepare(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "note"),
    [
        ("noxfile.py", "import (\n", "is not valid Python"),
        ("noxfile.py", "from nox import session\n", "has no `import nox`"),
        (".pre-commit-config.yaml", "repos: []\n", "has no list `repos`"),
    ],
)
def test_a_file_that_cannot_be_extended_stays_as_it_is(
    tmp_path: Path, name: str, text: str, note: str
) -> None:
    (tmp_path / name).write_text(text)
    project = prepare(tmp_path)
    assert list_actions(project)[name] == "unchanged"
    assert any(note in each for each in project.notes)


def test_a_pyproject_with_other_line_ends_stays_readable(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b'[project]\r\nname = "x"\r\n')
    apply_changes(prepare(tmp_path).changes)
    content = tomli.loads((tmp_path / "pyproject.toml").read_bytes().decode())
    assert content["project"] == {"name": "x"}
    assert content["tool"]["exporter"]["manifests"] == "manifests"


@pytest.mark.parametrize("depth", [300, 100_000])
def test_nested_brackets_are_no_bug(tmp_path: Path, depth: int) -> None:
    (tmp_path / "pyproject.toml").write_text(f"a = {'[' * depth}{']' * depth}\n")
    if depth == 300:
        prepare_project(tmp_path)
        return
    with pytest.raises(ExporterError, match="is not valid TOML: it is nested too deeply"):
        prepare_project(tmp_path)


def test_projects_of_one_repository_share_a_workflow_at_its_root(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    path = tmp_path / ".github/workflows/onnx.yml"
    for name in ("packages/vision", "packages/text"):
        (tmp_path / name).mkdir(parents=True)
        apply_changes(prepare(tmp_path / name).changes)
        assert {*list_actions(prepare(tmp_path / name)).values()} == {"unchanged"}
        assert not (tmp_path / name / ".github").exists()
    job, comment = yaml.safe_load(path.read_text())["jobs"].values()
    assert comment["steps"][0]["with"] == {"steps": "comment", "artifact": "exporter-*"}
    assert (comment["needs"], job["permissions"]["pull-requests"]) == ("onnx", "read")
    assert job["strategy"]["matrix"]["folder"] == ["packages/vision", "packages/text"]
    action = job["steps"][1]["with"]
    assert action["folder"] == "${{ matrix.folder }}"
    assert action["artifact"] == "exporter-${{ strategy.job-index }}"
    assert action["packages"].endswith("/whl/cpu")
    inputs = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
    assert action.keys() <= inputs.keys()
    path.write_text("jobs: {}\n")
    project = prepare(tmp_path / "packages/text")
    assert list_actions(project)["onnx.yml"] == "unchanged"
    assert any("pass `folder: packages/text`" in note for note in project.notes)


def test_gitlab_gets_the_jobs_of_the_documents(tmp_path: Path) -> None:
    apply_changes(prepare_project(tmp_path, ci="gitlab").changes)
    path = tmp_path / ".gitlab-ci.yml"
    written = yaml.safe_load(path.read_text())
    block = (ROOT / "docs/ci.md").read_text().partition("## GitLab")[2].partition("```yaml\n")[2]
    documented = yaml.safe_load(block.partition("```")[0])
    assert written.pop("default")["before_script"][0].startswith("python -m pip install ")
    assert documented.pop("default")["before_script"][0].startswith("python -m pip install ")
    assert written == documented
    path.write_text("test:\n  script: [pytest]\n")
    project = prepare_project(tmp_path, ci="gitlab")
    assert list_actions(project)[".gitlab-ci.yml"] == "unchanged"
    assert any("`exporter guide gitlab`" in note for note in project.notes)


def test_a_merge_request_of_a_fork_is_compared_with_its_target(tmp_path: Path) -> None:
    """The branch of the same name in the fork may have the commits of the merge request."""
    target, fork = tmp_path / "target", tmp_path / "fork"
    run_git(tmp_path, "init", "-q", "-b", "main", str(target))
    run_git(target, "commit", "-q", "--allow-empty", "-m", "accepted")
    run_git(tmp_path, "clone", "-q", str(target), str(fork))
    run_git(fork, "commit", "-q", "--allow-empty", "-m", "a bug")
    clone = tmp_path / "clone"
    run_git(tmp_path, "clone", "-q", str(fork), str(clone))
    apply_changes(prepare_project(clone, ci="gitlab").changes)
    script = yaml.safe_load((clone / ".gitlab-ci.yml").read_text())["gate"]["script"]
    program = tmp_path / "bin/exporter"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\ntest "$1" != gate || git rev-parse "$3" > revision\n')
    program.chmod(0o755)
    variables = {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "CI_DEFAULT_BRANCH": "main",
        "CI_PROJECT_ID": "9",
    }
    request = {
        "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
        "CI_MERGE_REQUEST_PROJECT_URL": f"file://{target}",
    }
    for project, expected in (("", fork), ("9", fork), ("7", target)):
        given = {**request, "CI_MERGE_REQUEST_PROJECT_ID": project} if project else {}
        subprocess.run(
            ["bash", "-eo", "pipefail", "-c", "\n".join(script)],
            cwd=clone,
            env={**variables, **given},
            check=True,
            capture_output=True,
        )
        compared = (clone / "revision").read_text().strip()
        assert compared == run_git(expected, "rev-parse", "main")


def test_gitlab_reads_only_the_file_at_the_root_of_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_project, "find_origin", lambda: ("file:///checkout", ""))
    (tmp_path / ".git").mkdir()
    folders = [tmp_path / "packages/vision", tmp_path / "packages/text"]
    for folder in folders:
        folder.mkdir(parents=True)
    project = prepare_project(folders[0], ci="gitlab")
    apply_changes(project.changes)
    assert any("replace OWNER and COMMIT" in note for note in project.notes)
    jobs = yaml.safe_load((tmp_path / ".gitlab-ci.yml").read_text())
    before = jobs["default"]["before_script"]
    assert before[0] == 'cd "$FOLDER"'
    assert "@ git+https://github.com/OWNER/onnx-exporter-matrix@COMMIT'" in before[1]
    assert jobs["gate"]["after_script"][0] == 'cd "$FOLDER"'
    assert jobs["export"]["artifacts"]["paths"] == ["$FOLDER/shards/"]
    assert not prepare_project(folders[0], ci="gitlab").notes


def test_a_second_project_gets_jobs_of_its_own_in_gitlab(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    folders = [tmp_path / "packages/vision", tmp_path / "packages/text"]
    for folder in folders:
        folder.mkdir(parents=True)
        apply_changes(prepare_project(folder, ci="gitlab").changes)
    path = tmp_path / ".gitlab-ci.yml"
    jobs = yaml.safe_load(path.read_text())
    names = ["packages/vision", "packages/text"]
    assert jobs["export"]["parallel"]["matrix"] == [{"PART": ["1", "2", "3"], "FOLDER": names}]
    assert jobs["gate"]["parallel"]["matrix"] == [{"FOLDER": names}]
    text = path.read_text()
    for folder in folders:
        apply_changes(prepare_project(folder, ci="gitlab").changes)
    assert path.read_text() == text
    path.write_text("test:\n  script: [pytest]\n")
    (note,) = prepare_project(folders[1], ci="gitlab").notes
    assert "`exporter guide gitlab` has the jobs to add, with `cd packages/text`" in note


@pytest.mark.parametrize("name", [".github", ".github/workflows", "manifests"])
def test_no_file_is_written_through_a_link_out_of_the_repository(tmp_path: Path, name: str) -> None:
    root, other = tmp_path / "project", tmp_path / "other"
    (root / ".git").mkdir(parents=True)
    other.mkdir()
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).symlink_to(other)
    with pytest.raises(ExporterError, match="a symlink leads out of the repository; replace it"):
        prepare(root)
    (root / name).unlink()
    (root / name).symlink_to(root / "inside")
    (root / "inside").mkdir()
    apply_changes(prepare(root).changes)
    assert [*other.iterdir()] == []


_PROJECT = '[project]\nname = "acme"\nversion = "0"\n'
_HATCH = '[build-system]\nrequires = []\nbuild-backend = "hatchling.build"\n'


@pytest.mark.parametrize(
    ("text", "files", "expected", "note"),
    [
        (_PROJECT, ("acme/a.py", "tests/a.py"), {"packages": {"find": {"include": ["acme*"]}}}, ""),
        (_PROJECT, ("model.py", "conftest.py", "docs/a"), {"py-modules": ["model"]}, ""),
        (_PROJECT, ("src/acme/a.py", "data/a"), None, ""),
        (_PROJECT, ("acme/a.py", "setup.py"), None, ""),
        (_PROJECT + _HATCH, ("acme/a.py",), None, ""),
        ("", ("acme/a.py",), None, ""),
        (_PROJECT, ("scripts/a.py",), {"py-modules": []}, ""),
        (_PROJECT, ("acme/a.py", "data/a"), None, "setuptools finds several: acme, data"),
        (_PROJECT, ("model.py", "train.py"), None, "setuptools finds several: model, train"),
        (f"{_PROJECT}[tool.setuptools]\npackages = ['a']\n", ("a/a.py",), {"packages": ["a"]}, ""),
        (
            f"{_PROJECT}[tool.setuptools.package-data]\na = ['x']\n",
            ("a/a.py",),
            {"package-data": {"a": ["x"]}, "packages": {"find": {"include": ["a*"]}}},
            "",
        ),
    ],
)
def test_a_package_of_setuptools_can_still_be_installed(
    text: str, files: Sequence[str], expected: object, note: str, tmp_path: Path
) -> None:
    """It takes each folder for a package, `manifests` and `reports`, too, and refuses several."""
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    for name in (*files, "manifests/net.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    project = prepare_project(tmp_path)
    written = tomli.loads(project.changes[0].text)
    assert written["tool"].get("setuptools") == expected
    assert note in " ".join(project.notes)
    assert bool(project.notes) == bool(note)
    apply_changes(project.changes)
    assert not any(each.text != each.before for each in prepare_project(tmp_path).changes)


def test_the_requirements_of_a_project_without_a_package_are_installed(tmp_path: Path) -> None:
    for folder in ("one", "two", "three"):
        (tmp_path / folder).mkdir()
    (tmp_path / ".git").mkdir()
    for folder in ("one", "three"):
        (tmp_path / folder / "requirements.txt").write_text("timm\n")
    (tmp_path / "two/pyproject.toml").write_text(_PROJECT)
    (tmp_path / "one/noxfile.py").write_text("import nox\n")
    notes = []
    for folder in ("one", "two", "three"):
        project = prepare_project(tmp_path / folder, ci="github")
        apply_changes(project.changes)
        notes.append(project.notes)
    workflow = yaml.safe_load((tmp_path / ".github/workflows/onnx.yml").read_text())
    step = workflow["jobs"]["onnx"]["steps"][1]
    assert step["with"]["packages"].startswith("-r requirements.txt --extra-index-url ")
    assert '"-r", "requirements.txt")' in (tmp_path / "one/noxfile.py").read_text()
    assert "onnx.yml: two needs `packages: -e .`; write a job of its own for it" in notes[1]
    assert notes[2] == ()
    project = prepare_project(tmp_path / "one", ci="gitlab")
    assert " -r requirements.txt --extra-index-url " in project.changes[-1].text
