"""`.github/workflows/models.yml`, step by step, as GitHub's runner would do it.

Every `run:` is the file's own text in bash; what the actions do (a checkout, an artifact) is done
by hand, and `gh` is a program that notes how it was called.
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

from exporter.cli import registry as commands_of_ours
from tests.integration.project import MODELS, ROOT
from tests.integration.test_gate_revision import run_git

WORKFLOWS = ROOT / ".github/workflows"
NOXFILE = """
import nox

for name in ("export", "merge", "gate"):

    def session(session, name=name):
        session.run("python", "-m", "exporter", name, *session.posargs, external=True)

    nox.session(name=name, venv_backend="none")(session)
"""
ENTRY = """
[models.{id}]
source = "models.py:Good"
inputs = [{{ name = "x", shape = ["batch", 4] }}]
outputs = [{{ name = "y", shape = ["batch", 3] }}]
opsets = [17]
"""
GH = """#!/bin/bash
printf '%s\\n' "$@" > "$NOTE"
"""
#: What the expressions of the file are in this run.
EXPRESSIONS = {
    "vars.PIP_EXTRA_INDEX_URL": "",
    "github.base_ref || 'main'": "main",
    "github.event.pull_request.number": "7",
    "github.token": "none",
}


def workflow(name: str) -> dict[str, Any]:
    return yaml.safe_load((WORKFLOWS / name).read_text())


MODELS_YML = workflow("models.yml")


class Runner:
    """A pull request: `main` as it was accepted, a branch, and the artifacts of its jobs."""

    def __init__(self, top: Path, repository: Path) -> None:
        self.top, self.repository = top, repository
        self.artifacts = top / "artifacts"
        self.note = top / "gh"

    def job(self, name: str, **matrix: object) -> int:
        """Runs the job's steps in a workspace of its own; the exit code of the first that fails."""
        place = self.top / "-".join([name, *(str(value) for value in matrix.values())])
        place.mkdir()
        code = 0
        for step in MODELS_YML["jobs"][name]["steps"]:
            if code and "always()" not in str(step.get("if", "")):
                continue
            if "run" in step:
                code = code or self._run(step, place, matrix)
            else:
                self._action(step, place, matrix)
        return code

    def _run(self, step: dict[str, Any], place: Path, matrix: Mapping[str, object]) -> int:
        told = {**MODELS_YML["env"], **step.get("env", {})}
        said = {key: self._value(str(value), matrix) for key, value in told.items()}
        programs = place.with_name(f"{place.name}-bin")
        programs.mkdir(exist_ok=True)
        (programs / "gh").write_text(GH)
        (programs / "gh").chmod(0o755)
        inherited = {name: value for name, value in os.environ.items() if "GITHUB" not in name}
        path = f"{programs}:{Path(sys.executable).parent}:{inherited['PATH']}"
        github = {"GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": "a/b"}
        github["GITHUB_WORKSPACE"] = str(place)
        github["GITHUB_STEP_SUMMARY"] = str(self.top / "summary.md")
        extra = {"PYTHONPATH": str(ROOT), "PATH": path, "NOTE": str(self.note)}
        ran = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]],
            cwd=place,
            env={**inherited, **said, **github, **extra},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        with (self.top / "log").open("a") as log:
            log.write(f"$ {step['run']}\n{ran.stdout}\n{ran.stderr}\n")
        return ran.returncode

    def _action(self, step: dict[str, Any], place: Path, matrix: Mapping[str, object]) -> None:
        said = {k: self._value(str(v), matrix) for k, v in step.get("with", {}).items()}
        match step["uses"].partition("@")[0]:
            case "actions/checkout":
                depth = () if said.get("fetch-depth") == "0" else ("--depth", "1")
                url = f"file://{self.repository}"
                run_git(self.top, "clone", "-q", *depth, "-b", "topic", url, str(place))
            case "actions/upload-artifact":
                for name in said["path"].split():
                    for found in place.glob(name.rstrip("/")):
                        target = self.artifacts / said["name"] / self._kept(found, place, said)
                        copy = shutil.copytree if found.is_dir() else shutil.copy
                        target.parent.mkdir(parents=True, exist_ok=True)
                        copy(found, target, **({"dirs_exist_ok": True} if found.is_dir() else {}))
            case "actions/download-artifact" if "pattern" in said:
                for folder in self.artifacts.glob(said["pattern"]):
                    shutil.copytree(folder, place / said["path"] / folder.name)
            case "actions/download-artifact":
                shutil.copytree(self.artifacts / said["name"], place, dirs_exist_ok=True)
            case other:
                assert other in ("actions/setup-python", "actions/cache"), other

    @staticmethod
    def _kept(found: Path, place: Path, said: Mapping[str, str]) -> Path:
        """One folder alone is uploaded as what is in it."""
        return found.relative_to(place) if len(said["path"].split()) > 1 else Path()

    @staticmethod
    def _value(text: str, matrix: Mapping[str, object]) -> str:
        known = {**EXPRESSIONS, **{f"matrix.{name}": str(value) for name, value in matrix.items()}}
        return re.sub(r"\$\{\{ *(.*?) *\}\}", lambda found: known.get(found[1], found[0]), text)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """Three models, accepted on `main`; a branch without a change so far."""
    repository = tmp_path / "repository"
    (repository / "manifests").mkdir(parents=True)
    (repository / "manifests/models.py").write_text(MODELS)
    entries = (ENTRY.format(id=id) for id in ("one", "two", "three"))
    (repository / "manifests/net.toml").write_text("format = 1\n" + "".join(entries))
    (repository / "pyproject.toml").write_text("[tool.exporter]\n")
    (repository / "noxfile.py").write_text(NOXFILE)
    (repository / ".gitignore").write_text("build/\n__pycache__/\n.nox/\n")
    run_git(repository, "init", "-q", "-b", "main")
    run_git(repository, "add", ":/")
    run_git(repository, "commit", "-qm", "models")
    run_git(repository, "checkout", "-qb", "topic")
    return Runner(tmp_path, repository)


def exported(runner: Runner) -> list[int]:
    """Every shard of the file's own matrix."""
    shards = MODELS_YML["jobs"]["export"]["strategy"]["matrix"]["shard"]
    assert str(len(shards)) == str(MODELS_YML["env"]["SHARDS"])
    return [runner.job("export", shard=shard) for shard in shards]


def accept(runner: Runner) -> None:
    """What the gate's job merged becomes the baseline of `main`, as a person would do it."""
    merged, repository = runner.top / "gate", runner.repository
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "exporter", "baseline"]
    subprocess.run(command, cwd=merged, env=environment, capture_output=True, check=True)
    shutil.copytree(merged / "reports", repository / "reports")
    run_git(repository, "checkout", "-q", "main")
    run_git(repository, "add", ":/")
    run_git(repository, "commit", "-qm", "accepted")
    run_git(repository, "checkout", "-qB", "topic")


def push(runner: Runner, forward: str) -> None:
    """Another commit of the branch, and nothing left of the jobs before."""
    for place in runner.top.iterdir():
        if place.is_dir() and place != runner.repository:
            shutil.rmtree(place)
        elif place.is_file():
            place.unlink()
    models = runner.repository / "manifests/models.py"
    models.write_text(MODELS.replace("self.linear(x)", forward))
    run_git(runner.repository, "commit", "-qam", forward)


@pytest.mark.timeout(900)  # twelve runs of the whole command
def test_a_broken_model_is_stopped_and_the_comment_says_so(runner: Runner) -> None:
    assert exported(runner) == [0, 0, 0]
    # Nothing is accepted yet: the gate says what to do, and there is nothing to comment on.
    assert (runner.job("gate"), runner.job("comment")) == (1, 0)
    assert "has no reports/baseline.json" in (runner.top / "log").read_text()
    assert not runner.note.exists()

    accept(runner)
    push(runner, "self.linear(x) + 0")
    assert exported(runner) == [0, 0, 0]
    assert (runner.job("gate"), runner.job("comment")) == (0, 0), (runner.top / "log").read_text()
    assert runner.note.read_text().split()[:5] == ["pr", "comment", "7", "--repo", "a/b"]

    push(runner, "self.linear(x[:3])")
    assert exported(runner) == [0, 0, 0], "red cells are for the gate to judge"
    assert (runner.job("gate"), runner.job("comment")) == (1, 0)
    log = (runner.top / "log").read_text()
    assert "one/17/cpu: newly red: pass -> fail at parity (axes)" in log
    assert "::error title=one/17/cpu%3A newly red,file=manifests/net.toml,line=3::" in log
    commit, day = run_git(runner.repository, "log", "-1", "--format=%H %cs", "main").split()
    for page in ("summary.md", "comment/build/comment.md"):
        assert f"last green in {commit[:12]} of {day}" in (runner.top / page).read_text()
    assert (runner.artifacts / "tables/reports/index.html").is_file()
    assert (runner.artifacts / "tables/build/one/logs").is_dir()

    # A shard that never came is red, whatever the others say.
    push(runner, "self.linear(x) + 1")
    assert exported(runner) == [0, 0, 0]
    shutil.rmtree(runner.artifacts / "shard-2")
    assert runner.job("gate") == 1


@pytest.mark.parametrize("path", sorted(WORKFLOWS.glob("*.yml")), ids=lambda path: path.name)
def test_jobs_may_read_alone_and_end_in_time(path: Path) -> None:
    found = workflow(path.name)
    assert found["permissions"] == {"contents": "read"}
    for name, job in found["jobs"].items():
        assert 0 < job["timeout-minutes"] <= 60, name
        writes = [what for what, how in job.get("permissions", {}).items() if how != "read"]
        runs = "\n".join(step.get("run", "") for step in job["steps"])
        assert not writes or "nox" not in runs, "nothing of a branch runs where it may write"
        for step in job["steps"]:
            assert "${{" not in step.get("run", ""), "what others wrote reaches a shell by `env`"
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False


def sessions() -> set[str]:
    ran = subprocess.run(
        [sys.executable, "-m", "nox", "-l"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(re.findall(r"^[*-] (\w+)", ran.stdout, re.MULTILINE))


def test_every_command_that_a_message_may_name_is_a_session_here() -> None:
    commands = commands_of_ours.exporter.list_commands(click.Context(commands_of_ours.exporter))
    assert set(commands) - sessions() == set()


def test_sessions_that_jobs_run_are_sessions() -> None:
    known = sessions()
    for path in WORKFLOWS.glob("*.yml"):
        for job in workflow(path.name)["jobs"].values():
            for step in job["steps"]:
                assert set(re.findall(r"nox -s (\w+)", step.get("run", ""))) <= known
