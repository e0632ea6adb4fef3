"""`exporter environments` prints valid tables, and `gc` removes what no table names."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from exporter.core.errors import ExporterError
from exporter.environments import (
    STAMP,
    EnvironmentDefinition,
    list_environments,
    mark_as_used,
    remove_environment,
)
from exporter.manifest import load_settings
from exporter.pipeline.environments import list_garbage, locate_environments
from exporter.tools import environments
from exporter.tools.environments import RECIPES, make_recipe

DAY = 24 * 3600


def store(folder: Path, *requirements: str) -> Path:
    """Write a complete environment with one file."""
    definition = EnvironmentDefinition(requirements=requirements)
    location = folder / definition.key
    location.mkdir(parents=True)
    (location / STAMP).write_text(json.dumps({"requirements": requirements, "packages": {}}))
    (location / "module.py").write_text("x = 1\n")
    mark_as_used(location)
    return location


@pytest.mark.parametrize("package", RECIPES)
def test_a_recipe_is_a_valid_device(package: str, tmp_path: Path) -> None:
    recipe = make_recipe(package, "1.20")
    (tmp_path / "pyproject.toml").write_text(f"[tool.exporter]\njobs = 2\n\n{recipe}\n")
    device = load_settings(tmp_path).find_device(recipe.name)
    assert device.environment is not None
    expected = "npm:onnxruntime-web@1.20" if package == "onnxruntime-web" else f"{package}==1.20.*"
    plugin = ("onnxruntime>=1.24",) if device.provider_library else ()
    assert device.environment.requirements == recipe.requirements == (expected, *plugin)
    assert device.runtime == RECIPES[package][1]


@pytest.mark.parametrize(
    ("version", "requirements"),
    [
        ("1.16", ("onnxruntime==1.16.*", "numpy<2")),
        ("1.18.1", ("onnxruntime==1.18.1", "numpy<2")),
        ("1.19", ("onnxruntime==1.19.*",)),
    ],
)
def test_an_older_release_has_an_older_numpy(version: str, requirements: tuple[str, ...]) -> None:
    recipe = make_recipe("onnxruntime", version)
    assert recipe.requirements == requirements
    assert recipe.name == f"ort{version.replace('.', '')}"


@pytest.mark.parametrize(
    ("running", "version", "python"),
    [
        ((3, 11), "1.16", ""),
        ((3, 12), "1.16", "python3.11"),
        ((3, 13), "1.16", "python3.11"),
        ((3, 13), "1.18", "python3.12"),
        ((3, 13), "1.20", ""),
        ((3, 14), "1.20", "python3.13"),
    ],
)
def test_a_release_without_wheels_for_this_python_has_another(
    running: tuple[int, int], version: str, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments.sys, "version_info", (*running, 0))
    assert make_recipe("onnxruntime", version).python == python
    assert make_recipe("onnxruntime", version, python="other").python == "other"


@pytest.mark.parametrize(
    ("package", "version", "message"),
    [
        ("onnxruntme", "1.17", "did you mean 'onnxruntime'?"),
        ("tensorrt", "10.0", "use one of onnxruntime, openvino, onnx, tract"),
        ("onnxruntime", "1", "expected a version such as 1.17 or 1.17.3, got '1'"),
        ("onnxruntime", "1.17rc1", "got '1.17rc1'"),
    ],
)
def test_an_unknown_recipe_is_refused(package: str, version: str, message: str) -> None:
    with pytest.raises(ExporterError) as raised:
        make_recipe(package, version)
    assert message in str(raised.value)


def test_environments_have_sizes_and_are_removed(tmp_path: Path) -> None:
    kept, removed = store(tmp_path, "a"), store(tmp_path, "b")
    (tmp_path / "incomplete").mkdir()
    by_folder = {each.folder: each for each in list_environments(tmp_path)}
    assert set(by_folder) == {kept, removed}
    assert by_folder[kept].measure_size() == sum(p.stat().st_size for p in kept.iterdir())
    assert by_folder[kept].age < DAY
    remove_environment(by_folder[removed])
    assert [each.folder for each in list_environments(tmp_path)] == [kept]
    assert not removed.with_name(f"{removed.name}.lock").exists()


@pytest.mark.parametrize("is_shared", [False, True])
def test_garbage_is_what_no_table_names(is_shared: bool, tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    settings = "[tool.exporter]\nstore = '../cells'\n" if is_shared else ""
    (root / "pyproject.toml").write_text(
        f"{settings}[tool.exporter.environments.a]\nrequirements = ['a']\n"
    )
    project = load_settings(root)
    store(project.environments_folder, "a")
    recent, old = (store(project.environments_folder, name) for name in "bc")
    past = old.stat().st_mtime - 365 * DAY
    for path in (old / STAMP, old.with_name(f"{old.name}.lock")):
        os.utime(path, (past, past))
    garbage = {each.folder for each in list_garbage(project)}
    assert garbage == ({old} if is_shared else {recent, old})


def test_the_environment_of_a_device_is_located(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text(str(make_recipe("onnxruntime", "1.17")))
    project = load_settings(tmp_path)
    device = locate_environments(project).find_device("ort117")
    assert device.environment is not None
    assert device.environment.interpreter == ""
