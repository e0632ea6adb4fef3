"""Run the steps of `.github/workflows/models.yml` as a GitHub runner does.

Each `run:` step runs in bash. The tests implement the actions, such as checkout and artifacts.
`gh` is a script that records its arguments.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from exporter.cli import entry_point
from tests.integration.program_server import describe_servers
from tests.integration.project import MODELS, ROOT, format_entry, run_exporter, run_git

WORKFLOWS = ROOT / ".github/workflows"
NOX = ROOT / ".ci/nox.txt"
NOXFILE = """
import nox

for name in ("export", "merge", "gate", "report"):

    def session(session, name=name):
        program = ("python", "-m", "tests.integration.program_server", "run")
        session.run(*program, name, *session.posargs, external=True)

    nox.session(name=name, venv_backend="none")(session)
"""
MODEL_IDS = ("one", "two", "three")
#: Prints the number of the comment for the list of all comments, if there is one.
GH = """#!/bin/bash
if test "$2" = --paginate; then cat "$NOTE.id" 2>/dev/null; exit 0; fi
printf '%s\\n' "$@" > "$NOTE"
"""
#: Values of the expressions in the workflow file.
EXPRESSIONS = {
    "vars.PIP_EXTRA_INDEX_URL": "",
    "github.base_ref || 'main'": "main",
    "github.event.pull_request.number": "7",
    "github.event.pull_request.head.sha": "1a2b3c",
    "github.server_url": "https://github.com",
    "github.repository": "a/b",
    "github.run_id": "99",
    "github.token": "none",
}


def read_workflow(name: str) -> dict[str, Any]:
    return yaml.safe_load((WORKFLOWS / name).read_text())


MODELS_YML = read_workflow("models.yml")
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
#: Records an installation, because the tests have no network.
PYTHON = """#!/bin/bash
if test "$2" = pip; then echo "pip: ${{@:3}}"; exit 0; fi
exec {python} "$@"
"""
#: Runs the program by the servers of the tests.
EXPORTER = """#!/bin/bash
exec {python} -m tests.integration.program_server run "$@"
"""


def evaluate(condition: str, values: Mapping[str, str], *, failed: bool) -> bool:
    """Return the value of an `if`, as GitHub computes it for a pull request of the repository."""
    if failed and "always()" not in condition and "cancelled()" not in condition:
        return False
    names = {"github.event_name": "pull_request", "github.repository": "a/b", **values}
    names |= {"github.event.pull_request.head.repo.full_name": "a/b"}
    text = condition.removeprefix("${{").removesuffix("}}").strip()
    text = re.sub(r"contains\(([^,]+), ([^)]+)\)", r"(\2 in \1)", text)
    text = re.sub(
        r"!(?!=)", " not ", text.replace("always()", "True").replace("cancelled()", "False")
    )
    text = re.sub(r"(inputs|github)\.[\w.-]+", lambda match: repr(names[match[0]]), text)
    return bool(eval(text.replace("&&", " and ").replace("||", " or ")))


class Runner:
    """A pull request with its repository and the artifacts of its jobs."""

    def __init__(self, folder: Path, repository: Path) -> None:
        self.folder, self.repository = folder, repository
        self.artifacts = folder / "artifacts"
        self.gh_log = folder / "gh"
        self.home = folder / "home"

    def run_job(self, name: str, **matrix: object) -> int:
        """Run the steps of a job in a new workspace; return the first exit code that is not 0."""
        workspace = self.folder / "-".join([name, *(str(value) for value in matrix.values())])
        workspace.mkdir()
        code = 0
        for step in MODELS_YML["jobs"][name]["steps"]:
            condition = str(step.get("if", ""))
            if code and "always()" not in condition and "!cancelled()" not in condition:
                continue
            if "run" in step:
                ended = self._run_step(step, workspace, matrix)
                code = code or ended
            else:
                self._run_action(step, workspace, matrix)
        return code

    def use_action(self, job: str, **inputs: str) -> int:
        """Run the steps of `action.yml` in a job; return the first exit code that is not 0."""
        workspace, code = self.folder / job, 0
        self._run_action({"uses": "actions/checkout@", "with": {"fetch-depth": 0}}, workspace, {})
        defaults = {name: value["default"] for name, value in ACTION["inputs"].items()}
        values = {f"inputs.{name}": value for name, value in (defaults | inputs).items()}
        values |= {"github.action_path": str(ROOT), "github.base_ref": "main"}
        for step in ACTION["runs"]["steps"]:
            if not evaluate(step["if"], values, failed=bool(code)):
                continue
            if "uses" in step:
                self._run_action(step, workspace, values)
            else:
                ended = self._run_step(step, workspace, values)
                code = code or ended
                if "id" in step:
                    outputs = (self.folder / "outputs").read_text().split()
                    values |= {f"steps.{step['id']}.outputs.name": outputs[-1].partition("=")[2]}
        return code

    def read_comment(self, job: str = "comment") -> str:
        """Return the text that the last job sent to the pull request."""
        return (self.folder / job / "build/comment.md").read_text()

    def _run_step(self, step: dict[str, Any], workspace: Path, matrix: Mapping[str, object]) -> int:
        variables = {**MODELS_YML["env"], **step.get("env", {})}
        values = {key: self._expand(str(value), matrix) for key, value in variables.items()}
        programs = workspace.with_name(f"{workspace.name}-bin")
        programs.mkdir(exist_ok=True)
        (programs / "gh").write_text(GH)
        (programs / "gh").chmod(0o755)
        (programs / "python").write_text(PYTHON.format(python=sys.executable))
        (programs / "python").chmod(0o755)
        (programs / "exporter").write_text(EXPORTER.format(python=sys.executable))
        (programs / "exporter").chmod(0o755)
        inherited = {name: value for name, value in os.environ.items() if "GITHUB" not in name}
        path = f"{programs}:{Path(sys.executable).parent}:{inherited['PATH']}"
        github = {"GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": "a/b"}
        github["GITHUB_WORKSPACE"] = str(workspace)
        github["GITHUB_GRAPHQL_URL"] = "http://127.0.0.1:9/graphql"  # no host answers there
        github["RUNNER_TEMP"] = str(self.folder)
        github["GITHUB_OUTPUT"] = str(self.folder / "outputs")
        github["GITHUB_STEP_SUMMARY"] = str(self.folder / "summary.md")
        extra = {"PYTHONPATH": str(ROOT), "PATH": path, "NOTE": str(self.gh_log)}
        extra |= describe_servers()
        extra["HOME"] = str(self.home)
        process = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]],
            cwd=workspace,
            env={**inherited, **values, **github, **extra},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        with (self.folder / "log").open("a") as log:
            log.write(f"$ {step['run']}\n{process.stdout}\n{process.stderr}\n")
        return process.returncode

    def _run_action(
        self, step: dict[str, Any], workspace: Path, matrix: Mapping[str, object]
    ) -> None:
        values = {k: self._expand(str(v), matrix) for k, v in step.get("with", {}).items()}
        match step["uses"].partition("@")[0]:
            case "actions/checkout":
                depth = () if values.get("fetch-depth") == "0" else ("--depth", "1")
                url = f"file://{self.repository}"
                run_git(self.folder, "clone", "-q", *depth, "-b", "topic", url, str(workspace))
            case "actions/upload-artifact":
                for name in (path.removeprefix("./") for path in values["path"].split()):
                    for item in workspace.glob(name.rstrip("/")):
                        target = self.artifacts / values["name"]
                        target /= item.relative_to(self._find_upload_root(workspace, values))
                        copy = shutil.copytree if item.is_dir() else shutil.copy
                        target.parent.mkdir(parents=True, exist_ok=True)
                        copy(item, target, **({"dirs_exist_ok": True} if item.is_dir() else {}))
            case "actions/download-artifact" if "pattern" in values:
                (workspace / values["path"]).mkdir(parents=True)
                for folder in self.artifacts.glob(values["pattern"]):
                    shutil.copytree(folder, workspace / values["path"] / folder.name)
            case "actions/download-artifact":
                if (self.artifacts / values["name"]).exists():
                    target = workspace / values.get("path", "")
                    shutil.copytree(self.artifacts / values["name"], target, dirs_exist_ok=True)
                else:
                    assert step["continue-on-error"], "the job would end here"
            case other:
                known = ("actions/setup-python", "actions/cache/restore", "actions/cache/save")
                assert other in known, other

    @staticmethod
    def _find_upload_root(workspace: Path, values: Mapping[str, str]) -> Path:
        """Return the folder that an artifact contains: the common one of all uploaded paths."""
        bases = [workspace / path.partition("*")[0] for path in values["path"].split()]
        return Path(os.path.commonpath(bases))

    @staticmethod
    def _expand(text: str, matrix: Mapping[str, object]) -> str:
        values = {(k if "." in k else f"matrix.{k}"): str(value) for k, value in matrix.items()}
        names = {**EXPRESSIONS, **values}
        return re.sub(r"\$\{\{ *(.*?) *\}\}", lambda match: names.get(match[1], match[0]), text)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """Return a repository with three models on `main` and an unchanged branch."""
    repository = tmp_path / "repository"
    (repository / "manifests").mkdir(parents=True)
    for id in MODEL_IDS:
        (repository / f"manifests/{id}.py").write_text(MODELS)
    entries = (format_entry(id, f"{id}.py:Good") for id in MODEL_IDS)
    (repository / "manifests/net.toml").write_text("format = 1\n" + "".join(entries))
    (repository / "pyproject.toml").write_text("[tool.exporter]\n")
    (repository / "noxfile.py").write_text(NOXFILE)
    (repository / ".ci").mkdir()
    shutil.copy(NOX, repository / ".ci/nox.txt")
    (repository / ".gitignore").write_text("build/\n__pycache__/\n.nox/\n")
    run_git(repository, "init", "-q", "-b", "main")
    run_git(repository, "commit", "-qm", "root", "--allow-empty")
    run_git(repository, "add", ":/")
    run_git(repository, "commit", "-qm", "models")
    run_git(repository, "checkout", "-qb", "topic")
    return Runner(tmp_path, repository)


def run_exports(runner: Runner) -> list[int]:
    """Run the export job for each shard of the matrix and return the exit codes."""
    shards = MODELS_YML["jobs"]["export"]["strategy"]["matrix"]["shard"]
    assert str(len(shards)) == str(MODELS_YML["env"]["SHARDS"])
    return [runner.run_job("export", shard=shard) for shard in shards]


def accept(runner: Runner, branch: str = "main") -> None:
    """Accept the merged results of the gate job as the baseline of a branch."""
    merged, repository = runner.folder / "gate", runner.repository
    run_exporter(merged, "baseline", code=0)
    shutil.copytree(merged / "reports", repository / "reports")
    run_git(repository, "checkout", "-q", branch)
    run_git(repository, "add", ":/")
    run_git(repository, "commit", "-qm", "accepted")
    run_git(repository, "checkout", "-qB", "topic")


def push_change(runner: Runner, expression: str) -> None:
    """Commit a change and remove the results of earlier jobs, except the store in `home`."""
    for path in runner.folder.iterdir():
        if path.is_dir() and path not in (runner.repository, runner.home):
            shutil.rmtree(path)
        elif path.is_file():
            path.unlink()
    models = runner.repository / "manifests/one.py"
    models.write_text(MODELS.replace("self.linear(x)", expression))
    run_git(runner.repository, "commit", "-qam", expression)


def remove_results(runner: Runner, *artifacts: str) -> None:
    """Remove these artifacts and the workspaces of the last jobs that used them."""
    for name in artifacts:
        shutil.rmtree(runner.artifacts / name)
    for name in ("gate", "comment"):
        shutil.rmtree(runner.folder / name, ignore_errors=True)


@pytest.mark.campaign
@pytest.mark.timeout(900)  # six exports
def test_the_gate_job_blocks_a_broken_model_and_the_comment_names_it(runner: Runner) -> None:
    assert run_exports(runner) == [0, 0, 0]
    # Without a baseline the gate prints the fix, and the comment contains it.
    assert (runner.run_job("gate"), runner.run_job("comment")) == (1, 0)
    assert "has no reports/baseline;" in (runner.folder / "log").read_text()
    assert "has no reports/baseline;" in runner.read_comment()

    accept(runner)
    remove_results(runner, "tables")
    assert (runner.run_job("gate"), runner.run_job("comment")) == (0, 0), (
        runner.folder / "log"
    ).read_text()
    assert runner.gh_log.read_text().split() == [
        *("api", "--method", "POST", "repos/a/b/issues/7/comments", "-F", "body=@build/comment.md")
    ]
    assert "### ✅ May merge" in runner.read_comment()
    assert "commit 1a2b3c: see [the job](https://github.com/a/b/actions/runs/99)" in (
        runner.read_comment()
    )

    # A missing shard fails the gate job, and every place names its cells.
    runner.gh_log.with_name("gh.id").write_text("5\n8\n")
    remove_results(runner, "tables", "shard-2")
    (runner.folder / "log").unlink()
    (runner.folder / "summary.md").unlink()
    assert (runner.run_job("gate"), runner.run_job("comment")) == (1, 0)
    log = (runner.folder / "log").read_text()
    assert "::error title=exporter::shard 2/3 is missing" in log
    assert "/17/cpu%3A missing,file=manifests/net.toml," in log
    summary = (runner.folder / "summary.md").read_text()
    assert "shard 2/3 is missing" in summary
    assert "- **missing**: " in summary
    assert "- **missing**: " in runner.read_comment()
    assert runner.gh_log.read_text().split()[2:4] == ["PATCH", "repos/a/b/issues/comments/8"]

    # Without any shard there is no verdict.
    remove_results(runner, "tables", "shard-1", "shard-3")
    assert (runner.run_job("gate"), runner.run_job("comment")) == (1, 0)
    assert "No verdict" in runner.read_comment()
    assert "no results yet" in runner.read_comment()

    # The same applies if the gate job ended before its first step.
    remove_results(runner, "tables")
    assert runner.run_job("comment") == 0
    assert "No verdict" in runner.read_comment()
    assert "commit 1a2b3c" in runner.read_comment()

    push_change(runner, "self.linear(x[:3])")
    assert run_exports(runner) == [0, 0, 0], "red cells do not fail the export job"
    assert (runner.run_job("gate"), runner.run_job("comment")) == (1, 0)
    log = (runner.folder / "log").read_text()
    assert "one/17/cpu: newly red: pass -> fail at source" in log
    assert "::error title=one/17/cpu%3A newly red,file=manifests/one.py,line=" in log
    assert "the model changed: manifests/one.py:" in log
    commit, day = run_git(runner.repository, "log", "-1", "--format=%H %cs", "main").split()
    for page in ("summary.md", "comment/build/comment.md"):
        assert f"last green in {commit[:12]} of {day}" in (runner.folder / page).read_text()
    head = run_git(runner.repository, "rev-parse", "topic").strip()
    index = (runner.artifacts / "tables/site/index.html").read_text()
    assert f"commit {head[:12]}" in index
    assert (runner.artifacts / "tables/one/logs").is_dir()


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_the_action_exports_gates_and_comments(runner: Runner) -> None:
    runner.gh_log.with_name("gh.id").write_text("")
    # The first pull request: the root commit has no manifests, so it promises nothing.
    run_git(runner.repository, "branch", "-qf", "main", "main~1")
    assert runner.use_action("gate", packages="-e .") == 1
    log = (runner.folder / "log").read_text()
    assert f"pip: install {ROOT}[export] -e ." in log
    assert "/17/cpu: new cell, green: not in the baseline -> pass" in log
    accept(runner, "topic")
    shutil.rmtree(runner.folder / "gate")
    assert runner.use_action("gate") == 0, (runner.folder / "log").read_text()
    assert "### ✅ May merge" in runner.read_comment("gate")
    run_git(runner.repository, "branch", "-qf", "main", "topic")
    shutil.rmtree(runner.folder / "gate")
    # Two parts, a job that merges them, and a job with the permission to write.
    for index in (1, 2):
        assert runner.use_action(f"part{index}", steps="export", shard=f"{index}/2") == 0
    assert sorted(path.name for path in runner.artifacts.glob("exporter-shard-*")) == [
        "exporter-shard-1",
        "exporter-shard-2",
    ]
    assert runner.use_action("gate", steps="gate") == 0, (runner.folder / "log").read_text()
    assert f"pip: install {ROOT}\n" in (runner.folder / "log").read_text()
    assert runner.use_action("comment", steps="comment") == 0
    assert "### ✅ May merge" in runner.read_comment()
    assert runner.gh_log.read_text().split()[2:4] == ["POST", "repos/a/b/issues/7/comments"]
    assert "### ✅ May merge" in (runner.folder / "summary.md").read_text()

    push_change(runner, "self.linear(x[:3])")
    assert runner.use_action("gate", cells="one") == 1
    assert "one/17/cpu: newly red: pass -> fail at source" in (runner.folder / "log").read_text()
    assert "newly red" in runner.read_comment("gate")


def test_the_action_is_pinned_and_passes_text_by_variables() -> None:
    for step in ACTION["runs"]["steps"]:
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step.get("uses", "a@" + "0" * 40))
        assert "${{" not in step.get("run", "")
        assert step.get("shell", "bash") == "bash"
        used = re.findall(r"inputs\.([\w-]+)", str(step))
        assert set(used) <= ACTION["inputs"].keys()


@pytest.mark.parametrize("path", sorted(WORKFLOWS.glob("*.yml")), ids=lambda path: path.name)
def test_jobs_have_read_permissions_and_time_limits(path: Path) -> None:
    content = read_workflow(path.name)
    assert content["permissions"] == {"contents": "read"}
    for name, job in content["jobs"].items():
        assert 0 < job["timeout-minutes"] <= 90, name
        writes = [scope for scope, access in job.get("permissions", {}).items() if access != "read"]
        runs = "\n".join(step.get("run", "") for step in job["steps"])
        assert not writes or "nox" not in runs, (
            "jobs with write permissions do not run code of the branch"
        )
        for step in job["steps"]:
            assert "${{" not in step.get("run", ""), "untrusted text must reach the shell by `env`"
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("path", sorted(WORKFLOWS.glob("*.yml")), ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_and_packages_by_hash(path: Path) -> None:
    for job in read_workflow(path.name)["jobs"].values():
        for step in job["steps"]:
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step.get("uses", "a@" + "0" * 40))
            installs = re.findall(r"pip install (.+?)(?: &&|\n|$)", step.get("run", ""))
            assert set(installs) <= {"-r .ci/nox.txt"}


def test_the_hashed_packages_have_the_versions_of_the_constraints() -> None:
    constraints = (ROOT / "constraints.txt").read_text()
    lines = [line for line in NOX.read_text().splitlines() if not line.startswith("#")]
    assert any(line.startswith("nox==") for line in lines)
    for line in lines:
        version, _, digest = line.partition(" --hash=sha256:")
        pin = constraints.partition(f"\n{version} \\\n")[2].partition("==")[0]
        assert f"sha256:{digest}" in pin


def list_sessions(noxfile: str) -> set[str]:
    command = [sys.executable, "-m", "nox", "-l", "-f", noxfile]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return set(re.findall(r"^[*-] (\w+)", process.stdout, re.MULTILINE))


def test_every_command_has_a_nox_session() -> None:
    commands = entry_point.exporter.list_commands(click.Context(entry_point.exporter))
    assert set(commands) - list_sessions("noxfile.py") == set()


def test_jobs_run_existing_nox_sessions() -> None:
    sessions = {each: list_sessions(each) for each in ("noxfile.py", "benchmarks/noxfile.py")}
    runs = [
        run
        for path in WORKFLOWS.glob("*.yml")
        for job in read_workflow(path.name)["jobs"].values()
        for step in job["steps"]
        for run in re.findall(r"nox (?:-f (\S+) )?-s (\w+)", step.get("run", ""))
    ]
    assert len(runs) > 10
    assert [run for run in runs if run[1] not in sessions[run[0] or "noxfile.py"]] == []
