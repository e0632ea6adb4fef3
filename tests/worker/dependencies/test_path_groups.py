"""Each path belongs to the project, to other programs, or to files outside of both."""

from __future__ import annotations

import json
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.worker.dependencies import source_files
from exporter.worker.dependencies.source_files import Group, classify_path


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


@pytest.fixture
def forget_groups() -> Iterator[Callable[[], None]]:
    """Forget the groups of paths before and after a test, and at each call."""

    def forget() -> None:
        for cached in ("_find_group", "_find_clones", "_list_groups"):
            getattr(source_files, cached).cache_clear()

    forget()
    yield forget
    forget()


@pytest.mark.usefixtures("forget_groups")
@pytest.mark.parametrize("place", ["", "/share/project"])
def test_a_project_in_the_folder_of_python_has_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    prefix = str(tmp_path.resolve())
    root = f"{prefix}{place}"
    packages = f"{prefix}/lib/python3.11/site-packages"
    monkeypatch.setattr(sys, "prefix", prefix)
    monkeypatch.setattr(source_files, "list_package_folders", lambda: (packages,))
    paths = {
        f"{root}/net.py": Group.PROJECT,
        f"{root}/src/acme/net.py": Group.PROJECT,
        f"{packages}/torch/nn.py": Group.FOREIGN,
    }
    assert {path: classify_path(path, root) for path in paths} == paths
    sources = classify_path(f"{prefix}/src/clone/net.py", root)
    assert sources is (Group.EXTERNAL if place else Group.PROJECT)


@pytest.mark.usefixtures("forget_groups")
def test_packages_of_a_shared_environment_in_the_project_are_no_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path.resolve()
    shared = f"{root}/.venv/lib/python3.11/site-packages"
    path, model = f"{shared}/torch/nn.py", f"{root}/net.py"
    monkeypatch.setattr(source_files, "list_package_folders", lambda: (shared,))
    assert classify_path(path, str(root)) is Group.FOREIGN
    assert classify_path(model, str(root)) is Group.PROJECT


def test_created_environments_in_the_project_are_no_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forget_groups: Callable[[], None]
) -> None:
    root = tmp_path.resolve()
    prefix = root / "build/.environments/abc"
    prefix.mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(prefix))
    groups = []
    for stamp in ({}, {"shared": ["/packages"]}):
        (prefix / "environment.json").write_text(json.dumps(stamp))
        forget_groups()
        folder, other = classify_path(str(prefix.parent), str(root)), f"{root}/build"
        groups.append((folder, classify_path(other, str(root))))
    # Another program may create an environment in a folder of the project.
    assert groups == [(Group.PROJECT, Group.PROJECT), (Group.FOREIGN, Group.PROJECT)]
