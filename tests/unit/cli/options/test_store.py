"""Which store a command uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.cli.options.store import open_limited_store, open_store
from exporter.core.errors import ExporterError
from exporter.manifest import Project
from tests.unit.factory import make_manifest


def project(**fields: str) -> Project:
    return make_manifest(root="/project").project.model_copy(update=fields)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EXPORTER_STORE", "EXPORTER_STORE_READONLY"):
        monkeypatch.delenv(name, raising=False)


def place(of: Project) -> str | None:
    store = open_store(of)
    return str(store.path) if store else None


def test_the_setting_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert place(project()) == "/project/build/.store"
    assert place(project(build="out")) == "/project/out/.store"
    assert place(project(store="../shared")) == "/project/../shared"
    assert place(project(store="/srv/store")) == "/srv/store"
    assert place(project(store="~/.cache/x")) == "/home/me/.cache/x"
    assert place(project(store="off")) is None


def test_the_environment_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPORTER_STORE", "/ci/store")
    assert place(project(store="off")) == "/ci/store"
    monkeypatch.setenv("EXPORTER_STORE", "off")
    assert place(project(store="/srv/store")) is None
    monkeypatch.setenv("EXPORTER_STORE", "")
    assert place(project(store="/srv/store")) == "/srv/store"


@pytest.mark.parametrize(
    ("said", "meant"), [("1", True), ("TRUE", True), ("0", False), ("", False)]
)
def test_whether_it_is_only_read(monkeypatch: pytest.MonkeyPatch, said: str, meant: bool) -> None:
    monkeypatch.setenv("EXPORTER_STORE_READONLY", said)
    store = open_store(project())
    assert store is not None
    assert store.is_read_only is meant


def test_a_word_that_means_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPORTER_STORE_READONLY", "maybe")
    with pytest.raises(ExporterError, match="expected 1 or 0, got 'maybe'"):
        open_store(project())


def test_limits_of_the_command_line_go_before_the_projects(tmp_path: Path) -> None:
    usual, other = open_limited_store(project(), None, None), open_limited_store(project(), 5, 7.0)
    assert usual is not None
    assert other is not None
    assert (usual.limits.size, usual.limits.age) == (10 << 30, 90 * 24 * 3600)
    assert (other.limits.size, other.limits.age) == (5, 7.0)
