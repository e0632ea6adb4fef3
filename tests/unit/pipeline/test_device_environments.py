"""The tables of docs/devices.md are valid, and `gc` removes what no table names."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from exporter.manifest import load_settings
from exporter.pipeline.device_environments import (
    list_environments,
    list_garbage,
    locate_environments,
    mark_as_used,
    remove_environment,
)
from exporter.virtual_environments import STAMP, EnvironmentDefinition

DAY = 24 * 3600
ORT117 = """
[tool.exporter.environments.ort117]
requirements = ["onnxruntime==1.17.*"]
[tool.exporter.devices.ort117]
runtime = "onnxruntime"
providers = ["CPUExecutionProvider"]
environment = "ort117"
"""


def store(folder: Path, *requirements: str) -> Path:
    """Write a complete environment with one file."""
    definition = EnvironmentDefinition(requirements=requirements)
    location = folder / definition.key
    location.mkdir(parents=True)
    (location / STAMP).write_text(json.dumps({"requirements": requirements, "packages": {}}))
    (location / "module.py").write_text("x = 1\n")
    mark_as_used(location)
    return location


def test_the_tables_of_the_page_are_valid_devices(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/devices.md").read_text()
    tables = [
        text for text in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "requirements" in text
    ]
    for number, text in enumerate(tables):
        root = tmp_path / str(number)
        root.mkdir()
        (root / "pyproject.toml").write_text(text)
        project = load_settings(root)
        names = {each.name for each in project.environments}
        assert names
        assert names == {d.environment.name for d in project.devices if d.environment}


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
    (tmp_path / "pyproject.toml").write_text(ORT117)
    project = load_settings(tmp_path)
    device = locate_environments(project).find_device("ort117")
    assert device.environment is not None
    assert device.environment.interpreter == ""
