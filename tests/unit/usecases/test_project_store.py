"""The environment and the project select the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.errors import ExporterError
from exporter.manifest import Project
from exporter.usecases.project_store import open_store
from tests.unit.factory import make_manifest


def make_project(**fields: str) -> Project:
    return make_manifest(root="/project").project.model_copy(update=fields)


def find_path(project: Project, **environment: str) -> str | None:
    store = open_store(project, environment)
    return str(store.path) if store else None


def test_the_setting_selects_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert find_path(make_project()) == "/project/build/.store"
    assert find_path(make_project(build="out")) == "/project/out/.store"
    assert find_path(make_project(store="../shared")) == "/project/../shared"
    assert find_path(make_project(store="/srv/store")) == "/srv/store"
    assert find_path(make_project(store="~/.cache/x")) == "/home/me/.cache/x"
    assert find_path(make_project(store="off")) is None


def test_the_environment_overrides_the_setting() -> None:
    assert find_path(make_project(store="off"), EXPORTER_STORE="/ci/store") == "/ci/store"
    assert find_path(make_project(store="/srv/store"), EXPORTER_STORE="off") is None
    assert find_path(make_project(store="/srv/store"), EXPORTER_STORE="") == "/srv/store"


@pytest.mark.parametrize(
    ("value", "expected"), [("1", True), ("TRUE", True), ("0", False), ("", False)]
)
def test_the_environment_makes_the_store_read_only(value: str, expected: bool) -> None:
    store = open_store(make_project(), {"EXPORTER_STORE_READONLY": value})
    assert store is not None
    assert store.is_read_only is expected


def test_another_value_is_an_error() -> None:
    with pytest.raises(ExporterError, match="expected 1 or 0, got 'maybe'"):
        open_store(make_project(), {"EXPORTER_STORE_READONLY": "maybe"})


def test_limits_of_the_command_line_override_the_settings(tmp_path: Path) -> None:
    default = open_store(make_project(), {})
    limited = open_store(make_project(), {}, size=5, age=7.0)
    assert default is not None
    assert limited is not None
    assert (default.limits.size, default.limits.age) == (10 << 30, 90 * 24 * 3600)
    assert (limited.limits.size, limited.limits.age) == (5, 7.0)
