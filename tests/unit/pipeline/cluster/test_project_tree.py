"""The list of a project's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.errors import ExporterError
from exporter.pipeline.cluster.project_tree import ProjectTree, list_project


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def names(tree: ProjectTree) -> list[str]:
    return [file.name for file in tree.files]


def test_all_files_travel_except_those_of_other_programs(tmp_path: Path) -> None:
    for name in ("manifests/net.py", ".git/HEAD", "build/net/18.onnx", "venv/pyvenv.cfg"):
        write(tmp_path / name)
    write(tmp_path / "manifests/__pycache__/net.pyc")
    write(tmp_path / ".hidden/weights.bin", "w")
    tree = list_project(tmp_path, [tmp_path / "build"])
    assert names(tree) == [".hidden/weights.bin", "manifests/net.py"]
    # The folders remain in lists of names, which a model can read.
    assert tree.folders == (".git", ".hidden", "build", "manifests", "venv")


def test_equal_projects_at_other_places_have_equal_trees(tmp_path: Path) -> None:
    for place in ("a", "b"):
        write(tmp_path / place / "project/data/x.bin", "content")
    first, second = (list_project(tmp_path / place / "project") for place in ("a", "b"))
    assert first == second
    write(tmp_path / "b/project/data/x.bin", "other")
    assert list_project(tmp_path / "b/project") != first


def test_a_link_out_of_the_project_has_the_state_of_its_target(tmp_path: Path) -> None:
    target = write(tmp_path / "data.bin", "1")
    (tmp_path / "project").mkdir()
    (tmp_path / "project/data.bin").symlink_to(target)
    write(tmp_path / "project/own.bin")
    (tmp_path / "project/inside.bin").symlink_to("own.bin")
    inside, outside = sorted(list_project(tmp_path / "project").links, key=lambda each: each.state)
    assert (inside.name, inside.target, inside.state) == ("inside.bin", "own.bin", "")
    assert outside.name == "data.bin"
    target.write_text("2")
    assert list_project(tmp_path / "project").links[0].state != outside.state


def test_the_mode_of_a_program_travels(tmp_path: Path) -> None:
    write(tmp_path / "run.sh").chmod(0o755)
    assert list_project(tmp_path).files[0].is_executable


def test_a_file_that_cannot_be_read_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "secret.bin")
    monkeypatch.setattr("exporter.pipeline.cluster.project_tree.hash_source", lambda _: "")
    with pytest.raises(ExporterError, match=r"secret.bin: cannot be read, so it cannot be copied"):
        list_project(tmp_path)
