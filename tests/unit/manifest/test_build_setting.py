"""A build folder with files of others is an error at its line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from exporter.core.errors import ExitCode, ExporterError
from exporter.manifest.loader import load_settings

SETTINGS = '[tool.exporter]\nbuild = "out"\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "pyproject.toml").write_text(SETTINGS)
    return tmp_path


def track(root: Path, *names: str) -> None:
    for name in names:
        path = root / "out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    subprocess.run(["git", "-C", root, "add", "--force", "."], check=True)


@pytest.mark.parametrize("name", ["net.py", "m/model.safetensors", "a/b/c.txt", "config.json"])
def test_a_folder_with_files_that_git_tracks_is_refused(root: Path, name: str) -> None:
    track(root, name, "README.md")
    with pytest.raises(ExporterError) as caught:
        load_settings(root)
    assert caught.value.exit_code is ExitCode.MANIFEST
    [problem] = caught.value.problems
    assert str(problem.location) == "pyproject.toml:2"
    text = f'"out" contains files that git tracks, such as {name}; name a folder of its own'
    assert problem.message.endswith(text)


@pytest.mark.parametrize(
    "names",
    [
        (),
        (".gitignore", "README.md", "a/.gitkeep"),
        ("m/17.onnx", "m/weights-0123456789abcdef.safetensors"),
        ("m/job.json", "m/records/17.cpu.json", "m/logs/model.log"),
        ("results.json", "gate.md", "m/any.txt"),
    ],
)
def test_results_that_a_project_commits_are_accepted(root: Path, names: tuple[str, ...]) -> None:
    track(root, *names)
    assert load_settings(root).build == "out"


def test_a_folder_that_was_the_build_folder_before_is_accepted(root: Path) -> None:
    track(root, "net.py")
    (root / "out/.lock").touch()
    assert load_settings(root).build == "out"


def test_the_default_and_untracked_files_are_accepted(root: Path) -> None:
    (root / "out").mkdir()
    (root / "out/net.py").touch()
    assert load_settings(root).build == "out"
    (root / "build").mkdir()
    (root / "build/Dockerfile").touch()
    subprocess.run(["git", "-C", root, "add", "--force", "build"], check=True)
    (root / "pyproject.toml").write_text("[tool.exporter]\n")
    assert load_settings(root).build == "build"


@pytest.mark.parametrize(("build", "target"), [("link/objects", ".git"), ("link/up", "inner")])
def test_a_link_to_the_folder_of_git_or_of_the_project_is_refused(
    root: Path, build: str, target: str
) -> None:
    (root / "inner").mkdir()
    (root / "inner/up").symlink_to(root)
    (root / "link").symlink_to(root / target)
    (root / "pyproject.toml").write_text(SETTINGS.replace("out", build))
    with pytest.raises(
        ExporterError, match=rf'"{build}" leads to {root}.*; name a folder'
    ) as caught:
        load_settings(root)
    assert caught.value.exit_code is ExitCode.MANIFEST
