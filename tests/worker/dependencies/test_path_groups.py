"""Paths are resolved with all links, and belong to the project, the user or the system."""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path

import pytest

from exporter.worker.dependencies import source_files
from exporter.worker.dependencies.source_files import Group, classify_path, resolve_path


def test_each_link_of_a_path_is_listed(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "v1").mkdir()
    (root / "v1/data.json").touch()
    (root / "current").symlink_to("v1")
    (root / "other").symlink_to(root / "current")
    (root / "v1/link.json").symlink_to("../v1/./data.json")
    resolved = resolve_path(f"{root}/other/../other/link.json")
    assert resolved.path == f"{root}/v1/data.json"
    assert resolved.links == (f"{root}/other", f"{root}/current", f"{root}/v1/link.json")


def test_a_missing_file_and_a_circular_link_have_a_path(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("c/../a")
    (root / "c").mkdir()
    assert resolve_path(f"{root}/none/x.json").path == f"{root}/none/x.json"
    assert set(resolve_path(f"{root}/a/x.json").links) == {f"{root}/a", f"{root}/b"}


def test_each_path_belongs_to_a_group(tmp_path: Path) -> None:
    root = str(tmp_path / "project")
    paths = {
        f"{root}/net.py": Group.PROJECT,
        f"{root}2/net.py": Group.EXTERNAL,
        "/data/weights.bin": Group.EXTERNAL,
        "/usr/local/share/words.txt": Group.EXTERNAL,
        "/dev/shm/weights.bin": Group.EXTERNAL,
        "/run/user/1000/weights.bin": Group.EXTERNAL,
        "/run/media/me/disk/weights.bin": Group.EXTERNAL,
        "/dev/null": Group.FOREIGN,
        "/run/lock": Group.FOREIGN,
        "/etc/hosts": Group.FOREIGN,
        "/usr/share/words.txt": Group.FOREIGN,
        f"{sys.prefix}/bin/python": Group.FOREIGN,
        f"{Path(sysconfig.get_path('purelib')).resolve()}/torch/nn.py": Group.FOREIGN,
    }
    assert {path: classify_path(path, root) for path in paths} == paths
    assert classify_path("/usr/src/app/net.py", "/usr/src/app") is Group.PROJECT


@pytest.mark.parametrize("place", ["", "/share/project"])
def test_a_project_in_the_folder_of_python_has_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    prefix = str(tmp_path.resolve())
    root = f"{prefix}{place}"
    packages = f"{prefix}/lib/python3.11/site-packages"
    monkeypatch.setattr(sys, "prefix", prefix)
    monkeypatch.setattr(source_files, "list_package_folders", lambda: (packages,))
    caches = (classify_path, source_files._list_groups)
    for each in caches:
        each.cache_clear()
    paths = {
        f"{root}/net.py": Group.PROJECT,
        f"{root}/src/acme/net.py": Group.PROJECT,
        f"{packages}/torch/nn.py": Group.FOREIGN,
    }
    try:
        assert {path: classify_path(path, root) for path in paths} == paths
        sources = classify_path(f"{prefix}/src/clone/net.py", root)
        assert sources is (Group.EXTERNAL if place else Group.PROJECT)
    finally:
        for each in caches:
            each.cache_clear()


def test_packages_of_a_shared_environment_in_the_project_are_no_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path.resolve()
    shared = f"{root}/.venv/lib/python3.11/site-packages"
    path, model = f"{shared}/torch/nn.py", f"{root}/net.py"
    caches = (classify_path, source_files._list_groups)
    for each in caches:
        each.cache_clear()
    monkeypatch.setattr(source_files, "list_package_folders", lambda: (shared,))
    try:
        assert classify_path(path, str(root)) is Group.FOREIGN
        assert classify_path(model, str(root)) is Group.PROJECT
    finally:
        for each in caches:
            each.cache_clear()


def test_created_environments_in_the_project_are_no_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path.resolve()
    prefix = root / "build/.environments/abc"
    prefix.mkdir(parents=True)
    caches = (classify_path, source_files._list_groups)
    monkeypatch.setattr(sys, "prefix", str(prefix))
    groups = []
    try:
        for stamp in ({}, {"shared": ["/packages"]}):
            (prefix / "environment.json").write_text(json.dumps(stamp))
            for each in caches:
                each.cache_clear()
            folder, other = classify_path(str(prefix.parent), str(root)), f"{root}/build"
            groups.append((folder, classify_path(other, str(root))))
    finally:
        for each in caches:
            each.cache_clear()
    # Another program may create an environment in a folder of the project.
    assert groups == [(Group.PROJECT, Group.PROJECT), (Group.FOREIGN, Group.PROJECT)]
