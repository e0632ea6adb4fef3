"""Virtual environments are created once for each definition."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest

from exporter.pipeline import device_environments
from exporter.pipeline.device_environments import InstallationFailure, install_environment
from exporter.virtual_environments import (
    STAMP,
    EnvironmentDefinition,
    find_environment,
    read_shared_packages,
)
from tests.integration.wheels import write_wheel

# `find_spec("pip")` warns if an earlier test of the process imported distutils, as torch can.
pytestmark = pytest.mark.filterwarnings("ignore:Setuptools is replacing distutils:UserWarning")

BASE = EnvironmentDefinition(requirements=("onnxruntime==1.17.3", "numpy<2"))


def test_the_order_of_requirements_does_not_change_the_key() -> None:
    reordered = EnvironmentDefinition(requirements=tuple(reversed(BASE.requirements)))
    assert reordered.key == BASE.key


@pytest.mark.parametrize(
    "change",
    [
        {"requirements": ("onnxruntime==1.17.3",)},
        {"requirements": ("onnxruntime==1.17.1", "numpy<2")},
        {"python": "python3.12"},
        {"adds_to_current": True},
    ],
    ids=["fewer", "version", "python", "adds"],
)
def test_a_change_changes_the_key(change: dict[str, object]) -> None:
    assert BASE.model_copy(update=change).key != BASE.key


@pytest.mark.parametrize(
    ("requirement", "is_pinned"),
    [
        ("onnx==1.21.0", True),
        ("onnx[reference] == 1.21.0", True),
        ("onnx==1.*", False),
        ("onnx>=1.21", False),
        ("onnx", False),
        ("onnx==1.21.0; python_version > '3'", False),
        ("./onnx.whl", False),
    ],
)
def test_only_one_exact_version_is_pinned(requirement: str, is_pinned: bool) -> None:
    assert EnvironmentDefinition(requirements=("torch==2.13.0", requirement)).is_pinned is is_pinned


def test_an_addition_to_another_environment_has_another_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    addition = BASE.model_copy(update={"adds_to_current": True})
    keys = {BASE.key, addition.key}
    monkeypatch.setattr("sys.prefix", "/another")
    assert addition.key not in keys
    assert BASE.key in keys


EMPTY = EnvironmentDefinition(requirements=())
CURRENT = EnvironmentDefinition(requirements=(), adds_to_current=True)


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a separate environment and one that adds to the current one."""
    folder = tmp_path_factory.mktemp("environments")
    for definition in (EMPTY, CURRENT):
        assert find_environment(definition, folder) is None
        install_environment(definition, folder)
    return folder


def _run(python: Path, code: str) -> str:
    result = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return result.stdout.strip()


def test_a_separate_environment_has_no_other_packages(environments: Path) -> None:
    installed = install_environment(EMPTY, environments)
    assert "pydantic" not in installed.packages
    code = "import importlib.util as u; print(u.find_spec('pydantic'))"
    assert _run(installed.python, code) == "None"


def test_an_environment_can_add_to_the_current_one(environments: Path) -> None:
    installed = install_environment(CURRENT, environments)
    assert "pydantic" in installed.packages
    assert _run(installed.python, "import pydantic; print('here')") == "here"


def test_an_environment_is_created_once(environments: Path) -> None:
    first = find_environment(EMPTY, environments)
    assert first is not None
    stamp = first.folder / STAMP
    created = stamp.stat().st_mtime_ns
    assert install_environment(EMPTY, environments) == first
    assert stamp.stat().st_mtime_ns == created


def test_an_incomplete_environment_is_created_again(tmp_path: Path) -> None:
    folder = tmp_path / EMPTY.key
    folder.mkdir()
    (folder / "left").touch()
    installed = install_environment(EMPTY, tmp_path)
    assert installed.python.exists()
    assert not (folder / "left").exists()


def test_an_interpreter_that_does_not_exist_is_named(tmp_path: Path) -> None:
    definition = EnvironmentDefinition(requirements=(), python="python3.77")
    with pytest.raises(InstallationFailure, match=r"'python3\.77' does not exist"):
        install_environment(definition, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_failure_of_pip_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    definition = EnvironmentDefinition(requirements=("a b c",))
    with pytest.raises(InstallationFailure, match="Invalid requirement: 'a b c'"):
        install_environment(definition, tmp_path)
    assert not (tmp_path / definition.key).exists()


def test_an_update_installs_a_newer_version_unless_one_is_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    newest = EnvironmentDefinition(requirements=("scale-of-test",))
    pinned = EnvironmentDefinition(requirements=("scale-of-test==1.0",))

    def read_version(definition: EnvironmentDefinition, *, update: bool) -> str:
        installed = install_environment(definition, tmp_path / "all", update=update)
        return installed.packages["scale-of-test"]

    write_wheel(tmp_path, "1.0", "return 1")
    assert read_version(newest, update=True) == "1.0"
    assert read_version(pinned, update=True) == "1.0"
    write_wheel(tmp_path, "2.0", "return 2")
    assert read_version(newest, update=False) == "1.0"
    assert read_version(newest, update=True) == "2.0"
    assert read_version(pinned, update=True) == "1.0"


def test_the_shared_folders_of_an_addition_are_known(environments: Path, tmp_path: Path) -> None:
    added = install_environment(CURRENT, environments)
    assert sysconfig.get_path("purelib") in read_shared_packages(added.folder)
    separate = install_environment(EMPTY, environments)
    assert not read_shared_packages(separate.folder)
    assert not read_shared_packages(tmp_path)


def test_the_message_of_pip_lists_the_newest_versions_only() -> None:
    versions = ", ".join(f"1.{number}" for number in range(300))
    error = f"ERROR: No version satisfies a==2 (from versions: {versions})"
    message = "No version satisfies a==2 (newest versions: 1.295, 1.296, 1.297, 1.298, 1.299)"
    assert device_environments._select_reason(error) == message
    short = "No version satisfies a==2 (from versions: 1.0, 1.1)"
    assert device_environments._select_reason(f"ERROR: {short}") == short


WEB = EnvironmentDefinition(requirements=("npm:onnxruntime-web@1.30",))
_NPM = """#!/bin/sh
[ "$1" = install ] || exit 1
mkdir -p "$3/node_modules/onnxruntime-web" && cd "$3/node_modules/onnxruntime-web"
echo '{"name": "onnxruntime-web", "version": "1.30.0"}' > package.json
"""
_NO_NETWORK = """#!/bin/sh
echo "npm error code ENOTFOUND" >&2
echo "npm error network request to https://registry.example failed" >&2
echo "npm error A complete log of this run can be found in: /root/x.log" >&2
exit 1
"""


def _write_programs(folder: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> None:
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setattr(device_environments.shutil, "which", lambda name: _find(folder / name))


def _find(path: Path) -> str | None:
    return str(path) if path.exists() else None


def test_packages_of_npm_are_installed_beside_a_link_to_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write_programs(tmp_path, monkeypatch, node="#!/bin/sh\necho v20.1.0\n", npm=_NPM)
    installed = install_environment(WEB, tmp_path / "environments")
    assert installed.packages == {"onnxruntime-web": "1.30.0"}
    assert installed.python.name == "node"
    assert find_environment(WEB, tmp_path / "environments") == installed
    (tmp_path / "node").unlink()
    assert find_environment(WEB, tmp_path / "environments") is None


@pytest.mark.parametrize(
    ("programs", "message"),
    [
        ({}, "node is not on PATH; install Node 18 or later with npm"),
        ({"node": ""}, "npm is not on PATH; install Node 18 or later with npm"),
        ({"node": "#!/bin/sh\necho v16.20.2\n", "npm": ""}, "is Node v16.20.2, which is too old;"),
        (
            {"node": "#!/bin/sh\necho v20.1.0\n", "npm": _NO_NETWORK},
            "npm cannot install onnxruntime-web@1.30: ENOTFOUND; request to https://registry.exa",
        ),
    ],
)
def test_a_failed_npm_leaves_no_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: dict[str, str], message: str
) -> None:
    _write_programs(tmp_path, monkeypatch, **programs)
    with pytest.raises(InstallationFailure, match=message):
        install_environment(WEB, tmp_path / "environments")
    assert find_environment(WEB, tmp_path / "environments") is None
