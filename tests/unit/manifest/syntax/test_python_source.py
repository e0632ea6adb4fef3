"""Modules are found in the folders, in packages, and in `src` of the project."""

from __future__ import annotations

from pathlib import Path

from exporter.manifest.syntax.python_source import find_module_file, suggest_module


def test_the_folder_src_of_the_project_is_searched_last(tmp_path: Path) -> None:
    folders = (str(tmp_path / "manifests"), str(tmp_path))
    for name in ("src/acme/nets.py", "src/acme/__init__.py", "manifests/src/other.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "src/yaml.py").touch()
    assert find_module_file("acme.nets", folders) == tmp_path / "src/acme/nets.py"
    assert find_module_file("yaml", folders) != tmp_path / "src/yaml.py"
    assert find_module_file("other", folders) is None
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme/__init__.py").touch()
    assert find_module_file("acme", folders) == tmp_path / "acme/__init__.py"


def test_a_missing_module_names_a_near_one(tmp_path: Path) -> None:
    (tmp_path / "src/acme").mkdir(parents=True)
    (tmp_path / "src/acme/nets.py").touch()
    (tmp_path / "vision.py").touch()
    folders = (str(tmp_path / "manifests"), str(tmp_path))
    assert suggest_module("acmee.nets", folders) == "; did you mean 'acme'?"
    assert suggest_module("acme.net", folders) == "; did you mean 'acme.nets'?"
    assert suggest_module("vison", folders) == "; did you mean 'vision'?"
    assert suggest_module("acme.nets", folders) == ""
    assert suggest_module("transformers", folders) == ""
